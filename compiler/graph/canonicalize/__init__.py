"""Passes that give every operation one spelling, and take out what is equal, dead or known."""

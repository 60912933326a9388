"""Estimates of work and traffic."""

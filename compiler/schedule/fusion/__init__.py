"""Passes that decide which nodes share a kernel."""

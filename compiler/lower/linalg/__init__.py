"""Lowerings of factorisations, Fourier transforms and recurrences over time: calls of routines."""

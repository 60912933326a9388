"""Lowerings of pointwise operators: maps, by a table of expressions."""

"""Weights of a captured model to integers: which layers, by what scales, and what error that adds."""

"""Passes that find attention, norms, activations and products where a model spells them out."""

"""Packages that train: the captured graph of model and loss becomes that of a training step."""

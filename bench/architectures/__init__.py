"""Architectures of transformers, a row each; sweep_models.py has them all."""

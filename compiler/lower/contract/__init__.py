"""Lowerings of matrix products, convolutions, attention and recurrent layers."""

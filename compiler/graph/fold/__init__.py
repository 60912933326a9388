"""Passes that compute constants now, or move them into the weights of a neighbour."""

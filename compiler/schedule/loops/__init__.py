"""Passes that change the loops of a node: order, vector axis, sliding windows, pipelines, transposes."""

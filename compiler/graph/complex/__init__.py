"""Complex tensors as pairs of real ones: rules by operator (parts.py: the table), and the pass (rewrite.py)."""

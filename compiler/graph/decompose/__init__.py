"""The pass that decomposes operators, and our own decompositions, a file for each family."""

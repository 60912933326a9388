"""The loop IR: index arithmetic, scalar expressions, tensor-level nodes, their printer and verifier."""

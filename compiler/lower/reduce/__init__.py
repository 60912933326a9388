"""Lowerings of reductions, norms, pools and scans."""

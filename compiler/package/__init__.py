"""Writes the package: the zip file with manifest, weights, libraries, sources and the runtime's Python side."""

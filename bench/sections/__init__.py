"""The figures, a section a file; each has run(settings) -> list of Figure."""

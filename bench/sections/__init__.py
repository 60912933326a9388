"""The figures, a section a file; each has run(settings), which yields every Figure as it is measured."""

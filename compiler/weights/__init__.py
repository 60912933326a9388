"""The weights of a package: which constants it holds, each tensor and layout once, and where they lie in the file."""

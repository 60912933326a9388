"""`python -m <name>` with the package file on sys.path: the same as `python <package file>`."""

import sys

from .runtime.program import main

if __name__ == "__main__":
    sys.exit(main(__loader__.archive))

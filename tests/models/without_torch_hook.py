"""Importing this makes torch unfindable."""

import sys


class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "triton", "sympy"):
            raise ImportError(f"{name} is not here")


sys.meta_path.insert(0, NoTorch())

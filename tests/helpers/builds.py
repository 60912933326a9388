"""How the tests of a folder have their packages built."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mycc.compiler.options import BuildOptions

__all__ = ["QUICK", "quick_builds"]

QUICK = "-Og"  # two thirds of the time of -O1


def quick_builds() -> Iterator[None]:
    """Until the generator ends, C++ is compiled with QUICK where a test does not say how: it gives the same bits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BuildOptions.__init__, "__defaults__", (QUICK,))
        yield

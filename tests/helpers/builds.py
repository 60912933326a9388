"""How the tests of a folder have their packages built."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mycc.compiler.options import BuildOptions

__all__ = ["quick_builds"]


def quick_builds() -> Iterator[None]:
    """Until the generator ends, C++ is compiled with -O1 where a test does not say how: the same bits, in less time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BuildOptions.__init__, "__defaults__", ("-O1",))
        yield

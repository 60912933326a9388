"""Fixtures of the tests of operators, which run kernels for GPUs through Triton's interpreter too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..gpu.conftest import interpreter  # noqa: F401
from ..helpers.builds import quick_builds


@pytest.fixture(autouse=True, scope="module")
def _quick_builds(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of all but the samples of every operator, which are built as users' models are."""
    if request.module.__name__.endswith("test_operators"):
        yield
    else:
        yield from quick_builds()

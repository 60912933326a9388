"""Fixtures of the tests of GPU kernels that need no GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..helpers.fixtures import zoo  # noqa: F401
from ..helpers.triton_interpreter import TritonInterpreter


@pytest.fixture(scope="session")
def interpreter() -> Iterator[TritonInterpreter]:
    server = TritonInterpreter()
    yield server
    server.close()

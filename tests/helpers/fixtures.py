"""Fixtures that several folders of tests share; they name them in their conftest.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .command_server import CommandServer
from .scripts import load_script

__all__ = ["server", "zoo"]


@pytest.fixture(scope="session")
def server() -> Iterator[CommandServer]:
    server = CommandServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def zoo() -> Any:
    """bench/zoo.py: the eight models at their full sizes."""
    path = Path(__file__).resolve().parents[2] / "bench" / "zoo.py"
    return load_script(path, "mycc_bench_zoo")

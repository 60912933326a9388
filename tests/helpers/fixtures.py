"""Fixtures that several folders of tests share; they name them in their conftest.py."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .command_server import CommandServer

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
    spec = importlib.util.spec_from_file_location("mycc_bench_zoo", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["mycc_bench_zoo"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

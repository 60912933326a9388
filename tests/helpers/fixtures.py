"""Fixtures that several folders of tests share; they name them in their conftest.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .command_server import CommandServer

__all__ = ["server"]


@pytest.fixture(scope="session")
def server() -> Iterator[CommandServer]:
    server = CommandServer()
    yield server
    server.close()

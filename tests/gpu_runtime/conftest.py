"""Fixtures of the tests of the GPU runtime: the fake driver, and packages for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .support import build_driver, compile_program, package


@pytest.fixture(scope="session")
def driver_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("driver") / "libcuda.so.1")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compile_program(tmp_path_factory.mktemp("program") / "model.so")


@pytest.fixture(scope="session")
def gpu_package(program: bytes) -> bytes:
    return package(program, "sm_90")

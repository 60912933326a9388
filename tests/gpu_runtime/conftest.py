"""Fixtures of the tests of the GPU runtime: the fake driver, and packages for it."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from .support import build_driver, compile_program, package


def _real_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.fixture(scope="session")
def no_driver() -> None:
    """A machine with a driver has it loaded by its name, and no other can take its place."""
    if _real_driver():
        pytest.skip("this machine has an NVIDIA driver: test_device.py is for it")


@pytest.fixture(scope="session")
def driver_path(no_driver: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("driver") / "libcuda.so.1")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compile_program(tmp_path_factory.mktemp("program") / "model.so")


@pytest.fixture(scope="session")
def cpu_program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compile_program(tmp_path_factory.mktemp("program") / "model.so", cpu=True)


@pytest.fixture(scope="session")
def gpu_package(program: bytes) -> bytes:
    return package(program, "sm_90")

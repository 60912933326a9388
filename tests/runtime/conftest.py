"""Fixtures of the runtime's tests: the library, a hand-written program, and a package of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mycc.runtime import _binding
from mycc.runtime.errors import InputError, LoadError, RunError

from .packages import NAMES, Draft, compile_program

LIBRARY = Path(_binding.__file__).with_name("libmycc.so")


class Loaded:
    """A model whose entry points are called by name."""

    def __init__(self, native: Any) -> None:
        self.native = native

    def __call__(self, name: str, *tensors: Any) -> Any:
        outputs = self.native.run(NAMES[name], tensors)
        return outputs[0] if len(outputs) == 1 else outputs


@pytest.fixture(scope="session")
def library_path() -> Path:
    return LIBRARY


@pytest.fixture(scope="session")
def library() -> Any:
    _binding.set_errors(LoadError, InputError, RunError)
    return _binding.Library(str(LIBRARY))


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compile_program(tmp_path_factory.mktemp("program") / "model.so")


@pytest.fixture(scope="session")
def package(program: bytes) -> bytes:
    return Draft(program).build()


@pytest.fixture(scope="session")
def package_file(package: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("package") / "handmade.pkg"
    path.write_bytes(package)
    return path


@pytest.fixture(scope="session")
def model(library: Any, package_file: Path) -> Loaded:
    return Loaded(library.load_file(str(package_file), threads=4))

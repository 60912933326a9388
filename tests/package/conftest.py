"""A small package made by hand (adder.c), and processes in which torch does not exist."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mycc import runtime
from mycc.compiler.package import python_side, writer
from mycc.compiler.package.contract import contract_of
from mycc.compiler.weights.safetensors import WeightTensor, layout
from mycc.runtime import certificate
from mycc.runtime.generator import Fill

TARGET = "cpu:x86-64-v2"
TABLE = np.arange(32, dtype=np.float32).reshape(8, 4)
SCALE = np.array([1, 2, 3, 4], np.float32)
WEIGHTS = [WeightTensor("table", "F32", (8, 4), TABLE), WeightTensor("scale", "F32", (4,), SCALE)]
LEAF = "*"

NO_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ImportError(f"{{name}} cannot be imported here")
sys.meta_path.insert(0, NoTorch())
"""


def port(name: str, dtype: str, *shape: int | str) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": list(shape)}


def kernel(name: str, op: str, line: int, **formulas: str) -> dict[str, Any]:
    return {"name": name, "kind": "map", "ops": [op], "sources": [f"adder.py:{line}"], **formulas}


def arguments(*positional: Any, **keywords: Any) -> dict[str, Any]:
    return {"tuple": [{"tuple": list(positional)}, {"dict": [[key, tree] for key, tree in keywords.items()]}]}


FORWARD = {
    "name": "forward",
    "inputs": [port("x", "f32", "batch", 4), port("ids", "i64", "batch")],
    "outputs": [port("y", "f32", "batch", 4), port("s", "f32", "batch")],
    "symbols": [{"name": "batch", "min": 1, "max": 64, "input": 0, "dim": 0, "scale": 1, "offset": 0}],
    "in_tree": arguments(LEAF, ids=LEAF),
    "out_tree": {"dict": [["y", LEAF], ["extra", {"tuple": [LEAF, {"none": None}]}]]},
    "kernels": [
        kernel("map_mul_f32", "aten.mul", 3, flops="4*batch", bytes="48*batch"),
        kernel("gather_add_f32", "aten.embedding", 4),
    ],
    "fusions": [
        {"producer": "map_mul_f32", "consumer": "gather_add_f32", "done": False, "reason": "written by hand"},
        {"producer": "sum", "consumer": "gather_add_f32", "done": True, "reason": ""},
    ],
    "memory": {"buffers": 1, "arena": 64, "live": 64},
}
DOUBLE = {
    "name": "double",
    "inputs": [port("x", "i64", 3)],
    "outputs": [port("y", "i64", 3)],
    "symbols": [],
    "in_tree": arguments(LEAF),
    "out_tree": LEAF,
    "kernels": [kernel("map_mul_i64", "aten.mul", 9)],
    "fusions": [],
    "memory": {"buffers": 0, "arena": 0, "live": 0},
}


def reference(x: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = x.astype(np.float64)
    return x * SCALE + TABLE[ids], x.sum(axis=1)


def make_certificate(error: float = 0.0) -> bytes:
    cases = []
    for batch in (3, 7):
        inputs = (
            certificate.InputCheck("f32", (batch, 4), Fill(1, spread=(0.5, 2.0))),
            certificate.InputCheck("i64", (batch,), Fill(2, limits=(0, 7))),
        )
        x, ids = (certificate.fill_tensor(check.dtype, check.shape, check.fill) for check in inputs)
        outputs = [output * (1 + error) for output in reference(x, ids)]
        cases.append(certificate.CaseReference("forward", {"batch": batch}, inputs, outputs, [1e-6, 1e-6]))
    return certificate.serialize(certificate.make_certificate(cases))


def compile_adder(out: Path, *definitions: str) -> bytes:
    source = Path(__file__).with_name("adder.c")
    include = Path(runtime.__file__).parent / "include"
    flags = ["-std=c11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{include}", *definitions]
    subprocess.run(["gcc", *flags, str(source), "-o", str(out)], check=True)
    return out.read_bytes()


@pytest.fixture(scope="session")
def plain_library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Code that does not say what it was compiled for, as before there were contracts."""
    return compile_adder(tmp_path_factory.mktemp("adder") / "model.so")


@pytest.fixture(scope="session")
def model_library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    placed = layout(WEIGHTS)
    contract = contract_of([FORWARD, DOUBLE], [], len(placed.header), placed.size)
    return compile_adder(tmp_path_factory.mktemp("adder") / "model.so", f'-DCONTRACT="{contract}"')


@pytest.fixture(scope="session")
def make_contents(model_library: bytes, plain_library: bytes) -> Callable[..., writer.PackageContents]:
    loader = python_side.installed_loader()
    assert loader is not None, "libmycc.so is not installed"

    def make(**changes: Any) -> writer.PackageContents:
        values: dict[str, Any] = {
            "name": "adder",
            "entry_points": [FORWARD, DOUBLE],
            "weights": WEIGHTS,
            "libraries": {TARGET: plain_library if {"weights", "entry_points"} & changes.keys() else model_library},
            "loaders": {TARGET: loader},
            "wrappers": python_side.installed_wrappers(),
            "sources": {"x86-64-v2/adder.c": "/* adder */"},
            "certificate": make_certificate(),
            "versions": {"mycc": "0.1.0", "compiler": "gcc"},
            "check": {"error": [1e-7, 0.0], "eager": [2e-7, 0.0], "shapes": [{"batch": 3}]},
        }
        return writer.PackageContents(**{**values, **changes})

    return make


@pytest.fixture(scope="session")
def package(make_contents: Callable[..., writer.PackageContents], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, with a certificate that it fulfils."""
    path = tmp_path_factory.mktemp("package") / "adder.pkg"
    writer.write_package(path, make_contents())
    return path


@pytest.fixture(scope="session")
def wrong_package(
    make_contents: Callable[..., writer.PackageContents], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The package with a certificate that asks for other values."""
    path = tmp_path_factory.mktemp("package") / "adder.pkg"
    writer.write_package(path, make_contents(certificate=make_certificate(error=1e-3)))
    return path


@pytest.fixture(scope="session")
def python_without() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a script in a process where torch, and what else is named, cannot be imported."""

    def run(
        script: str, *arguments: str | Path, python: str = sys.executable, also: tuple[str, ...] = (), **options: Any
    ) -> subprocess.CompletedProcess[str]:
        code = NO_TORCH.format(blocked=("torch", *also)) + textwrap.dedent(script)
        command = [python, "-c", code, *map(str, arguments)]
        environment = {**os.environ, **options.pop("env", {})}
        return subprocess.run(command, text=True, capture_output=True, timeout=60, env=environment, **options)

    return run

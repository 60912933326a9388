"""Compiling through the command, running without torch, and comparing with the float64 reference."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mycc.compiler.capture.graph import ModelGraph
from mycc.compiler.verify.compare import errors
from mycc.compiler.verify.reference import reference
from mycc.compiler.verify.verify import tolerance

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
Arrays = dict[str, np.ndarray]


def mycc_command(
    *args: object, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """`mycc ARGS` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "mycc.cli", *map(str, args)],
        capture_output=True, text=True, cwd=cwd, env={**os.environ, **(env or {})}, timeout=timeout,
    )  # fmt: skip


def compile_command(source: object, out: Path, *options: str) -> Path:
    done = mycc_command("compile", source, "--out", out, *options)
    assert done.returncode == 0, done.stderr
    assert str(out) in done.stdout
    return out


def run_without_torch(
    package: Path, cases: Sequence[tuple[str, Sequence[torch.Tensor]]], names: Mapping[str, Sequence[str]], folder: Path
) -> list[list[torch.Tensor]]:
    """Runs (entry point, inputs) cases in one process in which torch cannot be imported; flat outputs of each."""
    arrays: Arrays = {
        f"{i}.{entry}.{name}": tensor.numpy()
        for i, (entry, inputs) in enumerate(cases)
        for name, tensor in zip(names[entry], inputs, strict=True)
    }
    into, out = folder / "inputs.npz", folder / "outputs.npz"
    np.savez(into, **arrays)  # type: ignore[arg-type]
    command = [sys.executable, str(HERE / "without_torch.py"), str(package), str(into), str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: list[dict[int, torch.Tensor]] = [{} for _ in cases]
    for key, array in np.load(out).items():
        case, _, position = key.split(".")
        found[int(case)][int(position)] = torch.from_numpy(array)
    return [[outputs[i] for i in range(len(outputs))] for outputs in found]


def assert_right(graph: ModelGraph, model: Any, inputs: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> None:
    """Each output is as near to the float64 reference as is asked for: twice eager's own error and 1e-7."""
    wanted = reference(graph, inputs)
    with torch.no_grad():
        own = torch.utils._pytree.tree_leaves(model(*inputs))
    for y, e, own_error in zip(found, errors(found, wanted), errors(own, wanted), strict=True):
        assert e <= tolerance(own_error), f"shape {tuple(y.shape)}: error {e:.2e}, eager {own_error:.2e}"

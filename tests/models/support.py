"""Compiling through the command, running without torch, and comparing with the float64 reference."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mycc.compiler.model.graph import ModelGraph
from mycc.compiler.verify.compare import error, errors
from mycc.compiler.verify.reference import reference

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
Arrays = dict[str, np.ndarray]


def tolerance(eager: float) -> float:
    """What the error of a package may be where eager's own error is this."""
    return 2 * eager + 1e-7


def mycc_command(*args: object, cwd: Path | None = None, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """`python -m mycc.cli ARGS`."""
    command = [sys.executable, "-m", "mycc.cli", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=timeout)


def compiled(done: subprocess.CompletedProcess[str], out: Path) -> Path:
    """The package of a `mycc compile` that has to have worked."""
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


def assert_right(
    graph: ModelGraph, model: Any, cases: Sequence[tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]]
) -> None:
    """The outputs are as near to the float64 reference as is asked for: twice eager's own error and 1e-7.

    cases: inputs, and the flat outputs for them. That holds for all cases together; a case alone may be a bit further
    off, for in a handful of numbers the errors are a matter of luck, also eager's.
    """
    found: list[torch.Tensor] = []
    wanted: list[torch.Tensor] = []
    own: list[torch.Tensor] = []
    for inputs, outputs in cases:
        found += outputs
        wanted += reference(graph, inputs)
        with torch.no_grad():
            own += torch.utils._pytree.tree_leaves(model(*inputs))
    for y, e, own_error in zip(found, errors(found, wanted), errors(own, wanted), strict=True):
        assert e <= 4 * own_error + 5e-7, f"shape {tuple(y.shape)}: error {e:.2e}, eager {own_error:.2e}"
    y, r, t = (torch.cat([part.double().flatten() for part in parts]) for parts in (found, wanted, own))
    assert error(y, r) <= tolerance(error(t, r)), f"all: error {error(y, r):.2e}, eager {error(t, r):.2e}"

"""The zoo's architectures through the command, small and dynamic; and static ones as entry points of one package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc.compiler.capture import capture
from torch.export import Dim

from ..helpers.command_server import CommandServer
from . import small_zoo
from .support import HERE, assert_right, compiled, run_without_torch

BATCHES = (1, 2, 7)
SEEDS = 8  # sets of inputs: the errors of a few numbers alone are a matter of luck


def shapes(name: str) -> list[tuple[int, int]]:
    """Batches, for text with sequences of their own."""
    if name not in small_zoo.TEXT:
        return [(batch, 0) for batch in BATCHES]
    return [(1, 1), (1, 33), (2, 9), (7, 5), (7, 1)]


def inputs(example: torch.Tensor, batch: int, sequence: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(seed + batch + sequence)
    if sequence:
        return (torch.randint(0, small_zoo.VOCABULARY, (batch, sequence)),)
    return (torch.randn(batch, *example.shape[1:]),)


@pytest.mark.parametrize("name", small_zoo.NAMES)
def test_dynamic_through_the_command(server: CommandServer, name: str, tmp_path: Path) -> None:
    parameter = "input" if name == "mlp" else "x"
    options = ["--dynamic", f"{parameter}:0=batch(1..64)"]
    if name in small_zoo.TEXT:
        options += ["--dynamic", f"{parameter}:1=seq(1..40)"]
    package = tmp_path / f"{name}.pkg"
    compiled(server.mycc("compile", f"{HERE / 'small_zoo.py'}:{name}", "--out", package, *options), package)
    model, (example,) = getattr(small_zoo, name)()
    dims: dict[int, Any] = {0: Dim("batch", min=1, max=64)}
    if name in small_zoo.TEXT:
        dims[1] = Dim("seq", min=1, max=40)
    graph = capture(model, (example,), dynamic_shapes=(dims,))
    cases = [("forward", inputs(example, *shape)) for shape in shapes(name)]
    outputs = run_without_torch(package, cases, {"forward": [parameter]}, tmp_path)
    assert_right(graph, model, [(given, found) for (_, given), found in zip(cases, outputs, strict=True)])
    verified = server.mycc("verify", package)
    assert verified.returncode == 0, verified.stdout


@pytest.fixture(scope="module")
def static_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All eight with fixed sizes, an entry point each."""
    entries = {name: getattr(small_zoo, name)() for name in small_zoo.NAMES}
    return mycc.compile(entries, out=tmp_path_factory.mktemp("static") / "zoo.pkg")


def test_static_entry_points(static_package: Path, tmp_path: Path) -> None:
    models = {name: getattr(small_zoo, name)() for name in small_zoo.NAMES}
    package = mycc.load(static_package)
    assert list(package.entries) == list(small_zoo.NAMES)
    names = {name: [port.name for port in package.entry(name).signature.inputs] for name in small_zoo.NAMES}
    cases = [
        (name, inputs(args[0], 2, args[0].shape[1] * (name in small_zoo.TEXT), seed))
        for name, (_, args) in models.items()
        for seed in range(SEEDS)
    ]
    outputs = run_without_torch(static_package, cases, names, tmp_path)
    results = [(given, found) for (_, given), found in zip(cases, outputs, strict=True)]
    for i, (model, args) in enumerate(models.values()):
        assert_right(capture(model, args), model, results[i * SEEDS : (i + 1) * SEEDS])


def test_the_same_bits_at_any_number_of_threads(static_package: Path) -> None:
    for name in small_zoo.NAMES:
        _, args = getattr(small_zoo, name)()
        results = [mycc.load(static_package, threads=threads).entry(name)(*args) for threads in (1, 2, 5, 2)]
        assert all(r.numpy().tobytes() == results[0].numpy().tobytes() for r in results), name


def test_the_arena_is_hardly_larger_than_what_lives(static_package: Path) -> None:
    package = mycc.load(static_package)
    for name, entry in package.entries.items():
        arena, live = entry.memory([t.numpy() for t in getattr(small_zoo, name)()[1]])
        assert arena <= 1.15 * live + 4096, name

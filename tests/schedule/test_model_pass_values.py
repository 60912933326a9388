"""Passes of the schedule on whole models and random programs: see test_pass_values.py."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.lower import lower
from mycc.compiler.machine.targets import Family
from mycc.compiler.model.graph import ModelGraph
from torch.export import Dim

from ..helpers.evaluation import given_to
from ..helpers.passes import Judge
from ..models import control_models, shape_models
from ..property.explore import KINDS, run_round

#: inputs, and the sizes of all symbols
Call = tuple[Sequence[torch.Tensor], Mapping[str, int]]
NAMES = ("mlp", "resnet50", "bert", "vit", "gpt2", "llama", "mobilenetv2", "whisper_enc")
TEXT = ("bert", "gpt2", "llama")


def follow(model: torch.nn.Module, example: Sequence[torch.Tensor], shapes: Any, calls: Sequence[Call]) -> None:
    """Judges the schedules of a model for CPUs and for GPUs."""
    captured = capture(model, tuple(example), None, shapes)
    graph = run_graph_passes(captured)
    families: tuple[Family, ...] = ("cpu", "cuda")
    for family in families:
        lowered = lower(graph, family=family)
        state = state_of(captured)
        names = lowered.program.sizes
        given = [(given_to(lowered, [*x, *state]), {n: sizes[n] for n in names}) for x, sizes in calls]
        Judge(lowered.program, given, family).follow()


def state_of(graph: ModelGraph) -> list[torch.Tensor]:
    """The first values of the buffers that a model changes."""
    changes = sorted(graph.in_place, key=lambda c: c.input)
    return [c.initial for c in changes if c.input >= graph.n_arguments and c.initial is not None]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_small_models(name: str) -> None:
    from ..models import small_zoo

    model, (x,) = getattr(small_zoo, name)()
    dims = {0: Dim("batch", min=1, max=64)}
    if name in TEXT:
        dims[1] = Dim("sequence", min=1, max=48)

    def calls() -> Iterator[Call]:
        for batch, sequence in ((1, 1), (3, 7)):
            shape = (batch, sequence) if name in TEXT else (batch, *x.shape[1:])
            value = torch.randint(0, small_zoo.VOCABULARY, shape) if name in TEXT else torch.randn(shape)
            yield [value], {"batch": batch, "sequence": sequence}

    follow(model, (x,), (dims,), list(calls()))


@pytest.mark.slow
@pytest.mark.parametrize("name", control_models.MODELS)
def test_control_flow(name: str) -> None:
    inputs = control_models.MODELS[name][1]
    dynamic = control_models.DYNAMIC.get(name)
    longer = [torch.cat((x, x * 0.5)) if dynamic else x * 2 for x in inputs]
    sizes = [{"batch": len(x[0]), "length": len(x[0])} for x in (inputs, longer) if x[0].dim()]
    calls = list(zip((inputs, longer), sizes or [{}, {}], strict=True))
    follow(control_models.make(name), inputs, dynamic, calls)


@pytest.mark.slow
@pytest.mark.parametrize("row", shape_models.ROWS, ids=lambda row: row.name)
def test_dynamic_shapes(row: shape_models.Row) -> None:
    calls = [(row.inputs(at), at) for at in row.at]
    follow(row.module().eval(), row.inputs(dict(row.at[-1])), row.dynamic_shapes(), calls)


def explored(kind: str, programs: int) -> None:
    """In a process of its own: what hypothesis draws for a seed depends on the modules that are imported."""
    command = [sys.executable, "-m", "tests.property.explore", "--kind", kind, "--seed", "20", "--no-shrink"]
    command += ["--programs", str(programs), "--round", str(programs * 6 // 5)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    right = re.search(r"^(\d+) of \d+ programs are right, 0 are wrong$", done.stdout, re.MULTILINE)
    assert right is not None, done.stdout
    assert int(right[1]) >= programs * 2 // 3


def test_random_programs(tmp_path: Path) -> None:
    """A few, drawn in this process."""
    found = run_round(KINDS["passes"], 20, 8, tmp_path, shrink=False)
    assert not found.failures, "\n".join(found.failures)
    assert found.right >= 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["passes", "reduction-passes", "alias-passes"])
def test_many_random_programs(kind: str) -> None:
    explored(kind, 200)

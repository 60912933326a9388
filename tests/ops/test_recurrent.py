"""Recurrent layers against torch's in float64: kinds of cells, directions, layouts, types, numbers of steps."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.lower import lower
from mycc.compiler.model.operators.kept import kept_for
from mycc.compiler.schedule import schedule
from mycc.runtime.errors import CompileError
from torch import Tensor, nn
from torch.export import Dim

KINDS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *sizes, **how: nn.RNN(*sizes, nonlinearity="relu", **how),
}
#: of layers of 20 inputs and 24 elements
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two_layers": {"num_layers": 2, "batch_first": True},
    "both_ways": {"num_layers": 2, "bidirectional": True},
    "without_bias": {"bidirectional": True, "batch_first": True, "bias": False},
}
#: torch has projections for LSTMs alone
PROJECTED: dict[str, dict[str, Any]] = {
    "projected": {"proj_size": 9, "num_layers": 2, "bidirectional": True},
    "projected_without_bias": {"proj_size": 9, "batch_first": True, "bias": False},
}


class Layers(nn.Module):
    def __init__(self, kind: str, **how: Any) -> None:
        super().__init__()
        self.layers = KINDS[kind](20, 24, **how)

    def forward(self, x: Tensor, *states: Tensor) -> list[Tensor]:
        own = states if len(states) > 1 else states[0] if states else None
        out, last = self.layers(x, own)
        return [out, *(last if isinstance(last, tuple) else [last])]


def check(path: Path, model: nn.Module, *inputs: Tensor, rtol: float = 1e-5) -> None:
    """Both numbers of threads, and each input again: what a loop hands on is set back."""
    want = copy.deepcopy(model).double()(*(x.double() for x in inputs))
    for threads in (1, 2):
        package = mycc.load(path, threads=threads)
        for _ in range(2):
            for a, b in zip(package(*inputs), want, strict=True):
                np.testing.assert_allclose(a.double(), b.detach(), rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    ("kind", "form"),
    [(kind, form) for kind in KINDS for form in FORMS if kind == "lstm" or form in ("both_ways", "without_bias")]
    + [("lstm", form) for form in PROJECTED],
)
def test_as_torch(kind: str, form: str, tmp_path: Path) -> None:
    model = Layers(kind, **{**FORMS, **PROJECTED}[form]).eval()
    x = torch.randn(3, 7, 20)
    mycc.compile(model, (x,), out=tmp_path / "m.pkg")
    check(tmp_path / "m.pkg", model, x)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_given_states_and_any_batch(kind: str, tmp_path: Path) -> None:
    model, batch = Layers(kind, bidirectional=True).eval(), torch.export.Dim("batch", min=1, max=50)
    inputs = [torch.randn(5, 2, 20), *(torch.randn(2, 2, 24) for _ in range(2 if kind == "lstm" else 1))]
    shapes = {"x": {1: batch}, "states": tuple({1: batch} for _ in inputs[1:])}
    mycc.compile(model, tuple(inputs), out=tmp_path / "m.pkg", dynamic_shapes=shapes)
    for n in (1, 2, 31):
        check(tmp_path / "m.pkg", model, *(torch.randn(t.shape[0], n, t.shape[2]) for t in inputs))


def test_halves(tmp_path: Path) -> None:
    model = Layers("lstm", num_layers=2).eval().bfloat16()
    x = torch.randn(6, 2, 20).bfloat16()
    mycc.compile(model, (x,), out=tmp_path / "m.pkg")
    check(tmp_path / "m.pkg", model, x, rtol=2e-2)


def test_kernels_stand_once() -> None:
    """As many kernels for 3 steps as for 40."""
    graphs = [capture(Layers("lstm").eval(), (torch.randn(steps, 1, 20),)) for steps in (3, 40)]
    few, many = (schedule(lower(run_graph_passes(graph, kept=kept_for(["cpu"]))).program) for graph in graphs)
    assert few.names == many.names


@pytest.mark.parametrize("form", PROJECTED)
def test_steps_written_out(form: str) -> None:
    """What GPUs take: the decomposition."""
    model = Layers("lstm", **PROJECTED[form]).double().eval()
    x = torch.randn(3, 7, 20, dtype=torch.float64)
    graph = run_graph_passes(capture(model, (x,)), kept=kept_for(["cuda"]))
    assert not any("lstm" in str(node.target) for node in graph.module.graph.nodes)
    for a, b in zip(graph.module(x), model(x), strict=True):
        torch.testing.assert_close(a, b)


def test_dropout_between_layers_is_refused(tmp_path: Path) -> None:
    model = Layers("lstm", num_layers=2, dropout=0.5).train()
    with pytest.raises(CompileError, match="dropout"):
        mycc.compile(model, (torch.randn(3, 1, 20),), out=tmp_path / "m.pkg")


def test_every_number_of_steps(tmp_path: Path) -> None:
    """A dynamic time dimension, which torch.export would fix; the batch is dynamic as well."""
    steps, batch = Dim("steps", min=1, max=40), Dim("batch", min=1, max=9)

    class Kinds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.all = nn.ModuleList(
                [
                    Layers("lstm", num_layers=2, bidirectional=True, batch_first=True),
                    Layers("lstm", proj_size=9, batch_first=True),
                    Layers("gru", num_layers=2, bidirectional=True, batch_first=True),
                    Layers("tanh", bidirectional=True, batch_first=True),
                    Layers("relu", num_layers=2, batch_first=True, bias=False),
                ]
            )
            self.along = Layers("gru")

        def forward(self, x: Tensor, state: Tensor) -> list[Tensor]:
            return [
                *(y for layer in self.all for y in layer(x)), *self.along(x.transpose(0, 1), state),
                *self.all[0](x[:, x.shape[1] // 2 :]),
            ]  # fmt: skip

    def inputs(b: int, t: int) -> tuple[Tensor, Tensor]:
        return torch.randn(b, t, 20), torch.randn(1, b, 24)

    model = Kinds().eval()
    shapes = ({0: batch, 1: steps}, {1: batch})
    path = mycc.compile(model, inputs(3, 7), out=tmp_path / "kinds.pkg", dynamic_shapes=shapes)
    for b, t in ((1, 1), (3, 2), (9, 13), (2, 40)):
        check(path, model, *inputs(b, t))


@pytest.mark.parametrize("kind", KINDS)
def test_steps_of_a_gpu_are_fixed(kind: str) -> None:
    shapes = ({0: Dim("steps", min=1, max=40)},)
    graph = capture(Layers(kind).eval(), (torch.randn(7, 3, 20),), dynamic_shapes=shapes)
    with pytest.raises(CompileError, match="dynamic number of time steps: for a GPU") as refused:
        run_graph_passes(graph, kept=kept_for(["cuda"]))
    assert "test_recurrent.py" in str(refused.value)

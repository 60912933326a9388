"""Starts of buffers that the host program adds to their addresses: which, and that steps share kernels."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.codegen.cpu.render import KernelPool
from mycc.compiler.codegen.host.program import _argument
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.expr import Load
from mycc.compiler.ir.index import Index, Indirect, Var, as_index, of
from mycc.compiler.ir.nodes import Map, Origin, Store
from mycc.compiler.schedule.loops.base_offsets import with_base_offsets
from mycc.compiler.schedule.planning import plan_kernel
from torch import nn

from ..helpers.programs import call

I = Var("i", as_index(40))  # noqa: E741
X, Y = Buffer("x", "f32", as_index(9000), "input", 0), Buffer("y", "f32", as_index(9000), "output", 0)
IDS = Buffer("ids", "i64", as_index(9000), "input", 1)
i = of(I)


def step(*reads: Index, to: Index = i) -> Map:
    value = Load(X, reads[0])
    for index in reads[1:]:
        value = call("add", value, Load(X, index))  # type: ignore[assignment]
    return Map((I,), (Store(Y, to, value),), Origin())


@pytest.mark.parametrize(
    ("node", "base_offsets"),
    [
        (step(i + 63), {}),
        (step(i + 130, i + 200, to=i + 64), {X: 128, Y: 64}),
        (step(i + 130, i), {}),
        (step(i - 1, i + 200), {}),
        (step(i * 3 + 130), {}),  # picked out of whole vectors
        (step(i * 40 + 130), {X: 128}),
        (step(of(Indirect(Load(IDS, i + 128), as_index(40))) + 130), {IDS: 128}),
    ],
)
def test_base_offsets(node: Map, base_offsets: dict[Buffer, int]) -> None:
    assert with_base_offsets(node)[1] == base_offsets


def test_steps_share_a_kernel() -> None:
    pool = KernelPool()
    calls = [pool.call("map", plan_kernel(step(i + 640 * t + 3, i + 640 * t, to=i + 64 * t))) for t in range(5)]
    assert len(pool.kernels()) == 1
    assert [_argument(p, {}) for p in calls[2].params] == ["input_x + 1280", "output_y + 128"]


class Steps(nn.Module):
    """A recurrence whose steps read and write places of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(96, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, found = x.new_zeros(3, 96), []
        for t in range(x.shape[1]):
            gate, new = torch.sigmoid(x[:, t]), torch.tanh(self.layer(h) * x[:, t].cumsum(-1))
            h = gate * h + (1 - gate) * new
            found.append(h)
        return torch.stack(found, 1)


def test_a_recurrence(tmp_path: Path) -> None:
    model, x = Steps().eval(), torch.randn(3, 7, 96)
    package = mycc.compile(model, (x,), out=tmp_path / "steps.pkg")
    found = torch.from_numpy(mycc.load(package)(x.numpy()))
    torch.testing.assert_close(found.double(), model.double()(x.double()).detach(), rtol=1e-4, atol=1e-5)

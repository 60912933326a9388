"""Values written over others: what the verifier asks, and what the schedule leaves where it is."""

from __future__ import annotations

import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.capture.state import share_state
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.expr import Const, Load
from mycc.compiler.ir.index import Var, as_index, of
from mycc.compiler.ir.nodes import Map, Origin, Scatter, Store
from mycc.compiler.ir.program import Program
from mycc.compiler.ir.verify import BrokenLaw, verify_program
from mycc.compiler.lower import lower
from mycc.compiler.schedule import Schedule, schedule


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(8, 4))
        self.register_buffer("mean", torch.zeros(4))


class OldValue(Model):
    """Reads the old value behind the change: it is copied first."""

    def forward(self, x, i):
        old = self.cache * 1
        self.cache.index_copy_(0, i, x)
        return old.sum(0), self.cache.sum(0)


class Shifted(Model):
    """A new value made of other elements of the old one."""

    def forward(self, x, i):
        self.cache.copy_(torch.cat([self.cache[1:], x[:1]]))
        return self.cache.sum(0)


class Running(Model):
    """A new value of the same elements: stored where the old one lies, by the kernel that makes it."""

    def forward(self, x, i):
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.mean


class Pieces(Model):
    def forward(self, x, i):
        self.cache[:2] = x * 2
        self.cache[2:4, 1] += 1
        return self.cache * 1


def scheduled(model: torch.nn.Module) -> Schedule:
    (graph,) = share_state([capture(model, (torch.randn(2, 4), torch.tensor([5, 1])))])
    lowered = lower(run_graph_passes(graph))
    verify_program(lowered.program, "lowering")
    planned = schedule(lowered.program)
    verify_program(planned.program, "scheduling")
    return planned


@pytest.mark.parametrize(("model", "kernels"), [(OldValue(), 4), (Shifted(), 4), (Running(), 2), (Pieces(), 5)])
def test_kernels(model: torch.nn.Module, kernels: int) -> None:
    assert len(scheduled(model).names) == kernels, str(scheduled(model))


def test_a_cache_is_not_copied() -> None:
    planned = scheduled(OldValue())
    (update,) = [n for n in planned.program.nodes if isinstance(n, Scatter)]
    assert update.stores == ()
    assert update.updates[0].buffer.root is planned.program.state[0]


def program(*nodes: Map, state: Buffer) -> Program:
    return Program("p", (), (), (), nodes, state=(state,))


def store(buffer: Buffer, value: Load | Const, shift: int = 0) -> Map:
    i = Var("i", as_index(4))
    if isinstance(value, Load):
        value = Load(value.buffer, of(i) + shift)
    return Map((i,), (Store(buffer, of(i), value),), Origin())


def test_laws() -> None:
    root = Buffer("s", "f32", as_index(5), "state", 0)
    later = Buffer("s1", "f32", as_index(5), "state", 0, root)
    temp = Buffer("t", "f32", as_index(4), "temp")
    old, one = Load(root, as_index(0)), Const(1.0, "f32")
    verify_program(program(store(temp, old), store(later, one), state=root))
    verify_program(program(store(later, old), state=root))
    with pytest.raises(BrokenLaw, match="s is read after s1 was written over it"):
        verify_program(program(store(later, one), store(temp, old), state=root))
    with pytest.raises(BrokenLaw, match="the node writes over at another turn"):
        verify_program(program(store(later, old, shift=1), state=root))

"""Values written over others: what the verifier asks, and what the schedule leaves where it is."""

from __future__ import annotations

import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.capture.state import share_state
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.expr import Call, Const, Load
from mycc.compiler.ir.index import Index, Indirect, Var, as_index, of
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


class Counted(Model):
    """Rows that an index with duplicates names: all are read before the first is written."""

    def forward(self, x, i):
        self.cache[i] += 1
        return self.cache.sum(0)


def test_rows_with_duplicates_are_read_by_a_kernel_of_their_own() -> None:
    planned = scheduled(Counted())
    (update,) = [n for n in planned.program.nodes if isinstance(n, Scatter)]
    assert all(load.buffer.root is not update.updates[0].buffer.root for load in update.updates[0].value.loads)
    reasons = [remark.reason for remark in planned.remarks if not remark.done]
    assert "what it reads is written over in place before it is read" in reasons


def program(*nodes: Map | Scatter, state: Buffer) -> Program:
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
    with pytest.raises(BrokenLaw, match="the node writes over at another iteration"):
        verify_program(program(store(later, old, shift=1), state=root))


I, J = Var("i", as_index(2)), Var("j", as_index(4))  # noqa: E741
NAMED = of(Indirect(Load(Buffer("k", "i64", as_index(2), "const"), of(I)), as_index(4))) * 4 + of(J)
TRANSPOSED = of(J) * 4 + of(I)


@pytest.mark.parametrize(
    ("place", "reads", "right"),
    [
        (of(I) * 4 + of(J), 0, True),
        (NAMED, 0, False),
        (of(J) + of(I), 0, False),
        (TRANSPOSED, 0, True),
        (TRANSPOSED, 1, False),
    ],
    ids=["own", "named by data", "overlapping", "backwards", "its neighbour"],
)
def test_a_kernel_reads_no_element_that_it_has_written(place: Index, reads: int, right: bool) -> None:
    root = Buffer("s", "f32", as_index(32), "state", 0)
    later = Buffer("s1", "f32", as_index(32), "state", 0, root)
    fused = Map((I, J), (Store(later, place, Load(root, place + reads)),), Origin())
    kernels: list[Map | Scatter] = [fused, Scatter((), (), Origin(), (I, J), fused.stores)]
    for kernel in kernels:
        if right:
            verify_program(program(kernel, state=root))
        else:
            with pytest.raises(BrokenLaw, match="the node writes over at another iteration"):
                verify_program(program(kernel, state=root))


def test_updates_may_read_what_they_made_of_an_element() -> None:
    root = Buffer("s", "f32", as_index(32), "state", 0)
    later = Buffer("s1", "f32", as_index(32), "state", 0, root)
    added = Store(later, NAMED, Call("add", (Load(later, NAMED), Const(1.0, "f32")), "f32"))
    verify_program(program(Scatter((), (), Origin(), (I, J), (added,)), state=root))

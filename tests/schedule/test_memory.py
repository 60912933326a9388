"""The memory planner: nothing that lives at once overlaps, and little is wasted."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mycc.compiler.ir.index import of
from mycc.compiler.ir.nodes import Map, Origin, Store
from mycc.compiler.ir.program import Loop
from mycc.compiler.ir.verify import BrokenLaw
from mycc.compiler.schedule import Schedule
from mycc.compiler.schedule.memory.laws import occupied_kernels, verify_memory
from mycc.compiler.schedule.memory.plan import ALIGNMENT, Lifetime, MemoryPlan, best_placement, plan_memory

from ..helpers.programs import Writer, call, load, loops, scheduled, temp

ROOT = Path(__file__).parents[2]
KERNELS = 12

spans = st.tuples(st.integers(0, KERNELS - 1), st.integers(0, KERNELS - 1)).map(lambda t: (min(t), max(t)))
buffers = st.lists(st.tuples(spans, st.integers(1, 40).map(lambda n: n * ALIGNMENT)), max_size=14)


def live_bytes(rows: list[tuple[tuple[int, int], int]]) -> int:
    return max((sum(size for (a, b), size in rows if a <= i <= b) for i in range(KERNELS)), default=0)


def overlaps(rows: list[tuple[tuple[int, int], int]], offsets: list[int]) -> list[tuple[int, int]]:
    found = []
    for i, ((a1, b1), n1) in enumerate(rows):
        for j, ((a2, b2), n2) in enumerate(rows[:i]):
            together = a1 <= b2 and a2 <= b1
            if together and offsets[i] < offsets[j] + n2 and offsets[j] < offsets[i] + n1:
                found.append((j, i))
    return found


@settings(max_examples=300, deadline=None)
@given(buffers)
def test_live_buffers_do_not_overlap(rows: list[tuple[tuple[int, int], int]]) -> None:
    offsets, arena = best_placement([span for span, _ in rows], [size for _, size in rows])
    assert not overlaps(rows, offsets)
    assert all(o % ALIGNMENT == 0 and o + size <= arena for o, (_, size) in zip(offsets, rows, strict=True))
    assert live_bytes(rows) <= arena <= sum(size for _, size in rows)


def test_a_chain_needs_two_buffers() -> None:
    rows = [((i, i + 1), 4096) for i in range(8)]
    offsets, arena = best_placement([s for s, _ in rows], [n for _, n in rows])
    assert arena == 8192
    assert set(offsets) == {0, 4096}


def test_lifetimes_of_a_program() -> None:
    def function(a: torch.Tensor) -> torch.Tensor:
        return torch.softmax(a, 1) @ torch.softmax(a, 2)

    s = scheduled(function, torch.randn(4, 16, 16))
    plan = s.memory
    assert plan == plan_memory(s.program.nodes, reuse=True)
    for t in plan.lifetimes:
        uses = [i for i, n in enumerate(s.program.nodes) if t.buffer in (*n.reads(), *n.writes())]
        assert (t.first, t.last) == (uses[0], uses[-1])
    assert {t.buffer for t in plan.lifetimes} == {b for n in s.program.nodes for b in n.writes() if b.kind == "temp"}
    assert plan.slot(plan.lifetimes[-1].buffer) == len(plan.lifetimes) - 1


class Residuals(torch.nn.Module):
    """h: its product's result is added to it; k: it is also what is multiplied; the last result is an output."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, two, three, four, five, six = self.layers
        h = one(x).relu()
        k = three(two(h).relu()) + h
        m = four(k) + k
        return six(five(m).relu()) + m


@pytest.mark.parametrize("last_reads", [False, True])
def test_a_value_that_is_read_behind_the_store_is_kept(last_reads: bool) -> None:
    """Two results of one node: what is stored first lies over the addend only if the second does without it."""
    w = Writer.new()
    x, y = w.input("x", 32), w.output("y", 32)
    (i,) = loops(i=32)
    h, first, second = temp("h", 32), temp("first", 32), temp("second", 32)
    w.map(h, of(i), call("relu", load(x, of(i))), i)
    added = call("add", load(x, of(i)), load(h, of(i)))
    other = call("exp", load(h if last_reads else x, of(i)))
    w.nodes.append(Map((i,), (Store(first, of(i), added), Store(second, of(i), other)), Origin(("aten.add",))))
    w.map(y, of(i), call("add", load(first, of(i)), load(second, of(i))), i)
    over = plan_memory(w.program().nodes, reuse=True).over
    assert over == {second if last_reads else first: h}


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_result_lies_over_the_value_that_it_is_added_to(dynamic: bool) -> None:
    s = scheduled(Residuals().eval(), torch.randn(4, 32), dynamic=dynamic)
    h, _, k = (n.stores[0].buffer for n in s.program.nodes[:3])
    assert list(s.memory.over.items()) == [(k, h)]
    assert s.memory.slot(k) == s.memory.slot(h)
    (lifetime,) = (t for t in s.memory.lifetimes if t.buffer is h)
    assert (lifetime.first, lifetime.last) == (0, 3)
    assert s.memory.over.items() == plan_memory(s.program.nodes, reuse=True).over.items()
    assert not plan_memory(s.program.nodes).over


def test_dynamic_sizes_are_placed_at_run_time() -> None:
    s = scheduled(lambda a: torch.softmax(a, 1) @ torch.softmax(a, 2), torch.randn(4, 16, 16), dynamic=True)
    assert s.memory.offsets is None
    assert s.memory.lifetimes


def chain(dynamic: bool = False) -> Schedule:
    return scheduled(lambda a: torch.softmax(a, 1) @ torch.softmax(a, 2), torch.randn(4, 16, 16), dynamic=dynamic)


def shortened(plan: MemoryPlan) -> MemoryPlan:
    """The first buffer is forgotten before it is read for the last time."""
    first, *rest = plan.lifetimes
    return replace(plan, lifetimes=(Lifetime(first.buffer, first.first, first.last - 1), *rest))


WRONG: dict[str, tuple[bool, Callable[[MemoryPlan], MemoryPlan], str]] = {
    "all in one place": (False, lambda p: replace(p, offsets=tuple(0 for _ in p.lifetimes)), "lie over each other"),
    "forgotten early": (False, shortened, "is needed in kernels 0..2, and has memory in 0..1"),
    "forgotten early, of a dynamic size": (True, shortened, "is needed in kernels 0..2, and has memory in 0..1"),
    "a small arena": (False, lambda p: replace(p, arena=p.arena - 1), "of an arena of"),
    "no place": (False, lambda p: MemoryPlan((), (), 0, 0), "has no place in memory"),
    "over what the node still reads": (
        False,
        lambda p: replace(p, over={p.lifetimes[1].buffer: p.lifetimes[0].buffer}),
        "lie in one place, and both are needed",
    ),
}


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_plans(fault: str) -> None:
    dynamic, change, message = WRONG[fault]
    s = chain(dynamic)
    with pytest.raises(BrokenLaw, match=message):
        verify_memory(s.program, change(s.memory))


def test_what_a_loop_needs_from_outside_stays() -> None:
    """A value from before the loop is read in every turn; one of the body is needed in its own turn alone."""

    def function(a: torch.Tensor) -> torch.Tensor:
        w = torch.softmax(a, 0)
        start = torch.zeros((), dtype=torch.int64)
        return torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, torch.softmax(x, 0) @ w), (start, a))[1]

    s = scheduled(function, torch.randn(8, 8))
    (loop,) = s.program.regions
    assert isinstance(loop, Loop)
    held = occupied_kernels(s.program)
    whole = (1 << loop.last) - (1 << loop.first)
    outside = [b for n in s.program.nodes[: loop.first] for b in n.writes() if held[b.root] & whole]
    assert len(outside) >= 3, "w and what the loop carries"
    assert all(held[b.root] & whole == whole for b in outside)
    own = {b for n in s.program.nodes[loop.middle : loop.last] for b in n.writes() if b.kind == "temp"}
    assert own
    assert all(held[b] & whole != whole for b in own)
    (w,) = (t for t in s.memory.lifetimes if t.buffer in outside and t.buffer.kind == "temp")
    times = tuple(replace(t, last=loop.last - 2) if t is w else t for t in s.memory.lifetimes)
    with pytest.raises(BrokenLaw, match=f"{w.buffer.name} is needed in kernels"):
        verify_memory(s.program, replace(s.memory, lifetimes=times))


@pytest.fixture(scope="module")
def runtime_planner(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The runtime's planner behind a C function."""
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    folder = tmp_path_factory.mktemp("planner")
    (folder / "plan.cpp").write_text(
        '#include "planner.h"\n'
        'extern "C" int plan(const mycc_buffer *b, const int64_t *sizes, int n, int kernels, int64_t *offsets,\n'
        "                    int64_t *arena, int64_t *live) {\n"
        "  return mycc::runtime::plan_memory(b, sizes, n, kernels, offsets, arena, live);\n"
        "}\n"
    )
    source = ROOT / "runtime" / "src" / "call"
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", f"-I{source}", f"-I{ROOT / 'runtime' / 'include'}"]
    library = folder / "plan.so"
    command = ["g++", *flags, str(folder / "plan.cpp"), str(source / "planner.cpp"), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return ctypes.CDLL(str(library))


@settings(max_examples=200, deadline=None)
@given(rows=buffers.filter(bool))
def test_the_runtime_plans_no_worse(runtime_planner: ctypes.CDLL, rows: list[tuple[tuple[int, int], int]]) -> None:
    n = len(rows)
    lifetimes = (ctypes.c_int32 * (2 * n))(*(x for span, _ in rows for x in span))
    sizes, offsets = (ctypes.c_int64 * n)(*(size for _, size in rows)), (ctypes.c_int64 * n)()
    arena, live = ctypes.c_int64(), ctypes.c_int64()
    done = runtime_planner.plan(lifetimes, sizes, n, KERNELS, offsets, ctypes.byref(arena), ctypes.byref(live))
    assert done
    assert not overlaps(rows, list(offsets))
    assert live.value == live_bytes(rows)
    assert live.value <= arena.value <= best_placement([s for s, _ in rows], [size for _, size in rows])[1]

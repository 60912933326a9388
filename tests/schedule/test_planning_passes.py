"""Each planning pass by itself: on a small kernel it makes its own field, and leaves the others as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest
import torch
import torch.nn.functional as F
from mycc.compiler.ir.plans.kernel import Kernel
from mycc.compiler.ir.plans.loop import Form, LoopPlan, Prefetch, ReductionKind
from mycc.compiler.ir.program import AnyNode
from mycc.compiler.schedule.passes import Context
from mycc.compiler.schedule.planning import CPU_PLANNING, PlanningPass
from mycc.compiler.schedule.remarks import Remarks

from ..helpers.programs import scheduled

Function = Callable[..., torch.Tensor]
CONTEXT = Context(Remarks())


def steps(node: AnyNode) -> dict[str, tuple[PlanningPass, LoopPlan, LoopPlan]]:
    """The passes of a kernel of loops by name: the row, the plan before it and after it."""
    kernel, found = Kernel(node, LoopPlan()), {}
    for row in CPU_PLANNING:
        if row.plan not in (None, LoopPlan):
            continue
        before = kernel.plan
        kernel = row.run(kernel, CONTEXT)
        assert isinstance(before, LoopPlan)
        assert isinstance(kernel.plan, LoopPlan)
        found[row.name] = (row, before, kernel.plan)
    return found


def only(function: Function, *inputs: torch.Tensor) -> AnyNode:
    (node,) = scheduled(function, *inputs).program.nodes
    return node


LARGE = torch.zeros(1).expand(4100, 1030)  # its results are stored non-temporally, their rows no whole lines
LONG = torch.zeros(1).expand(900, 5001)  # likewise, of rows that are not gathered
#: pass -> a kernel for which it decides something, and what it decides
CASES: dict[str, tuple[Function, tuple[torch.Tensor, ...], Callable[[LoopPlan], bool]]] = {
    "transpose-rows": (
        lambda a: a.sum(-1), (torch.randn(4096, 10),),
        lambda p: p.transposed is not None and p.transposed.rows == 16,
    ),
    "sliding-window": (
        lambda a: F.max_pool2d(a, 3, 1), (torch.randn(2, 4, 40, 64),),
        lambda p: p.windows is not None and p.windows.taps == 3,
    ),
    "interleave": (
        lambda a: torch.stack((a, a + 1), -1), (torch.randn(640),), lambda p: p.interleaved is not None,
    ),
    "form": (lambda a: a.t() + 1, (torch.randn(64, 48),), lambda p: p.form is Form.TILES),
    "vector-axis": (lambda a: a.sum(-1), (torch.randn(8, 640),), lambda p: p.vector[0] is not None),
    "reductions": (lambda a: a.sum(-1), (torch.randn(8, 640),), lambda p: p.reduction == (ReductionKind.HORIZONTAL,)),
    "tiles": (
        lambda a: a.t() + 1, (torch.randn(64, 48),), lambda p: p.tile is not None and p.tile.depth == 16,
    ),
    "store-policy": (lambda a: a + 1, (LARGE,), lambda p: len(p.nontemporal) == 1),
    "window-walks": (
        lambda a: F.max_pool2d(a, 3, 1), (torch.randn(2, 4, 40, 64),),
        lambda p: p.window_walk is not None and p.window_walk.size > 0,
    ),
    "parallel-loops": (lambda a: a.sum(-1), (torch.randn(8, 640),), lambda p: len(p.parallel) == 1),
    "write-combining": (
        lambda a, b: a + b.view(-1, 1), (torch.zeros(1).expand(80000, 58), torch.randn(80000)),
        lambda p: [r.length for r in p.combined] == [58],
    ),
    "row-prefetch": (
        lambda t, i: t[i], (torch.randn(5000, 64), torch.randint(0, 5000, (300,))),
        lambda p: p.row_prefetch is not None and p.row_prefetch.distance == 16,
    ),
    "alignment-peel": (
        lambda a, b: a + b.view(-1, 1), (LONG, torch.randn(900)), lambda p: p.peel == (True,),
    ),
    "prefetch": (
        lambda a: torch.exp(a), (torch.zeros(1 << 23),),
        lambda p: isinstance(p.prefetch[0], tuple) and [type(x) for x in p.prefetch[0]] == [Prefetch],
    ),
    "vertical-reductions": (
        lambda a: a.amax(1), (torch.randn(8, 3, 80),),
        lambda p: p.vertical[0] is not None and p.vertical[0].unroll == (3,),
    ),
    "horizontal-reductions": (
        lambda a: a.sum(-1), (torch.randn(8, 4096),),
        lambda p: p.horizontal[0] is not None and p.horizontal[0].piece == 1024,
    ),
    "column-walks": (
        lambda a: a.sum(0), (torch.randn(4096, 64),), lambda p: p.walk[-1] is not None and p.walk[-1].rows > 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_pass_makes_its_field(name: str) -> None:
    function, inputs, decided = CASES[name]
    found = steps(scheduled(function, *inputs).program.nodes[0])
    row, before, after = found[name]
    assert decided(after), getattr(after, row.field)
    assert getattr(before, row.field) == getattr(LoopPlan(), row.field)


@pytest.mark.parametrize("name", CASES)
def test_no_pass_changes_another_field(name: str) -> None:
    function, inputs, _ = CASES[name]
    for row, before, after in steps(scheduled(function, *inputs).program.nodes[0]).values():
        changed = {f.name for f in fields(LoopPlan) if getattr(before, f.name) != getattr(after, f.name)}
        assert changed <= {row.field}, row.name

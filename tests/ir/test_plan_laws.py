"""The laws of plans: what breaks one is refused, and says which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.index import ZERO, Var, as_index
from mycc.compiler.ir.plans.kernel import Kernel
from mycc.compiler.ir.plans.laws import verify_plan
from mycc.compiler.ir.plans.loop import CombinedResult, LoopPlan, PipelineBlocks, Prefetch, RowPrefetch
from mycc.compiler.ir.verify import BrokenLaw
from torch.nn import functional as F

from ..helpers.programs import scheduled

OTHER = Buffer("other", "f32", as_index(64), "temp")
FREE = Var("free", as_index(64))
Change = Callable[[LoopPlan], LoopPlan]


@cache
def kernel_of(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> Kernel:
    kernel = scheduled(function, *inputs).kernels[0]
    assert isinstance(kernel.plan, LoopPlan)
    return kernel


A = torch.randn(37, 64)
FLAT = torch.randn(8, 3, 80)
MAPS = torch.randn(2, 4, 40, 64)
SUM = lambda a: a + 1  # noqa: E731
TALL = lambda a: a.amax(1)  # noqa: E731
POOL = lambda a: F.max_pool2d(a, 3, 1)  # noqa: E731


def unrolled(plan: LoopPlan) -> LoopPlan:
    (vertical,) = plan.vertical
    assert vertical is not None
    return replace(plan, vertical=(replace(vertical, unroll=(2,)),))


def padded(plan: LoopPlan) -> LoopPlan:
    assert plan.windows is not None
    return replace(plan, windows=replace(plan.windows, pad=3))


BROKEN: dict[str, tuple[Change, Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "which is no loop of the stage": (lambda p: replace(p, vector=(FREE,)), SUM, (A,)),
    "is no loop over the results": (lambda p: replace(p, parallel=(FREE,)), SUM, (A,)),
    "shared out twice": (lambda p: replace(p, parallel=p.parallel * 2), TALL, (MAPS,)),
    "is interleaved, and": (lambda p: replace(p, interleaved=FREE), SUM, (A,)),
    "2 iterations of": (unrolled, TALL, (FLAT,)),
    "padding 3": (padded, POOL, (MAPS,)),
    "come together": (lambda p: replace(p, windows=None), POOL, (MAPS,)),
    "0 rows together": (lambda p: replace(p, pipeline=PipelineBlocks(1, 0)), SUM, (A,)),
    "other is fetched": (lambda p: replace(p, prefetch=((Prefetch(OTHER, ZERO, 1),),)), SUM, (A,)),
    "is no prefetch": (lambda p: replace(p, prefetch=((Prefetch(OTHER, ZERO, 7),),)), SUM, (A,)),
    "rows are fetched 0 rows ahead": (lambda p: replace(p, row_prefetch=RowPrefetch(0, ())), SUM, (A,)),
    "the kernel does not write it": (lambda p: replace(p, nontemporal=(OTHER,)), SUM, (A,)),
    "are not non-temporal": (lambda p: replace(p, combined=(CombinedResult(OTHER, 64),)), SUM, (A,)),
}


@pytest.mark.parametrize("problem", BROKEN)
def test_a_plan_that_breaks_a_law_is_refused(problem: str) -> None:
    change, function, inputs = BROKEN[problem]
    kernel = kernel_of(function, *inputs)
    verify_plan(kernel)
    assert isinstance(kernel.plan, LoopPlan)
    with pytest.raises(BrokenLaw, match=f"the plan of the kernel that writes out0: .*{problem}"):
        verify_plan(replace(kernel, plan=change(kernel.plan)))


def test_a_kernel_does_not_read_what_it_streams_out() -> None:
    kernel = kernel_of(lambda a: a.add_(1).sum(-1), A)
    (buffer,) = kernel.node.writes()
    assert buffer.root in kernel.node.reads()
    assert isinstance(kernel.plan, LoopPlan)
    with pytest.raises(BrokenLaw, match="the kernel reads it"):
        verify_plan(replace(kernel, plan=replace(kernel.plan, nontemporal=(buffer,))))

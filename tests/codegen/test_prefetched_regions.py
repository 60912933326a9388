"""Regions of neighbouring blocks of columns, which are fetched while those before them are computed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from mycc.compiler.codegen.cpu.pipeline_views import pipelined_columns_view
from mycc.compiler.codegen.cpu.scope import Scope
from mycc.compiler.codegen.cpu.views.pipelined_kernels import PipelinedColumnsKernel
from mycc.compiler.ir.nodes import Nest, Reduce
from mycc.compiler.ir.plans.loop import LoopPlan
from mycc.compiler.machine.cpu_loops import FETCHES
from mycc.compiler.schedule.loops.pipeline_blocks import blocks_of, region_blocks

from ..helpers.programs import scheduled


def nest_of(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> Nest:
    (nest,) = scheduled(function, *inputs).program.nodes
    assert isinstance(nest, Nest)
    assert nest.pipeline_stages
    return nest


def region_of(nest: Nest) -> int:
    reduction = next(s for s in nest.stages if isinstance(s, Reduce))
    return region_blocks(nest, reduction.rdims[0], reduction.dims[-1])


def view_of(nest: Nest) -> PipelinedColumnsKernel:
    scope = Scope(frozenset(nest.writes()), "")
    for buffer in nest.locals:
        scope.locals[buffer] = buffer.name
    return pipelined_columns_view(nest, LoopPlan(pipeline=blocks_of(nest)), (), scope)


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        ((64, 256, 256), 4),  # 256 rows of 128 bytes are 32 KB
        ((64, 64, 3136), 14),  # a divisor of 98 blocks
        ((8, 1024, 1024), 1),
        ((2, 21, 4096), 8),  # so many that 32 regions are left
        ((32, 16, 32), 1),  # there is no other block beside it
    ],
)
def test_region_is_as_long_as_the_cache_and_the_threads_allow(shape: tuple[int, ...], blocks: int) -> None:
    nest = nest_of(lambda a: a.softmax(1), torch.randn(*shape))
    assert region_of(nest) == blocks
    assert blocks * 32 * shape[1] * 4 <= FETCHES.region_bytes


def test_rows_of_the_next_region_are_prefetched_of_every_operand() -> None:
    x = torch.randn(8, 64, 512)
    view = view_of(nest_of(lambda a, b: (a + b).softmax(1), x, x))
    assert view.blocks == 4
    first, *others = view.pipeline_stages
    assert sorted(n.source.split(" + ")[0] for n in first.next.operands) == ["x0", "x1"]
    assert {(n.step, n.columns, n.size) for n in first.next.operands} == {("512", 4 * 32, 4)}
    assert not any(p.next.operands for p in others)  # what they read is kept


def test_what_a_later_stage_reads_is_prefetched_by_it() -> None:
    x = torch.randn(8, 64, 512)
    view = view_of(nest_of(lambda a, b: a.softmax(1) * b, x, x))
    assert [len(p.next.operands) for p in view.pipeline_stages] == [1, 0, 1]

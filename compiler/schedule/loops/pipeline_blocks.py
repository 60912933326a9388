"""Regions of neighbouring column blocks: a region is prefetched while the previous one is computed.

k: rows of memory, b: blocks of 32 columns, 4 of them a region

    x[0, :]  | b0 b1 b2 b3 | b4 b5 b6 b7 | ..       for b in b0 .. b3, for k: compute upon x[k, b]
    x[1, :]  | b0 b1 b2 b3 | b4 b5 b6 b7 | ..         and prefetch more of x[0, b4 .. b7], then of x[1, b4 .. b7], ..

A block is narrow, so that its results stay in the first-level cache. Alone it would read two lines of every row of
memory. A region is as wide as the second-level cache allows.
"""

from __future__ import annotations

from ...ir.dtypes import DTYPES
from ...ir.expr import Load
from ...ir.index import ONE, Indirect, Var, product
from ...ir.lanes import depends, lane_stride
from ...ir.nodes import Nest, Reduce
from ...ir.plans.loop import PipelineBlocks
from ...machine.cpu_loops import FETCHES, TASKS


def blocks_of(node: Nest) -> PipelineBlocks:
    """Regions of pipelined columns, and rows that come and go together."""
    first = next(s for s in node.stages if isinstance(s, Reduce))
    row, column = first.rdims[0], first.dims[-1]
    return PipelineBlocks(region_blocks(node, row, column), 2 if _collide(node, row) else 1)


def _collide(node: Nest, row: Var) -> bool:
    """Whether rows lie multiples of 512 bytes apart: their lines fall into few sets of the caches, and into few banks
    of memory. Two lines of each in turn come and go in half as many visits."""
    accesses = [(ld.buffer, ld.index) for e in node.expressions() for ld in e.loads]
    accesses += [(s.buffer, s.index) for stage in node.stages for s in stage.stores]
    steps = [(index.coefficient(row), DTYPES[b.dtype].size) for b, index in accesses if b not in node.locals]
    return any(
        step is not None and step.constant and step.constant * size % FETCHES.collide_bytes == 0 for step, size in steps
    )


def region_blocks(node: Nest, row: Var, column: Var) -> int:
    """How many blocks are a region: a divisor of those that lie side by side."""
    whole = [s for s in node.stages if isinstance(s, Reduce) or row in s.dims]
    streams = [ld for s in whole for e in s.expressions() for ld in e.loads if is_stream(ld, row, column)]
    width, depth = column.extent.constant, row.extent.constant
    if not node.dims or not width or not depth or not streams:
        return 1
    beside = node.dims[-1]
    side_by_side = all(ld.index.coefficient(beside) == column.extent for ld in streams)
    total, blocks = product(v.extent for v in node.dims).constant, beside.extent.constant
    if not side_by_side or blocks is None:
        return 1
    bytes_ = width * depth * max(DTYPES[ld.buffer.dtype].size for ld in streams)
    most = min(FETCHES.region_bytes // bytes_, blocks if total is None else total // TASKS.regions)
    return next((n for n in range(most, 1, -1) if blocks % n == 0), 1)


def is_stream(load: Load, row: Var, column: Var) -> bool:
    """Whether a load walks along memory that nobody else reads: by whole rows of a block."""
    index = load.index
    return (
        load.buffer.kind != "local"
        and lane_stride(index, column) == ONE
        and depends(index, row)
        and index.coefficient(row) is not None
        and not any(isinstance(a, Indirect) for a in index.atoms())
    )

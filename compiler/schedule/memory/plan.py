"""The memory plan: when each arena buffer lives, and where it lies when all sizes are fixed.

Greedy placement, largest first or in order of first use, whichever needs less (Pisarchyk and Lee, "Efficient Memory
Management for Deep Neural Net Inference", 2020). The runtime does the same for dynamic sizes
(runtime/src/call/planner.cpp).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.index import Index
from ...ir.program import AnyNode, Branches, Define, Loop
from ...machine.cpu import LINE
from ..regions import span_in_loops
from .reuse import results_over_operands

#: bytes that buffers in the arena, and weights, are aligned to
ALIGNMENT = LINE


@dataclass(frozen=True)
class Lifetime:
    """An arena buffer is alive from kernel `first` to kernel `last`, both included."""

    buffer: Buffer
    first: int
    last: int

    @property
    def bytes(self) -> Index:
        """Size in bytes before rounding up to the alignment."""
        return self.buffer.size * DTYPES[self.buffer.dtype].size


@dataclass(frozen=True)
class MemoryPlan:
    """Lifetimes in a fixed order; offsets and sizes in bytes when every size is fixed, else None.

    over: buffers without a lifetime of their own, and that in whose memory each lies from its first kernel on.
    """

    lifetimes: tuple[Lifetime, ...]
    offsets: tuple[int, ...] | None
    arena: int
    live: int  # the largest sum of live bytes at one kernel; 0 when sizes are dynamic
    over: Mapping[Buffer, Buffer] = field(default_factory=dict)

    def slot(self, buffer: Buffer) -> int:
        """The lifetime that a buffer's memory belongs to."""
        buffer = self.over.get(buffer, buffer)
        return next(i for i, t in enumerate(self.lifetimes) if t.buffer is buffer)


def plan_memory(
    nodes: Sequence[AnyNode],
    defines: Sequence[Define] = (),
    regions: Sequence[Branches | Loop] = (),
    reuse: bool = False,
) -> MemoryPlan:
    """Lifetimes of all temporaries of a program, and their places when the sizes are numbers.

    A buffer that the host reads a size from lives until the last kernel in front of that. reuse: a result may lie over
    an operand that nobody needs again.
    """
    over: dict[Buffer, Buffer] = {}
    if reuse and not regions:
        for result, operand in results_over_operands(nodes, [d.buffer for d in defines]).items():
            over[result] = over.get(operand, operand)
    spans: dict[Buffer, tuple[int, int]] = {}
    for i, node in enumerate(nodes):
        for buffer in (*node.writes(), *node.reads()):
            if buffer.kind in ("temp", "carry"):
                root = over.get(buffer, buffer.root)
                first = spans.get(root, (i, i))[0]
                spans[root] = (first, i)
    for define in defines:
        read = over.get(define.buffer, define.buffer)
        if read in spans:
            first, last = spans[read]
            spans[read] = (first, max(last, define.after - 1))
    spans = {b: span_in_loops(first, last, b, regions) for b, (first, last) in spans.items()}
    lifetimes = tuple(Lifetime(b, first, last) for b, (first, last) in spans.items())
    sizes = [t.bytes.constant for t in lifetimes]
    if any(s is None for s in sizes):
        return MemoryPlan(lifetimes, None, 0, 0, over)
    rounded = [-(-(s or 0) // ALIGNMENT) * ALIGNMENT for s in sizes]
    spans_only = [(t.first, t.last) for t in lifetimes]
    offsets, arena = best_placement(spans_only, rounded)
    live = max(
        (sum(s for s, (a, b) in zip(rounded, spans_only, strict=True) if a <= i <= b) for i in range(len(nodes))),
        default=0,
    )
    return MemoryPlan(lifetimes, tuple(offsets), arena, live, over)


def best_placement(spans: Sequence[tuple[int, int]], sizes: Sequence[int]) -> tuple[list[int], int]:
    """Offsets and arena size; the better of the two orders."""
    by_size = sorted(range(len(sizes)), key=lambda i: (-sizes[i], i))
    by_time = sorted(range(len(sizes)), key=lambda i: (spans[i][0], -sizes[i], i))
    return min((place(spans, sizes, order) for order in (by_size, by_time)), key=lambda r: r[1])


def place(spans: Sequence[tuple[int, int]], sizes: Sequence[int], order: Sequence[int]) -> tuple[list[int], int]:
    """Puts each buffer, in `order`, into the tightest gap between those that live at the same time."""
    offsets = [0] * len(sizes)
    placed: list[int] = []
    for i in order:
        busy = sorted((offsets[j], offsets[j] + sizes[j]) for j in placed if _overlap(spans[i], spans[j]))
        offsets[i] = _gap(busy, sizes[i])
        placed.append(i)
    return offsets, max((o + s for o, s in zip(offsets, sizes, strict=True)), default=0)


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _gap(busy: Sequence[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap that holds `size` bytes; behind the last block when none does."""
    best, best_waste, end = -1, 0, 0
    for start, stop in busy:
        waste = start - end - size
        if waste >= 0 and (best < 0 or waste < best_waste):
            best, best_waste = end, waste
        end = max(end, stop)
    return best if best >= 0 else end

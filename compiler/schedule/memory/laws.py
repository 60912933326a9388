"""The law of the arena: what a buffer holds stays until it is read for the last time.

The laws follow the values through branches and loops by themselves, whatever lifetimes the plan says. Run in tests
behind every schedule, beside the laws of the loop IR.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...ir.buffers import Buffer
from ...ir.program import AnyNode, Define, Program
from ...ir.verify import BrokenLaw
from ..steps import ChooseStep, RepeatStep, Step, steps_of
from .plan import ALIGNMENT, MemoryPlan
from .reuse import same_elements

__all__ = ["occupied_kernels", "verify_memory"]

_ARENA = ("temp", "carry")


def verify_memory(program: Program, plan: MemoryPlan) -> None:
    """Raises BrokenLaw if values of a scheduled program that are still needed lie over each other."""
    for problem in _problems(program, plan):
        raise BrokenLaw(f"{problem} (in the memory plan)")


def _problems(program: Program, plan: MemoryPlan) -> Iterator[str]:
    held = occupied_kernels(program)
    slots: dict[Buffer, list[Buffer]] = {t.buffer: [] for t in plan.lifetimes}
    for buffer in held:
        slots.get(plan.over.get(buffer, buffer), []).append(buffer)
    yield from _times(plan, held)
    for slot, buffers in slots.items():
        yield from _one_after_the_other(program.nodes, slot, buffers, held)
    if plan.offsets is not None:
        yield from _places(plan, {slot: _union(held[b] for b in buffers) for slot, buffers in slots.items()})


def _times(plan: MemoryPlan, held: Mapping[Buffer, int]) -> Iterator[str]:
    """Every buffer has a place for as long as it is needed: places of dynamic sizes follow from the times alone."""
    times = {t.buffer: t for t in plan.lifetimes}
    for buffer, kernels in held.items():
        time = times.get(plan.over.get(buffer, buffer))
        if time is None:
            yield f"{buffer.name} has no place in memory"
        elif kernels & ~_span(time.first, time.last):
            first, last = (kernels & -kernels).bit_length() - 1, kernels.bit_length() - 1
            yield f"{buffer.name} is needed in kernels {first}..{last}, and has memory in {time.first}..{time.last}"


def _one_after_the_other(
    nodes: Sequence[AnyNode], slot: Buffer, buffers: Sequence[Buffer], held: Mapping[Buffer, int]
) -> Iterator[str]:
    """Buffers in one place: the next is stored, element by element, by the last node that reads the one before."""
    for i, b in enumerate(buffers):
        if (b.dtype, b.size) != (slot.dtype, slot.size):
            yield f"{b.name} lies over {slot.name}, which has another size"
        for a in buffers[:i]:
            common = held[a] & held[b]
            if common and not (_is_one(common) and _handed_over(nodes[common.bit_length() - 1], a, b)):
                yield f"{a.name} and {b.name} lie in one place, and both are needed in kernel {common.bit_length() - 1}"


def _handed_over(node: AnyNode, a: Buffer, b: Buffer) -> bool:
    """Whether the node reads of one only the elements that it stores over it as the other."""
    return any(
        store.buffer is new and old not in node.writes() and same_elements(node, store, old)
        for old, new in ((a, b), (b, a))
        for store in node.stores
    )


def _places(plan: MemoryPlan, held: Mapping[Buffer, int]) -> Iterator[str]:
    """Places of fixed sizes: aligned, in the arena, and apart while both are needed."""
    rows: list[tuple[int, int, Buffer]] = []
    for time, offset in zip(plan.lifetimes, plan.offsets or (), strict=True):
        size = time.bytes.constant
        if size is None:
            yield f"{time.buffer.name} has a fixed place and no fixed size"
            continue
        if offset < 0 or offset % ALIGNMENT or offset + size > plan.arena:
            yield f"{time.buffer.name} lies at {offset}..{offset + size} of an arena of {plan.arena} bytes"
        rows.append((offset, offset + size, time.buffer))
    for i, (first, end, a) in enumerate(rows):
        for other_first, other_end, b in rows[:i]:
            if first < other_end and other_first < end and held[a] & held[b]:
                kernel = (held[a] & held[b]).bit_length() - 1
                yield f"{b.name} and {a.name} lie over each other, and both are needed in kernel {kernel}"


def _span(first: int, last: int) -> int:
    return (1 << (last + 1)) - (1 << first)


def _union(masks: Iterator[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


def _is_one(mask: int) -> bool:
    return mask & (mask - 1) == 0


# liveness ------------------------------------------------------------------------------------------------------------
@dataclass
class _Point:
    """A kernel, or a read of the host; sets of buffers are bit masks. before: points that may come just before."""

    kernel: int | None
    reads: int = 0
    writes: int = 0
    before: list[int] = field(default_factory=list)


def occupied_kernels(program: Program) -> dict[Buffer, int]:
    """The kernels in which each buffer of the arena is written, read, or holds what is read later, as a bit mask."""
    flow = _Flow(program)
    first_writes = _first_writes(flow)
    live, reached = _live(flow, first_writes), _reached(flow)
    held = [0] * len(flow.numbers)
    after: list[int] = [0] * len(flow.points)
    for i, point in enumerate(flow.points):
        for j in point.before:
            after[j] |= live[i]
    for i, point in enumerate(flow.points):
        if point.kernel is None:
            continue
        coming = _union(reached[j] for j in point.before) & live[i]
        mask = point.reads | point.writes | coming | (after[i] & reached[i])
        while mask:
            held[mask.bit_length() - 1] |= 1 << point.kernel
            mask &= ~(1 << (mask.bit_length() - 1))
    return {buffer: held[number] for buffer, number in flow.numbers.items()}


class _Flow:
    """The points of a program in order, and which follow which; a loop's last points come before its first one."""

    def __init__(self, program: Program) -> None:
        self.program, self.numbers, self.points = program, dict[Buffer, int](), list[_Point]()
        self._row(steps_of(len(program.nodes), program.defines, program.regions), [])

    @property
    def carried(self) -> int:
        """What is written part by part, turn after turn: no write says that nothing older is needed."""
        return _union(1 << number for buffer, number in self.numbers.items() if buffer.kind == "carry")

    def _mask(self, buffers: Sequence[Buffer]) -> int:
        roots = [b.root for b in buffers if b.kind in _ARENA]
        return _union(1 << self.numbers.setdefault(b, len(self.numbers)) for b in roots)

    def _point(self, before: list[int], kernel: int | None = None, reads: int = 0, writes: int = 0) -> list[int]:
        self.points.append(_Point(kernel, reads, writes, list(before)))
        return [len(self.points) - 1]

    def _row(self, steps: Sequence[Step], ends: list[int]) -> list[int]:
        """Adds steps behind the points `ends`; the points that the next step stands behind."""
        for step in steps:
            match step:
                case int():
                    node = self.program.nodes[step]
                    ends = self._point(ends, step, self._mask(node.reads()), self._mask(node.writes()))
                case Define():
                    ends = self._point(ends, reads=self._mask([step.buffer]))
                case ChooseStep():
                    flag = self._point(ends, reads=self._mask([step.flag]))
                    ends = [*self._row(step.then, flag), *self._row(step.other, flag)]
                case RepeatStep():
                    first = self._point(ends)
                    test = self._row(step.test, first)
                    if step.flag is not None:
                        test = self._point(test, reads=self._mask([step.flag]))
                    self.points[first[0]].before += self._row(step.body, test)
                    ends = test
        return ends


def _first_writes(flow: _Flow) -> list[int]:
    """What each point writes that no point before it has written, a loop's turn counting for itself: what it held
    before is of no matter."""
    found, written = [], list[int]()
    for i, point in enumerate(flow.points):
        before = _union(written[j] for j in point.before if j < i)
        found.append(point.writes & ~before & ~flow.carried)
        written.append(before | point.writes)
    return found


def _live(flow: _Flow, first_writes: Sequence[int]) -> list[int]:
    """What is read at a point or behind it, of what was there before it."""
    live = [0] * len(flow.points)
    changed = True
    while changed:
        changed = False
        after = [0] * len(flow.points)
        for i in reversed(range(len(flow.points))):
            point = flow.points[i]
            for j in point.before:
                if j >= i:
                    after[j] |= live[i]
        for i in reversed(range(len(flow.points))):
            point = flow.points[i]
            now = point.reads | (after[i] & ~first_writes[i])
            for j in point.before:
                if j < i:
                    after[j] |= now
            changed |= now != live[i]
            live[i] = now
    return live


def _reached(flow: _Flow) -> list[int]:
    """What has been written at a point or before it."""
    reached = [0] * len(flow.points)
    changed = True
    while changed:
        changed = False
        for i, point in enumerate(flow.points):
            now = point.writes | _union(reached[j] for j in point.before)
            changed |= now != reached[i]
            reached[i] = now
    return reached

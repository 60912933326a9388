"""Software prefetch of rows: rows that a kernel does not read in the order of memory are prefetched some rows early.

    for i  for j  y[i*J + j] = t[ids[i]*J + j]      ->      for i  prefetch t[ids[i + 2]*J ..],  for j  y[i*J + j] = ...

The hardware prefetcher finds streams. Rows that are gathered, shifted cyclically or strided are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...ir.bounds import largest
from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Expr, Load
from ...ir.index import (
    ZERO,
    Atom,
    Binary,
    Index,
    Indirect,
    Var,
    as_index,
    of,
)
from ...ir.lanes import depends, lane_stride, wrapping_index
from ...ir.nodes import Map
from ...ir.plans.loop import RowOperand, RowPrefetch
from ...machine.cpu import IN_FLIGHT, PAGE
from ...machine.cpu_loops import FETCHES
from .interleaved_streams import in_memory
from .lane_bounds import inside
from .write_combining import Stage


@dataclass(frozen=True)
class RowRead:
    """What a load reads in one row of the kernel: `length` elements from `start` on; apart: backwards, or looked up.

    turns: rows that read no more than the first of them does, each of which fetches its share.
    """

    load: Load
    start: Index
    length: int
    apart: bool
    turns: int = 1

    @property
    def element(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.load.buffer.dtype].size

    @property
    def bytes(self) -> int:
        return self.length * self.element


def jumping_reads(node: Map, vector: Var, rows: Sequence[Var]) -> tuple[RowRead, ...]:
    """The rows of memory that lie in another order than the kernel's; those that the kernel reads one at a time."""
    if not rows:
        return ()
    loads = dict.fromkeys(ld for s in node.stores for ld in s.value.loads)
    inner = [v for v in node.dims if v is not vector and v not in rows]
    reads = (r for r in _reads(loads, vector, rows) if not any(depends(r.start, v) for v in inner))
    found = (r for r in reads if r.apart or _jumps(r.start) or _strided(r, rows[-1]))
    return _in_order(tuple(found), rows)


def row_reads(stages: Iterable[Stage], rows: Sequence[Var]) -> tuple[RowRead, ...]:
    """All rows of memory, for a kernel that gathers its results: it reads nothing while it writes them."""
    reads = (
        _dense(load, stage.loops(rows), rows)
        for stage in stages
        for e in stage.node.expressions()
        for load in _loads(e, stage.lanes)
    )
    found = {(r.load.buffer, r.start): r for r in reads if r is not None}
    return _in_order(tuple(found.values()), rows)


def _in_order(reads: tuple[RowRead, ...], rows: Sequence[Var]) -> tuple[RowRead, ...]:
    """The reads; as one that follows the order of memory, a block ahead, where the rows of a block read all of it in
    another order.

    for i  for j  for k  y[..] = x[i*B + k*R + j*4 .. 4], x[i*B + k*R + j*4 + R/2 .. 4]
                                                  ->      fetch x[(i + 1)*B + (j*K + k)*8 .. 8]
    """
    length = sum(r.length for r in reads)
    mixed = any(r.apart or r.turns > 1 or r.load.buffer is not reads[0].load.buffer for r in reads)
    if not reads or mixed or reads[0].start.coefficient(rows[-1]) == as_index(length):
        return reads
    flat, inside = ZERO, 1
    for at in range(len(rows) - 1, 0, -1):
        flat, inside = flat + of(rows[at]) * inside, inside * (rows[at].extent.constant or 0)
        block = inside * length
        if not 0 < block * reads[0].element <= FETCHES.block_bytes:
            return reads
        if inside > 1 and all(_lies_within(read, rows[:at], rows[at - 1], block) for read in reads):
            outer = Index({m: c for m, c in reads[0].start.terms.items() if set(rows[:at]).intersection(m)})
            return (replace(reads[0], start=outer + flat * length, length=length, turns=inside),)
    return reads


def _lies_within(read: RowRead, outer: Sequence[Var], last: Var, block: int) -> bool:
    """Whether a read stays in blocks of so many elements, one for each turn of the `last` of the outer loops."""
    start = read.start
    if start.coefficient(last) != as_index(block) or any(start.coefficient(v) is None for v in outer):
        return False
    for v in outer:
        start = start.without(v)
    top = None if any(isinstance(a, Indirect) for a in start.atoms()) or not start.nonnegative() else largest(start)
    return top is not None and top + read.length <= block


def reads_on(stage: Stage, rows: Sequence[Var], within: Var) -> bool:
    """Whether all that is read from memory in a row is read in its order, turn by turn of a loop `within` the row."""
    loads = [ld for e in stage.node.expressions() for ld in _loads(e, stage.lanes) if in_memory(ld)]
    forward = all((c := ld.index.coefficient(within)) is not None and (c.constant or 0) > 0 for ld in loads)
    return forward and all(_dense(ld, stage.loops(rows), rows) is not None for ld in loads)


def _dense(load: Load, loops: Sequence[Var], rows: Sequence[Var]) -> RowRead | None:
    """What a load reads in a row of the kernel, where it leaves out little of what lies between."""
    start, last, count = load.index, 0, 1
    for v in loops:
        step, extent = start.coefficient(v), v.extent.constant
        if step is None or step.constant is None or extent is None:
            return None
        start = start.without(v) + min(step.constant * (extent - 1), 0)
        last += abs(step.constant) * (extent - 1)
        count *= extent if step.constant else 1
    if not in_memory(load) or last + 1 > FETCHES.densest * count or not any(depends(start, v) for v in rows):
        return None
    read = RowRead(load, start, last + 1, False)
    return read if read.bytes <= FETCHES.row_bytes else None


def _loads(e: Expr, vector: Var | None) -> Iterator[Load]:
    """What is read, where lanes that lie outside of a dimension read nothing."""
    if isinstance(e, Load):
        yield e
    elif isinstance(e, Call):
        choice = inside(e, vector) if e.op == "where" and vector is not None else None
        for x in e.args if choice is None else (choice.value,):
            yield from _loads(x, vector)


def _reads(loads: Iterable[Load], vector: Var, rows: Sequence[Var]) -> Iterator[RowRead]:
    reads = (_read(load, vector, rows) for load in loads)
    return (read for read in reads if read is not None and read.bytes <= FETCHES.row_bytes)


def _read(load: Load, vector: Var, rows: Sequence[Var]) -> RowRead | None:
    if not in_memory(load):
        return None
    within: list[Atom] = [a for m in load.index.terms for a in m if isinstance(a, Indirect) and vector in _vars(a)]
    turn = wrapping_index(load.index, vector)
    if turn is not None:
        within.append(turn)
    start = load.index.substitute(dict.fromkeys([*within, vector], ZERO))
    if len(within) == 1 and load.index.terms.get((within[0],), 1) != 1:
        return _share(load, start, within[0], vector, rows[-1])
    length = _length(load.index, within, vector)
    if length is None or not any(depends(start, v) for v in rows):
        return None
    backwards = length < 0
    if backwards:
        start, length = start + (length + 1), -length
    few = length > (vector.extent.constant or length)
    far = few or length * DTYPES[load.buffer.dtype].size >= FETCHES.looked_up_bytes
    return RowRead(load, start, length, backwards or (far and any(isinstance(a, Indirect) for a in within)))


def _share(load: Load, start: Index, within: Atom, vector: Var, row: Var) -> RowRead | None:
    """A row of the plane that is looked up in across its rows: every lane may read any of them."""
    extent, step, length = row.extent.constant, load.index.terms[(within,)], vector.extent.constant
    alike = isinstance(within, Indirect) and within.extent == row.extent and load.index.terms.get((vector,)) == 1
    if not alike or depends(start, row) or extent is None or length is None:
        return None
    if extent * step * DTYPES[load.buffer.dtype].size > FETCHES.plane_bytes:
        return None
    return RowRead(load, start + of(row) * step, length, True, extent)


def _vars(atom: Indirect) -> set[Var]:
    return atom.value.vars()  # type: ignore[attr-defined]


def _length(index: Index, within: Sequence[Atom], vector: Var) -> int | None:
    if len(within) > 1:
        return None
    if within:
        atom = within[0]
        extent = atom.extent if isinstance(atom, Indirect) else atom.b if isinstance(atom, Binary) else ZERO
        dense = extent.constant is not None and vector.extent.constant is not None
        return extent.constant if dense and extent.constant <= FETCHES.densest * vector.extent.constant else None  # type: ignore[operator]
    step = lane_stride(index, vector)
    return (vector.extent * step).constant or None if step is not None else None


def _strided(read: RowRead, row: Var) -> bool:
    """Short rows that lie apart, or rows taken backwards."""
    step = read.start.coefficient(row)
    if step is None or not step.terms or step == read.length:
        return False
    # the hardware finds longer rows that lie apart
    return read.bytes < PAGE or (step.constant or 0) < 0


def _jumps(start: Index) -> bool:
    return any(isinstance(a, (Indirect, Binary)) for a in start.atoms())


def row_prefetch(reads: Sequence[RowRead], stage: int = 0) -> RowPrefetch | None:
    """The prefetch of reads, so many rows before their turn that enough bytes are on their way; None of no reads."""
    if not reads:
        return None
    distance = max(2, min(FETCHES.rows, IN_FLIGHT // max(r.bytes for r in reads)), *(r.turns for r in reads))
    rows = (
        RowOperand(
            r.load.buffer,
            r.start,
            r.length,
            r.bytes <= FETCHES.short_bytes,
            min(r.bytes, FETCHES.at_once_bytes) // r.element,
        )
        for r in reads
    )
    return RowPrefetch(distance, tuple(rows), stage)


def short_reads(stages: Iterable[Stage], rows: Sequence[Var]) -> tuple[RowRead, ...]:
    """The rows that are fetched at once, of a kernel that gathers its results."""
    return tuple(read for read in row_reads(stages, rows) if read.bytes <= FETCHES.short_bytes)


def looked_up(stages: Sequence[Stage], rows: Sequence[Var]) -> RowPrefetch | None:
    """Rows that a first map looks up, fetched by a later one, of many turns, that reads nothing from memory."""
    first, *others = stages
    if not isinstance(first.node, Map) or first.lanes is None:
        return None
    reads = [
        r for r in jumping_reads(first.node, first.lanes, rows) if r.bytes > FETCHES.short_bytes and _jumps(r.start)
    ]
    for i, stage in enumerate(others, 1):
        turns = [v for v in stage.loops(rows) if v is not stage.lanes]
        idle = not any(in_memory(ld) for e in stage.node.expressions() for ld in e.loads)
        if not reads or not idle or not isinstance(stage.node, Map) or stage.lanes is None or len(turns) != 1:
            continue
        count = turns[0].extent.constant
        if count and all(r.length % count == 0 for r in reads):
            return row_prefetch(reads, i)
    return None

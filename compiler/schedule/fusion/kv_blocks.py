"""Paged keys and values: attention reads the blocks of the cache through the block table.

    t[b, g, n, d] = cache[<table[b, n // 16]>, g, n % 16, d]          checked[b, p] = <table[b, p]>
    y = attention(q, t, ..)                                   ->      y = attention(q, cache in blocks by checked, ..)

The cache is read in place instead of being copied first. One kernel checks the table for all layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...ir.buffers import Buffer, Operand
from ...ir.expr import Call, IndexValue, Load, cast, substitute
from ...ir.index import ONE, ZERO, Atom, Binary, Index, Indirect, Var, of
from ...ir.nodes import Map, Store
from ...ir.structured import Attention, Pages
from ..graph import NodeGraph, label, loads_of
from ..remarks import Remarks
from .concat_distribution import linear

BATCH, HEADS, KEYS, SIZE = range(4)  # the axes of keys and of values

#: table, where it begins, its strides, its rows, how many blocks there are and whether negative numbers count from the
#: last one -> what holds its tested values
_Tested = dict[tuple[Buffer, Index, tuple[Index, ...], tuple[Index, ...], Index, bool], Operand]


def read_through_tables(graph: NodeGraph, remarks: Remarks) -> None:
    """Has attention read keys and values in blocks from the memory that they are gathered from."""
    tested: _Tested = {}
    for node in [n for n in graph.nodes if isinstance(n, Attention)]:
        for side in ("k", "v"):
            node = _in_blocks(graph, remarks, node, side, tested)


def _in_blocks(graph: NodeGraph, remarks: Remarks, node: Attention, side: str, tested: _Tested) -> Attention:
    """The node that stands in the graph afterwards."""
    operand: Operand = getattr(node, side)
    gather = graph.producer(operand.buffer)
    if not isinstance(gather, Map) or len(gather.stores) != 1 or graph.readers(operand.buffer) != [node]:
        return node
    if operand.buffer.kind != "temp" or operand.buffer in node.writes() or loads_of(node, operand.buffer):
        return node
    if sum(o.buffer is operand.buffer for o in node.operands) != 1 or getattr(node, f"{side}_rest") is not None:
        return node
    size = node.head_size if side == "k" else node.dims[-1].extent
    found = _blocks(gather, operand, (node.dims[0].extent, node.kv_heads, node.keys, size))
    if found is None or graph.crosses((found.memory.buffer, found.table.buffer), gather, node):
        return node
    batch, count = node.dims[0].extent, (node.keys + found.rows - 1) // found.rows
    key = (found.table.buffer, found.table.offset, found.table.strides, (batch, count), found.blocks, found.wrap)
    if key in tested:
        graph.remove(gather)
    else:
        test, tested[key] = _test(graph, gather, found, batch, count)
        graph.replace(gather, test)
    remarks.fused(label(gather), label(node), "read in the blocks of the cache, where a table has them")
    changes: dict[str, Any] = {side: found.memory, f"{side}_pages": Pages(tested[key], found.rows, found.step)}
    changed = replace(node, **changes)
    graph.replace(node, changed)
    return changed


@dataclass(frozen=True)
class _Blocks:
    """What a gather reads: memory with the strides (0, head, row of a block), and a table with those of (text, block).

    rows: of a block; step: elements from block to block; blocks: how many there are; wrap: whether the table may count
    from the last one, by negative numbers.
    """

    memory: Operand
    table: Operand
    rows: int
    step: Index
    blocks: Index
    wrap: bool


def _blocks(gather: Map, operand: Operand, extents: tuple[Index, ...]) -> _Blocks | None:
    """None: the map is no gather of whole rows in blocks, in the order of the operand. extents: of its axes."""
    store = gather.stores[0]
    place, load = linear(store.index, gather.dims), store.value
    if place is None or place.offset != operand.offset or not isinstance(load, Load):
        return None
    if load.buffer.dtype != store.buffer.dtype:
        return None
    strides, index = _with_one_key(place.strides, load, (*operand.strides, ONE)[KEYS])
    loops = _loops(strides, operand, extents)
    if loops is None or KEYS not in loops or not _covered(loops, operand, extents):
        return None
    key = loops[KEYS]
    memory = _terms(index, key)
    if memory is None or len(memory.lookups) != 1 or memory.rows is None or memory.by_block != ZERO:
        return None
    ((lookup, step),) = memory.lookups.items()
    entry = _entry(lookup.value)
    table = None if entry is None else _terms(entry.index, key)
    if entry is None or table is None or table.lookups or table.by_row != ZERO or table.rows != memory.rows:
        return None
    if set(table.loops) - {loops.get(BATCH)} or set(memory.loops) - {loops.get(HEADS), loops.get(SIZE)}:
        return None
    if SIZE in loops and memory.loops.get(loops[SIZE]) != ONE:
        return None
    within = ZERO if extents[HEADS] == ONE else operand.strides[HEADS]  # heads beside each other in a row have no loop
    head = memory.loops.get(loops[HEADS], ZERO) if HEADS in loops else within
    text = table.loops.get(loops[BATCH], ZERO) if BATCH in loops else ZERO
    return _Blocks(
        Operand(load.buffer, memory.offset, (ZERO, head, memory.by_row)),
        Operand(entry.buffer, table.offset, (text, table.by_block)),
        memory.rows,
        step,
        lookup.extent,
        lookup.wrap,
    )


def _with_one_key(strides: dict[Var, Index], load: Load, step: Index) -> tuple[dict[Var, Index], Index]:
    """The strides of a store and the index of a load with one loop over the keys, where blocks and rows have one each.

    block, row -> key // rows, key % rows      where neighbouring blocks lie `rows` steps apart
    """
    row = next((v for v, stride in strides.items() if stride == step), None)
    entries = [_entry(a.value) for a in load.index.atoms() if isinstance(a, Indirect)]
    found = {v for entry in entries if entry is not None for v in entry.index.vars()}
    block = next((v for v in found if row is not None and strides.get(v) == step * row.extent), None)
    if row is None or block is None or row.extent.constant is None:
        return strides, load.index
    key = Var("key", block.extent * row.extent)
    rest = {v: stride for v, stride in strides.items() if v not in (block, row)}
    changed = substitute(load, {block: of(key) // row.extent, row: of(key) % row.extent})
    assert isinstance(changed, Load)
    return {**rest, key: step}, changed.index


def _entry(value: object) -> Load | None:
    """The element of a table that an integer is, or is converted from."""
    if isinstance(value, Call) and value.op == "cast" and value.dtype == "i64":
        (value,) = value.args
    return value if isinstance(value, Load) else None


def _loops(strides: dict[Var, Index], operand: Operand, extents: tuple[Index, ...]) -> dict[int, Var] | None:
    """The loop over each axis of the operand that has one. Axes of one element take what no other axis takes."""
    steps = (*operand.strides, ONE)
    loops: dict[int, Var] = {}
    for v, stride in strides.items():
        fitting = [axis for axis, step in enumerate(steps) if step == stride and axis not in loops]
        fitting = [axis for axis in fitting if extents[axis] != ONE] or fitting
        if not fitting:
            return None
        loops[fitting[-1] if stride == ONE else fitting[0]] = v
    return loops


def _covered(loops: dict[int, Var], operand: Operand, extents: tuple[Index, ...]) -> bool:
    """Whether the loops over the axes reach all that the operand reads: an axis without a loop has one element, or the
    same ones again, or it is that of heads which lie beside each other in a row."""
    steps = (*operand.strides, ONE)
    for axis, (extent, step) in enumerate(zip(extents, steps, strict=True)):
        ends = extent
        if axis == SIZE and HEADS not in loops:
            ends = (extents[HEADS] - 1) * operand.strides[HEADS] + extent
        if axis in loops and not (loops[axis].extent - ends).nonnegative():
            return False
        if axis not in loops and axis != HEADS and ends != ONE and step != ZERO:
            return False
    return True


@dataclass(frozen=True)
class _Terms:
    """An index as a sum: offset, loops, looked-up values with strides, and what goes by key // rows and key % rows."""

    offset: Index
    loops: dict[Var, Index]
    lookups: dict[Indirect, Index]
    by_block: Index
    by_row: Index
    rows: int | None


def _terms(index: Index, key: Var) -> _Terms | None:
    """None: it is not such a sum."""
    offset, by_block, by_row = ZERO, ZERO, ZERO
    loops: dict[Var, Index] = {}
    lookups: dict[Indirect, Index] = {}
    rows: set[int] = set()
    for monomial, factor in index.terms.items():
        moving = [a for a in monomial if isinstance(a, (Var, Indirect, Binary))]
        rest = Index({tuple(a for a in monomial if a not in moving): factor})
        if not moving:
            offset = offset + rest
            continue
        if len(moving) > 1:
            return None
        (atom,) = moving
        if isinstance(atom, Binary):
            number = _by_rows(atom, key)
            if number is None:
                return None
            rows.add(number)
            by_block, by_row = (by_block + rest, by_row) if atom.op == "//" else (by_block, by_row + rest)
        elif isinstance(atom, Indirect):
            lookups[atom] = rest
        elif atom == key:
            return None
        else:
            loops[atom] = rest
    return _Terms(offset, loops, lookups, by_block, by_row, rows.pop() if len(rows) == 1 else None)


def _by_rows(atom: Atom, key: Var) -> int | None:
    """The power of two that `key` is divided by."""
    if not isinstance(atom, Binary) or atom.op not in ("//", "%") or atom.a != of(key):
        return None
    number = atom.b.constant
    return number if number is not None and number > 1 and number & (number - 1) == 0 else None


def _test(graph: NodeGraph, gather: Map, found: _Blocks, batch: Index, count: Index) -> tuple[Map, Operand]:
    """A map that copies the part of a table that is used, testing it; and where it lies then."""
    buffer = Buffer(graph.free_name(f"{gather.stores[0].buffer.name}_blocks"), "i64", batch * count, "temp")
    text, block = Var("text", batch), Var("block", count)
    dims = tuple(v for v in (text, block) if v.extent != ONE)
    at = {v: of(v) if v in dims else ZERO for v in (text, block)}
    strides = found.table.strides
    source = Load(found.table.buffer, found.table.offset + at[text] * strides[0] + at[block] * strides[1])
    value = IndexValue(of(Indirect(cast(source, "i64"), found.blocks, found.wrap)))
    store = Store(buffer, at[text] * count + at[block], value)
    return Map(dims, (store,), gather.origin), Operand(buffer, ZERO, (count, ONE))

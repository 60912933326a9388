"""Interleaving: a map with a short innermost loop is vectorised along a longer one, and the short one is unrolled.

    for c  for e:2  y[2*c + e] = x[e*S + c]        ->        for c  y[2*c] = x[c], y[2*c + 1] = x[S + c]
    for c:2*n  y[c] = x[(c % 2)*S + c // 2]        ->        the same

Stores whose elements alternate in memory are interleaved in registers and stored in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...ir.index import (
    ONE,
    Binary,
    Index,
    Indirect,
    Var,
)
from ...ir.nodes import Map, Store
from ...ir.rewrite import unroll
from ...ir.rewrite.loops import split_evenly
from ...machine.cpu_loops import LANE_LOOPS
from .collapse import collapse

LEAST = 4  # lanes: fewer are not worth it


def interleave_stores(node: Map) -> tuple[Map, Var] | None:
    """The map with its short innermost loop unrolled, and the loop of its lanes; None where that does not help."""
    if node.dims and all(len(group) > 1 for group in groups(node.stores, node.dims[-1])):
        return node, node.dims[-1]
    for candidate in (node, *_split(node)):
        interleaved = _unrolled(candidate)
        if interleaved is not None:
            return interleaved
    return _interleaved_loads(node)


def _split(node: Map) -> Iterator[Map]:
    """The map with its last loop split where its places are divided by a small number."""
    if not node.dims:
        return
    last = node.dims[-1]
    for count in sorted({d for s in node.stores for d in _divisors(s, last)}):
        changed = split_evenly(node, last, count, (f"{last.name}_outer", f"{last.name}_inner"))
        if changed is not None:
            yield collapse(changed)


def _divisors(store: Store, last: Var) -> Iterator[int]:
    for load in store.value.loads:
        for atom in load.index.atoms():
            if isinstance(atom, Binary) and atom.op in ("//", "%") and atom.a.coefficient(last) == ONE:
                count = atom.b.constant
                if count is not None and 2 <= count <= LANE_LOOPS.interleaved:
                    yield count


def _unrolled(node: Map) -> tuple[Map, Var] | None:
    if len(node.dims) < 2:
        return None
    short = node.dims[-1]
    count = short.extent.constant
    if (
        count is None
        or not 2 <= count <= LANE_LOOPS.interleaved
        or any(s.index.coefficient(short) != ONE for s in node.stores)
    ):
        return None
    lanes = [v for v in node.dims[:-1] if all(s.index.coefficient(v) == short.extent for s in node.stores)]
    if len(lanes) != 1 or not _worth(node, lanes[0], short):
        return None
    return unroll(node, short), lanes[0]


def _interleaved_loads(node: Map) -> tuple[Map, Var] | None:
    """A short loop unrolled whose elements are neighbours of a load that steps over them from lane to lane:

    for e:2  for c  y[e*S + c] = x[2*c + e]        ->        for c  y[c] = x[2*c], y[S + c] = x[2*c + 1]
    """
    if len(node.dims) < 2 or any(s.index.coefficient(node.dims[-1]) != ONE for s in node.stores):
        return None
    lane = node.dims[-1]
    for load in dict.fromkeys(ld for s in node.stores for ld in s.value.loads):
        for short in node.dims[:-1]:
            count = short.extent.constant
            together = count is not None and 2 <= count <= LANE_LOOPS.interleaved // len(node.stores)
            if together and load.index.coefficient(lane) == short.extent and load.index.coefficient(short) == ONE:
                return unroll(node, short), lane
    return None


def _worth(node: Map, lane: Var, short: Var) -> bool:
    """Some load is of neighbours along the lanes, and none of neighbours along the short loop."""
    if (lane.extent.constant or LEAST) < LEAST:
        return False
    loads = list(dict.fromkeys(ld for s in node.stores for ld in s.value.loads))
    places = [ld.index for ld in loads if not any(isinstance(a, Indirect) for a in ld.index.atoms())]
    steps = [index.coefficient(lane) for index in places]
    return len(places) == len(loads) and ONE in steps and all(_even(step) for step in steps)


def _even(step: Index | None) -> bool:
    return step is not None and (not step.terms or step == ONE)


def groups(stores: Sequence[Store], vector: Var | None) -> list[tuple[Store, ...]]:
    """The stores, those together that lie in turn: E of one buffer, E elements from lane to lane, side by side."""
    found: list[tuple[Store, ...]] = []
    rest = list(stores)
    while rest:
        count = _step(rest[0].index, vector)
        group = tuple(rest[:count])
        if not _is_interleaved(group, count):
            group = (rest[0],)
        found.append(group)
        rest = rest[len(group) :]
    return found


def _step(index: Index, vector: Var | None) -> int:
    """Elements from lane to lane, where few enough vectors can lie in turn; else 1."""
    step = index.coefficient(vector) if vector is not None else None
    number = step.constant if step is not None else None
    return number if number is not None and 2 <= number <= LANE_LOOPS.interleaved else 1


def _is_interleaved(group: Sequence[Store], count: int) -> bool:
    first = group[0]
    return len(group) == count and all(
        s.buffer is first.buffer and s.index == first.index + e for e, s in enumerate(group)
    )

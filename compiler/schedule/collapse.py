"""Adjacent loops that every access walks through like one become one.

for i:12  for j:64  y[i*64 + j] = f(x[i*64 + j])      ->      for ij:768  y[ij] = f(x[ij])
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

from ..ir.expr import IndexValue, Load, substitute
from ..ir.index import ZERO, Atom, Index, Var, of
from ..ir.lanes import direct
from ..ir.nodes import Map, Reduce, Scan
from .graph import map_expressions

N = TypeVar("N", bound=Map | Reduce | Scan)


def collapse(node: N, keep: int = 0, spare: int = 0) -> N:
    """Merges loops of a map, a reduction or a scan; the first `keep` (the rows of a nest) and the last `spare` of the
    kept loops stay as they are."""
    node = _collapse_field(node, "dims", keep, spare)
    if isinstance(node, Reduce) and not any(f.op.startswith("arg") for f in node.folds):
        node = _collapse_field(node, "rdims", 0, 0)
    return node


def _collapse_field(node: N, name: str, keep: int, spare: int) -> N:
    for position in range(len(getattr(node, name)) - 2 - spare, keep - 1, -1):
        loops: tuple[Var, ...] = getattr(node, name)
        outer, inner = loops[position], loops[position + 1]
        if all(like_one(index, outer, inner) for index in indices_of(node)):
            merged = Var(inner.name, outer.extent * inner.extent)
            node = _substituted(node, {outer: ZERO, inner: of(merged)})
            merged_loops: dict[str, Any] = {name: (*loops[:position], merged, *loops[position + 2 :])}
            node = replace(node, **merged_loops)
    return node


def _substituted(node: N, values: dict[Atom, Index]) -> N:
    return map_expressions(node, lambda e: substitute(e, values), lambda i: i.substitute(values))


def like_one(index: Index, outer: Var, inner: Var) -> bool:
    """Whether the index walks through both loops as through one."""
    a, b = index.coefficient(outer), index.coefficient(inner)
    return a is not None and b is not None and a == b * inner.extent


def indices_of(node: Map | Reduce | Scan) -> Iterator[Index]:
    """The places of all accesses, and the indices that are values."""
    for store in node.stores:
        yield store.index
    for expression in node.expressions():
        for e in expression.walk():
            if isinstance(e, (Load, IndexValue)):
                yield direct(e.index)  # an index inside an indirect one is a load of its own

"""The expressions of a node, and its loop variables in terms of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from ..expr import Expr, substitute
from ..index import Atom, Index, Var, of
from ..nodes import Map, Nest, Node, Reduce, Scan, Scatter, Store
from ..structured import Attention, AttentionGradient, Gemm

N = TypeVar("N", bound=Node)
L = TypeVar("L", bound=Map | Reduce | Scan)


def map_expressions(node: N, function: Callable[[Expr], Expr], index: Callable[[Index], Index] | None = None) -> N:
    """The node with every scalar expression (and, when asked, every store index) rewritten."""
    place = index or (lambda i: i)
    stores = tuple(Store(s.buffer, place(s.index), function(s.value)) for s in node.stores)
    changed: Node = replace(node, stores=stores)
    if isinstance(changed, Reduce):
        changed = replace(changed, reductions=tuple(replace(f, value=function(f.value)) for f in changed.reductions))
    elif isinstance(changed, Gemm) and changed.prologue is not None:
        changed = replace(changed, prologue=replace(changed.prologue, value=function(changed.prologue.value)))
    elif isinstance(changed, (Attention, AttentionGradient)):
        score, dropout = (None if e is None else function(e) for e in (changed.score, changed.dropout))
        changed = replace(changed, score=score, dropout=dropout)
    elif isinstance(changed, Scan):
        carries = (replace(c, start=function(c.start), next=function(c.next)) for c in changed.carries)
        changed = replace(changed, carries=tuple(carries))
    elif isinstance(changed, Scatter):
        updates = (Store(u.buffer, _rewritten(u.index, function, place), function(u.value)) for u in changed.updates)
        changed = replace(changed, updates=tuple(updates))
    elif isinstance(changed, Nest):
        changed = replace(changed, stages=tuple(map_expressions(s, function, index) for s in changed.stages))
    return changed  # type: ignore[return-value]


def _rewritten(index: Index, function: Callable[[Expr], Expr], place: Callable[[Index], Index]) -> Index:
    """The index with the expressions that it reads from memory rewritten."""

    def visit(value: object) -> object:
        assert isinstance(value, Expr)
        return function(value)

    return place(index.substitute({}, visit))


def substituted(node: N, values: Mapping[Atom, Index]) -> N:
    """The node with every access at other loop variables; its loops stay as they are, for the caller to replace.

        y[i] = f(x[i]), {i: 4 * a + b}      ->      y[4*a + b] = f(x[4*a + b])

    Law: the loops that the caller gives it afterwards have to lead the values through the same places, each once.
    """
    if not values:
        return node
    return map_expressions(node, lambda e: substitute(e, values), lambda i: i.substitute(values))


def with_loops(node: L, values: Mapping[Atom, Index], dims: tuple[Var, ...]) -> L:
    """The node with other kept loops, and its old loops at these values of them. Law: that of `substituted`."""
    return replace(substituted(node, values), dims=dims)


def rename(node: L, names: Mapping[Var, Var]) -> L:
    """The node with loops under other names, of the same extents.

    for i  y[i] = f(x[i]), {i: r}      ->      for r  y[r] = f(x[r])
    """
    changed = substituted(node, {old: of(new) for old, new in names.items()})
    changed = replace(changed, dims=tuple(names.get(v, v) for v in node.dims))
    if isinstance(changed, Reduce):
        changed = replace(changed, rdims=tuple(names.get(v, v) for v in changed.rdims))
    return changed

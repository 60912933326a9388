"""Common subexpression elimination of reductions: a norm that is spelled out computes its mean twice.

m = sum over j of x[i, j] / J                       m = sum over j of x[i, j] / J
n = sum over k of x[i, k] / J              ->
y[i, j] = (x[i, j] - m[i]) * g(n[i])                y[i, j] = (x[i, j] - m[i]) * g(m[i])
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...ir.buffers import Buffer
from ...ir.expr import Acc, Expr, Load, rewrite, substitute
from ...ir.index import Atom, Index, Var, of
from ...ir.nodes import Map, Reduce
from ...ir.rewrite import map_expressions
from ..graph import NodeGraph


def eliminate_equal_reductions(graph: NodeGraph) -> None:
    """Lets the readers of a reduction read an equal one before it, and takes it out."""
    while (pair := _equal(graph)) is not None:
        first, second = pair
        old = second.stores[0].buffer
        renamed = partial(_with_buffer, old=old, new=first.stores[0].buffer)
        for reader in list(graph.readers(old)):
            assert isinstance(reader, Map | Reduce)
            graph.replace(reader, map_expressions(reader, renamed))
        graph.remove(second)
        graph.replace(first, replace(first, origin=first.origin + second.origin))


def _equal(graph: NodeGraph) -> tuple[Reduce, Reduce] | None:
    """Two reductions with the same results, where nothing in between writes over what they read."""
    found: dict[object, Reduce] = {}
    for node in graph.nodes:
        if isinstance(node, Reduce) and _is_plain(graph, node):
            first = found.setdefault(_form(node), node)
            if first is not node and not graph.crosses(first.reads(), first, node):
                return first, node
    return None


def _is_plain(graph: NodeGraph, node: Reduce) -> bool:
    """One result of its own, which is read element by element."""
    buffer = node.stores[0].buffer
    alone = len(node.stores) == 1 and buffer.kind == "temp" and graph.producer(buffer) is node
    return alone and all(isinstance(r, Map | Reduce) for r in graph.readers(buffer))


def _form(node: Reduce) -> object:
    """What a reduction computes, whatever its loops, accumulators and result are called."""
    loops = (*node.dims, *node.rdims)
    names: dict[Atom, Index] = {v: of(Var(f"i{n}", v.extent)) for n, v in enumerate(loops)}
    accs: dict[Expr, Expr] = {f.acc: Acc(f"acc{n}", f.acc.dtype) for n, f in enumerate(node.reductions)}
    (store,) = node.stores
    reductions = tuple((f.op, f.acc.dtype, substitute(f.value, names)) for f in node.reductions)
    value = rewrite(store.value, accs.get, names)
    return (
        len(node.dims),
        tuple(v.extent for v in loops),
        reductions,
        value,
        store.index.substitute(names),
        store.buffer.size,
    )


def _with_buffer(e: Expr, old: Buffer, new: Buffer) -> Expr:
    """The expression with loads of another buffer."""
    return rewrite(e, lambda ld: Load(new, ld.index) if isinstance(ld, Load) and ld.buffer is old else None)

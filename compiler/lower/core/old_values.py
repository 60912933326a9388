"""A node that reads old values at other iterations than it writes over them reads them all first.

                                             for u:U   t[u] = y[<k[u]>] + 1
for u:U   y[<k[u]>] = y[<k[u]>] + 1    ->    for u:U   y[<k[u]>] = t[u]

Places that data name may be named twice, and parts of one memory may overlap: then a later iteration of one loop would
read what an earlier one has written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.expr import Call, Expr, Load
from ...ir.in_place import over_own_elements, overwrites
from ...ir.index import Index, Var, product, row_major
from ...ir.nodes import Map, Scatter, Store
from ...ir.program import AnyNode

__all__ = ["old_values_first"]

#: a name like this one that no buffer has
Fresh = Callable[[str], str]


def old_values_first(node: AnyNode, fresh: Fresh) -> Iterator[AnyNode]:
    """The node, or several with its results, none of which reads what it has written."""
    if over_own_elements(node):
        yield node
    elif isinstance(node, Scatter):
        yield from _updates_apart(node, fresh)
    else:
        yield from _stores_apart(node, fresh)


def _stores_apart(node: AnyNode, fresh: Fresh) -> Iterator[AnyNode]:
    """The node with temporaries for what it writes over, and what puts them in their places."""
    own, put = [], []
    for store in node.stores:
        if store.buffer.of is None:
            own.append(store)
            continue
        found, place = _temporary(store.value.dtype, node.dims, fresh(store.buffer.root.name))
        own.append(Store(found, place, store.value))
        put.append(Store(store.buffer, store.index, Load(found, place)))
    yield replace(node, stores=tuple(own))
    for store in put:
        yield Map(node.dims, (store,), node.origin)


def _updates_apart(node: Scatter, fresh: Fresh) -> Iterator[AnyNode]:
    """The scatter, and before it maps of what its updates and their places make of old values."""
    roots, running = overwrites(node), set(node.writes())
    made: dict[Expr, Load] = {}
    before: list[Map] = []

    def is_old(e: Expr) -> bool:
        return any(load.buffer.root in roots and load.buffer not in running for load in e.loads)

    def apart(e: Expr) -> Expr:
        if not is_old(e):
            return e
        if isinstance(e, Load) and e.buffer in running:
            return Load(e.buffer, e.index.substitute({}, place))
        if isinstance(e, Call) and any(load.buffer in running for load in e.loads):
            return Call(e.op, tuple(apart(a) for a in e.args), e.dtype)
        if e not in made:
            found, at = _temporary(e.dtype, node.udims, fresh(next(iter(roots)).name))
            before.append(Map(node.udims, (Store(found, at, e),), node.origin))
            made[e] = Load(found, at)
        return made[e]

    def place(e: object) -> object:
        assert isinstance(e, Expr)
        return apart(e)

    updates = tuple(Store(u.buffer, u.index.substitute({}, place), apart(u.value)) for u in node.updates)
    yield from before
    yield replace(node, updates=updates)


def _temporary(dtype: str, loops: Sequence[Var], name: str) -> tuple[Buffer, Index]:
    """Memory for an element of each iteration, and where that lies."""
    return Buffer(name, dtype, product(v.extent for v in loops), "temp"), row_major(loops)

"""Memory that is written in place: several buffers, one root, each a later value than the one before (Buffer.of)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .buffers import IN_PLACE, Buffer
from .expr import Call, Expr, Load
from .index import Index, Indirect, Var
from .injective import injective
from .nodes import Map, Nest, Scan, Scatter, Store
from .program import AnyNode, Repeat
from .routines import Custom

__all__ = ["addend", "over_own_elements", "overwrites", "shared_roots"]


def shared_roots(buffers: Iterable[Buffer]) -> frozenset[Buffer]:
    """The pieces of memory behind buffers, as far as they are written in place."""
    return frozenset(b.root for b in buffers if b.kind in IN_PLACE)


def overwrites(node: AnyNode) -> frozenset[Buffer]:
    """The pieces of memory that a node gives later values."""
    return frozenset(b.root for b in node.writes() if b.of is not None)


def addend(s: Store) -> Expr | None:
    """What a store adds to the element that it finds, in the element's own type; None for one that does more, or that
    rounds the sum."""
    value = s.value
    while isinstance(value, Call) and value.op == "cast" and value.dtype == s.buffer.dtype == value.args[0].dtype:
        (value,) = value.args
    if not isinstance(value, Call) or value.op != "add" or value.dtype != s.buffer.dtype:
        return None
    found = Load(s.buffer, s.index)
    first, second = value.args
    new = second if first == found else first if second == found else None
    return None if new is None or found in new.loads else new


def over_own_elements(node: AnyNode) -> bool:
    """Whether all that a node reads of the values that it writes over are the elements that it writes itself, each at
    its own iteration, and no element is written at two iterations. Then no iteration reads what another one has
    written, and their order does not matter."""
    roots = overwrites(node)
    if not roots or isinstance(node, (Repeat, Custom)):  # a body is looked at by itself; a user's kernel is trusted
        return True
    stores = list(_stores(node))
    made = set(node.writes()) if isinstance(node, Scatter) else set()  # updates run in order, and may read theirs
    loads = {ld for ld in _loads(node) if ld.buffer.root in roots and ld.buffer not in made}
    if {b for b in node.reads() if b.root in roots} - {ld.buffer for ld in loads}:
        return False  # operands
    if isinstance(node, Map):
        return all(_before_written(s, stores[i:], roots, node.dims) for i, s in enumerate(stores))
    places = {(s.buffer.root, s.index) for s in stores if s.buffer.root in roots}
    if isinstance(node, Nest) or len({root for root, _ in places}) != len(places):
        return not loads
    return all(_own(load, places, _iterations(node)) for load in loads)


def _iterations(node: AnyNode) -> tuple[Var, ...]:
    """The loops at whose iterations a node stores over a value."""
    if isinstance(node, Scatter):
        return node.udims  # of a later value there are updates alone
    return (*node.dims, node.step) if isinstance(node, Scan) else node.dims


def _loads(node: AnyNode) -> Iterator[Load]:
    """All that a node reads in expressions, the places of its stores included."""
    for e in node.expressions():
        yield from e.loads
    for store in _stores(node):
        yield from _place_loads(store)


def _place_loads(store: Store) -> Iterator[Load]:
    """What says where the element lies."""
    for atom in store.index.atoms():
        if isinstance(atom, Indirect):
            yield from atom.value.loads  # type: ignore[attr-defined]


def _before_written(store: Store, later: Sequence[Store], roots: frozenset[Buffer], iterations: Sequence[Var]) -> bool:
    """Of several stores of an iteration, each may read what itself or a later one writes."""
    places = {(s.buffer.root, s.index) for s in later}
    loads = (*store.value.loads, *_place_loads(store))
    return all(_own(load, places, iterations) for load in loads if load.buffer.root in roots)


def _own(load: Load, places: set[tuple[Buffer, Index]], iterations: Sequence[Var]) -> bool:
    return (load.buffer.root, load.index) in places and injective(load.index, iterations)


def _stores(node: AnyNode) -> Iterator[Store]:
    yield from node.stores
    if isinstance(node, Scatter):
        yield from node.updates

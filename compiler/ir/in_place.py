"""Memory that is written in place: several buffers, one root, each a later value than the one before (Buffer.of)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .buffers import IN_PLACE, Buffer
from .expr import Load
from .index import Index
from .nodes import Map, Nest, Scatter, Store
from .program import AnyNode, Repeat
from .routines import Custom

__all__ = ["over_own_elements", "overwrites", "shared_roots"]


def shared_roots(buffers: Iterable[Buffer]) -> frozenset[Buffer]:
    """The pieces of memory behind buffers, as far as they are written in place."""
    return frozenset(b.root for b in buffers if b.kind in IN_PLACE)


def overwrites(node: AnyNode) -> frozenset[Buffer]:
    """The pieces of memory that a node gives later values."""
    return frozenset(b.root for b in node.writes() if b.of is not None)


def over_own_elements(node: AnyNode) -> bool:
    """Whether all that a node reads of the values that it writes over are the elements that it writes itself, each at
    its own turn: then the order of the elements does not matter."""
    roots = overwrites(node)
    if not roots or isinstance(node, (Repeat, Custom)):  # a body is looked at by itself; a user's kernel is trusted
        return True
    stores = list(_stores(node))
    loads = {ld for e in node.expressions() for ld in e.loads if ld.buffer.root in roots}
    if {b for b in node.reads() if b.root in roots} - {ld.buffer for ld in loads}:
        return False  # operands, and places that are read
    if isinstance(node, Map):
        return all(_before_written(s, stores[i:], roots) for i, s in enumerate(stores))
    places = {(s.buffer.root, s.index) for s in stores if s.buffer.root in roots}
    if isinstance(node, Nest) or len({root for root, _ in places}) != len(places):
        return not loads
    return all(_own(load, places) for load in loads)


def _before_written(store: Store, later: Sequence[Store], roots: frozenset[Buffer]) -> bool:
    """Of several stores of a turn, each may read what itself or a later one writes."""
    places = {(s.buffer.root, s.index) for s in later}
    return all(_own(load, places) for load in store.value.loads if load.buffer.root in roots)


def _own(load: Load, places: set[tuple[Buffer, Index]]) -> bool:
    return (load.buffer.root, load.index) in places


def _stores(node: AnyNode) -> Iterator[Store]:
    yield from node.stores
    if isinstance(node, Scatter):
        yield from node.updates

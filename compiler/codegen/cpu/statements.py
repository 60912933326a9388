"""Statements of loop bodies: a node's stores in front of the vector loop, for the main loop and the tail."""

from __future__ import annotations

from ...ir.index import Var
from ...ir.nodes import Node
from ...machine.cpu import WIDEST_LANES
from ...schedule.loops.interleave import groups
from .emit import Emitter
from .scope import Scope
from .views.loops import Lanes


def emit_stores(emitter: Emitter, *nodes: Node) -> None:
    stores = [s for node in nodes for s in node.stores]
    emitter.count_uses(s.value for s in stores)
    for group in groups(stores, emitter.vector):
        if len(group) > 1:
            emitter.store_interleaved_group(group)
        else:
            emitter.store(group[0])


def lanes_view(
    vector: Var, scope: Scope, main: Emitter, tail: Emitter, name: str | None = None, moved: str = "", peel: str = ""
) -> Lanes:
    """What two emitters made of the same stores, as the vector loop over `vector`; moved, peel: as in Lanes."""
    extent = vector.extent
    whole = not peel and extent.constant is not None and extent.constant % WIDEST_LANES == 0
    return Lanes(
        name or scope.loop(vector),
        main.index(extent),
        tuple(main.pre),
        tuple(main.body),
        tuple(tail.body),
        whole,
        moved,
        peel,
    )

"""Store policy: results far larger than the caches are written by non-temporal stores."""

from __future__ import annotations

from collections.abc import Collection

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.expr import IndexValue, Load
from ...ir.index import ONE, Var
from ...ir.lanes import ALIGNMENT, lane_stride
from ...ir.nodes import Map, Nest, Reduce, Scan, Store
from ...ir.plans.loop import Form, LoopPlan
from ...machine.cpu import LINE, NONTEMPORAL, NONTEMPORAL_BESIDE, READ_BESIDE
from ...machine.cpu_loops import FETCHES
from ..cost.estimates import is_long
from .interleave import groups

NARROW = 2  # bytes of elements of which a vector of lanes fills no register


def nontemporal_results(node: Map | Reduce | Nest | Scan, form: Form) -> tuple[Buffer, ...]:
    """The results of a kernel that are written by non-temporal stores, where their vectors are whole lines of
    memory."""
    if form is Form.SCAN:
        return ()
    if form is Form.TILES:
        return results_from(node, NONTEMPORAL_BESIDE)
    read = sum((buffer.size.constant or 0) * DTYPES[buffer.dtype].size for buffer in node.reads())
    beside = read >= READ_BESIDE and not isinstance(node, Scan)
    return results_from(node, NONTEMPORAL_BESIDE if beside else NONTEMPORAL)


def results_from(node: Map | Reduce | Nest | Scan, least: int) -> tuple[Buffer, ...]:
    """The results of at least so many bytes."""
    sizes = ((b, (b.size.constant or 0) * DTYPES[b.dtype].size) for b in dict.fromkeys(node.writes()))
    return tuple(b for b, size in sizes if size >= least)


def aligned_lines(node: Map | Reduce | Nest | Scan) -> bool:
    """Whether non-temporal vectors have to be whole lines: of several results that are long to compute, the parts of a
    line come far apart."""
    return isinstance(node, Map) and len(node.stores) > 1 and any(is_long(s.value) for s in node.stores)


def whole_lines(store: Store, lanes: Var, interleaved: int, nontemporal: Collection[Buffer]) -> bool:
    """Whether a store's vectors are written by non-temporal stores: of a large result, in whole lines.

    interleaved: elements of each lane that lie side by side.
    """
    if store.buffer not in nontemporal or (interleaved == 1 and lane_stride(store.index, lanes) != ONE):
        return False
    # a vector that is part of a line only is not stored non-temporally: its line would be written twice
    whole = max(ALIGNMENT, LINE // DTYPES[store.buffer.dtype].size)
    if any(c % whole for c in store.index.without(lanes).terms.values()):
        return False
    length = (lanes.extent * interleaved).constant
    return length is None or length % whole == 0 or length >= FETCHES.lines * whole


def only_moves(node: Map) -> bool:
    """Whether every element is stored as it was loaded."""
    return all(isinstance(s.value, Load) and s.value.dtype == s.buffer.dtype for s in node.stores)


def has_nontemporal_stores(node: Map, lanes: Var, plan: LoopPlan) -> bool:
    """Whether some of a map's vectors are written by non-temporal stores."""
    own = groups(node.stores, lanes)
    nontemporal = any(whole_lines(group[0], lanes, len(group), plan.nontemporal) for group in own)
    return nontemporal or is_peeled(node, lanes, plan)


def is_peeled(node: Map, lanes: Var, plan: LoopPlan) -> bool:
    """Whether the one store of a map is written by non-temporal stores from where its vectors are aligned: of rows that
    are long and begin anywhere. What it reads has to be found from any lane on."""
    if len(node.stores) != 1 or plan.aligned_lines or (_moves_memory(node) and _is_narrow(node)):
        return False
    (store,) = node.stores
    gathered = any(result.buffer == store.buffer for result in plan.combined)
    if store.buffer not in plan.nontemporal or gathered or whole_lines(store, lanes, 1, plan.nontemporal):
        return False
    length = lanes.extent.constant
    if length is None or length * DTYPES[store.buffer.dtype].size < FETCHES.lines * LINE:
        return False
    indices = [x.index for x in store.value.walk() if isinstance(x, Load | IndexValue)]
    return store.index.coefficient(lanes) == ONE and all(i.coefficient(lanes) is not None for i in indices)


def _moves_memory(node: Map) -> bool:
    return only_moves(node) and all(b.kind != "local" for b in (*node.reads(), *node.writes()))


def _is_narrow(node: Map) -> bool:
    """Whether a vector of lanes fills no register."""
    return all(DTYPES[s.buffer.dtype].size <= NARROW for s in node.stores)


def peels(node: Map | Reduce | Nest | Scan, plan: LoopPlan) -> tuple[bool, ...]:
    """Whether each stage peels a part of a vector."""
    stages = node.stages if isinstance(node, Nest) else (node,)
    pairs = zip(stages, plan.vector, strict=True) if plan.vector and plan.nontemporal else ()
    found = tuple(isinstance(s, Map) and lanes is not None and is_peeled(s, lanes, plan) for s, lanes in pairs)
    return found if any(found) else ()

"""The vector axis: which loop of a node is vectorised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, Load
from ...ir.index import ONE, Index, Indirect, Var, product
from ...ir.nodes import Map, Reduce
from ...machine.cpu_loops import COLUMN_LOOPS, LANE_LOOPS

#: reductions that keep a position: one lane at a time
SCALAR_REDUCTIONS = ("argmax", "argmin")
#: reductions of which those of pieces make no whole; nor are they taken to pieces by lanes or pipeline stages
WHOLE_REDUCTIONS = (*SCALAR_REDUCTIONS, "welford")
FEW_APART = 2  # elements from lane to lane: vectors are made of whole ones
#: elements along either of two loops that are taken in blocks: a shorter one is not worth a block
LEAST_CROSSED = 4


def keeps_indices(node: Reduce) -> bool:
    """Whether a reduction of the node keeps a position."""
    return any(f.op in SCALAR_REDUCTIONS for f in node.reductions)


def reduces_whole(node: Reduce) -> bool:
    """Whether a reduction of the node cannot be made of those of pieces."""
    return any(f.op in WHOLE_REDUCTIONS for f in node.reductions)


def reduces_columns(node: Reduce, vector: Var | None) -> bool:
    """Many rows of memory that lie across the lanes."""
    rows = product(v.extent for v in node.rdims).constant
    return vector in node.dims and bool(node.rdims) and (rows is None or rows >= COLUMN_LOOPS.in_registers)


def vector_loop(node: Map | Reduce) -> Var | None:
    """The loop whose neighbours lie side by side in most accesses; None when there is none worth it."""
    if isinstance(node, Reduce) and keeps_indices(node):
        return None
    candidates: list[Var] = []
    if node.dims:
        candidates.append(node.dims[-1])
    if isinstance(node, Reduce) and node.rdims:
        candidates.append(node.rdims[-1])
    scored = [(_score(node, v), v) for v in candidates if _store_allows(node, v)]
    if not scored:
        return None
    best = max(score for score, _ in scored)
    return next(v for score, v in reversed(scored) if score == best)


def arg_loop(node: Map | Reduce) -> Var | None:
    """The loop over the lanes of an argmax or argmin over one loop: that one, or the last kept one; None for others."""
    if not isinstance(node, Reduce) or vector_loop(node) is not None or len(node.rdims) != 1:
        return None
    if any(DTYPES[f.value.dtype].compute == "bool" for f in node.reductions):
        return None
    (reduced,) = node.rdims
    for var in (reduced, *node.dims[-1:]):
        places = _places(f.value for f in node.reductions)
        steps = [index.coefficient(var) for index in places]
        dense = all(step is not None and (not step.terms or step == ONE) for step in steps) and ONE in steps
        if dense and _store_allows(node, var) and (var.extent.constant or LANE_LOOPS.least) >= LANE_LOOPS.least:
            return var
    return None


def reduces_contiguous(node: Reduce) -> bool:
    """The lanes run along the reduced dimension: a row is reduced at a time."""
    return vector_loop(node) in node.rdims


def _store_allows(node: Map | Reduce, var: Var) -> bool:
    """A kept loop must store side by side."""
    if isinstance(node, Reduce) and var in node.rdims:
        return True
    return all(s.index.coefficient(var) == ONE for s in node.stores)


def _score(node: Map | Reduce, var: Var) -> int:
    total = 0
    for index in _accessed(node):
        stride = index.coefficient(var)
        if stride == ONE:
            total += 2
        elif stride == -ONE:
            total += 1
        elif stride is None or (stride.terms and abs(stride.constant or FEW_APART + 1) > FEW_APART):
            total -= 2
    if isinstance(node, Reduce) and var in node.rdims:
        total += 1
    extent = var.extent.constant
    if extent is not None and extent < 4:
        total -= 4
    return total


def _accessed(node: Map | Reduce) -> Sequence[Index]:
    """What the node reads; what a reduction reads once it has reduced a row, each place once."""
    if not isinstance(node, Reduce):
        return _places(node.expressions())
    finished = dict.fromkeys(ld for s in node.stores for ld in s.value.loads)
    return [*_places(f.value for f in node.reductions), *(ld.index for ld in finished)]


def _places(expressions: Iterable[Expr]) -> Sequence[Index]:
    return [ld.index for e in expressions for ld in e.loads]


def step_of(load: Load, loop: Var) -> int:
    """Elements from turn to turn; 0: that is no number."""
    step = load.index.coefficient(loop)
    return (step.constant or 0) if step is not None else 0


def cross_loop(node: Map, vector: Var) -> Var | None:
    """The loop along which most of the loads that step over memory from lane to lane are dense; None without such."""
    votes: Counter[Var] = Counter()
    for load in across(node, vector):
        votes.update(v for v in node.dims if v is not vector and load.index.coefficient(v) == ONE)
    if not votes or _short(vector):
        return None
    best = max(votes, key=lambda v: (votes[v], -node.dims.index(v)))
    return None if _short(best) else best


def across(node: Map, vector: Var) -> list[Load]:
    """The loads whose step from lane to lane is the same everywhere and neither 0 nor 1."""
    found = []
    for load in dict.fromkeys(ld for s in node.stores for ld in s.value.loads):
        step = load.index.coefficient(vector)
        plain = not any(isinstance(a, Indirect) for a in load.index.atoms())
        if plain and step is not None and step.terms and step != ONE:
            found.append(load)
    return found


def _short(v: Var) -> bool:
    return v.extent.constant is not None and v.extent.constant < LEAST_CROSSED

"""Online softmax over columns: blocks sum their exponentials relative to their own maximum (Milakov, Gimelshein 2018).

high[j] = max over i:I of x[i, j]                 h[p, j] = max over i:I/P of x[p, i, j]
s[j] = sum over i:I of exp(x[i, j] - high[j])  -> t[p, j] = sum over i:I/P of exp(x[p, i, j] - h[p, j])
                                                  high[j] = max over p of h[p, j]
                                                  s[j] = sum over p of t[p, j] exp(h[p, j] - high[j])

Memory is read once instead of twice, by the law `online_softmax` of ir/laws.py: a block stays in the cache until its
maximum is known. Where the maximum is infinite, the block sums exp(x), and its weight makes the result 0 or NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.buffers import Buffer
from ...ir.expr import (
    Acc,
    Call,
    Const,
    Expr,
    Load,
    substitute,
)
from ...ir.index import Atom, Index, Var, of
from ...ir.nodes import Reduce, Reduction, Store
from ..graph import NodeGraph
from ..loops.vector_axis import reduces_contiguous
from .blocked_variance import Cut, many_rows, pieces_of
from .mean_variance import read_again

LARGEST = ("top", "max")


@dataclass(frozen=True)
class _Pair:
    """A largest value, and the sum of exponentials beside it over the same loops. beside: what is taken off of each
    element, in the loops of the sum."""

    largest: Reduce
    sums: Reduce
    exp: str
    beside: Expr


def make_softmax_online(graph: NodeGraph) -> None:
    """Cuts sums of exponentials of columns that are more than a cache holds, where nobody else reads the elements."""
    for node in list(graph.nodes):
        pair = _pair(graph, node) if isinstance(node, Reduce) else None
        if pair is None:
            continue
        again = read_again(graph, pair.largest, pair.sums)
        rows = again and many_rows(graph, pair.largest)
        if not rows and (again or reduces_contiguous(pair.largest)):
            continue
        pieces = pieces_of(pair.largest, again, rows)
        if pieces > 1:
            first, second = _split(pair, pieces)
            graph.replace_by(pair.sums, second)
            graph.replace_by(pair.largest, first)


def _pair(graph: NodeGraph, sums: Reduce) -> _Pair | None:
    """The sum with the largest value that it reads; None where it is something else."""
    value = sums.reductions[0].value if len(sums.reductions) == 1 and sums.reductions[0].op == "sum" else None
    if not isinstance(value, Call) or value.op not in ("exp", "exp_weight"):
        return None
    apart = value.args[0]
    if not isinstance(apart, Call) or apart.op != "sub":
        return None
    element, beside = apart.args
    loads = set(beside.loads)
    largest = graph.producer(next(iter(loads)).buffer) if len(loads) == 1 else None
    if not isinstance(largest, Reduce) or len(largest.reductions) != 1 or largest.reductions[0].op not in LARGEST:
        return None
    if len(largest.stores) != 1 or not isinstance(largest.stores[0].value, Acc) or len(largest.dims) != len(sums.dims):
        return None
    loops = ((*sums.dims, *sums.rdims), (*largest.dims, *largest.rdims))
    if [v.extent for v in loops[0]] != [v.extent for v in loops[1]]:
        return None
    names: dict[Atom, Index] = {v: of(u) for v, u in zip(*loops, strict=True)}
    load = next(iter(loads))
    same = substitute(element, names) == largest.reductions[0].value
    same = same and load.index.substitute(names) == largest.stores[0].index
    adjacent = not graph.crosses(largest.reads(), largest, sums)
    return _Pair(largest, sums, value.op, beside) if same and adjacent else None


def _split(pair: _Pair, pieces: int) -> tuple[list[Reduce], list[Reduce]]:
    """The largest value and the sum of the pieces, and the same of all of them."""
    largest, sums, cut = pair.largest, pair.sums, Cut.into(pair.largest, pieces)
    high, total = largest.reductions[0], sums.reductions[0]
    dtype = high.acc.dtype
    highs, centres = (
        Load(Buffer(f"{largest.stores[0].buffer.name}_{n}", dtype, cut.results, "temp"), cut.at)
        for n in ("highs", "centres")
    )
    parts = Load(Buffer(f"{sums.stores[0].buffer.name}_parts", total.acc.dtype, cut.results, "temp"), cut.at)
    value = substitute(high.value, cut.moved)
    centre = Call("where", (Call("isfinite", (high.acc,), "bool"), high.acc, Const(0.0, dtype)), dtype)
    stores = (Store(highs.buffer, highs.index, high.acc), Store(centres.buffer, centres.index, centre))
    of_pieces = Reduce(cut.dims, stores, largest.origin, cut.loops, (replace(high, value=value),))
    exps = Call(pair.exp, (Call("sub", (value, centres), dtype),), dtype)
    stored = (Store(parts.buffer, parts.index, total.acc),)
    sums_of_pieces = Reduce(cut.dims, stored, sums.origin, cut.loops, (replace(total, value=exps),))
    of_all = replace(largest, rdims=(cut.piece,), reductions=(Reduction(high.acc, high.op, highs),))

    again = Var(f"{cut.piece.name}s", cut.piece.extent)
    back: dict[Atom, Index] = {cut.piece: of(again)}
    back |= {u: of(v) for v, u in zip(sums.dims, largest.dims, strict=True)}
    part, top = (substitute(ld, back) for ld in (parts, highs))
    weight = Call(pair.exp, (Call("sub", (top, pair.beside), dtype),), dtype)
    merged = Reduction(total.acc, "sum", Call("mul", (part, weight), dtype))
    return [of_pieces, sums_of_pieces, of_all], [replace(sums, rdims=(again,), reductions=(merged,))]

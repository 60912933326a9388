"""Blocked variance: the variances of blocks are computed first and then combined (Chan, Golub, LeVeque 1979).

mean[j] = sum over i:I of x[i, j] / I                  m[p, j] = sum over i:I/P of x[p, i, j] / (I/P)
s[j] = sum over i:I of (x[i, j] - mean[j])^2    ->     t[p, j] = sum over i:I/P of (x[p, i, j] - m[p, j])^2
                                                       mean[j] = sum over p of m[p, j] * I/P / I
                                                       s[j] = sum over p of t[p, j] + I/P (m[p, j] - mean[j])^2

Memory is read once instead of twice, by the law `chan` of ir/laws.py. The blocks depend on the sizes alone. Because m
is rounded, the deviations from it have a sum r[p, j] that is not 0, and s also gets 2 r[p, j] (m[p, j] - mean[j]).

A block of a row stays in the cache until m is known. A block of columns is read once: its deviations are taken from the
mean f of its first rows, and t becomes t - (m - f) (2 r - I/P (m - f)). Since f is close to m, few digits are lost:
with the first 16 of 64 rows, about one bit where f is 4 standard errors of a mean of 16 rows away.
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
from ...ir.index import (
    ONE,
    ZERO,
    Atom,
    Index,
    Var,
    as_index,
    of,
    product,
    row_major,
)
from ...ir.nodes import Map, Origin, Reduce, Reduction, Store
from ...machine.cpu_loops import VARIANCES
from ..graph import NodeGraph
from ..loops.pipeline_samples import statistics_for, walks_beside
from ..loops.vector_axis import reduces_contiguous
from .mean_variance import Pair, count_of, pair_of, read_again


def block_variances(graph: NodeGraph) -> None:
    """Cuts the means and squares of more elements than a cache holds."""
    for node in list(graph.nodes):
        pair = pair_of(graph, node) if isinstance(node, Reduce) else None
        if pair is None:
            continue
        again = read_again(graph, pair.mean, pair.squares)
        samples = again and _many_samples(graph, pair)
        forms = (pair, pair.with_one_loop())  # of maps so wide that a row is too much for a piece
        for loops in reversed(forms) if samples else forms:
            pieces = pieces_of(loops.mean, again, samples)
            if pieces > 1:
                first, second = _split(loops, pieces)
                graph.replace_by(pair.squares, second)
                graph.replace_by(pair.mean, first)
                break


def _many_samples(graph: NodeGraph, pair: Pair) -> bool:
    """Whether these are means of samples, whose pieces are to be reduced beside another sample (samples.py): of long
    rows, or of channels which are merged before they are asked for."""
    mean = pair.mean
    if reduces_contiguous(mean):
        return many_rows(graph, mean)
    merged = all(isinstance(r, Reduce) for b in mean.writes() for r in graph.readers(b))
    if not merged or (count_of(mean) or 0) < 2 * VARIANCES.column_piece:
        return False
    return all(walks_beside(load, mean.dims[0]) for load in mean.reductions[0].value.loads)


def many_rows(graph: NodeGraph, node: Reduce) -> bool:
    """Whether a reduction is of many rows that a second level cache has no room for, and a map asks for what they come
    to that goes through the same rows."""
    if len(node.dims) != 1 or (count_of(node) or 0) <= VARIANCES.cached or not reduces_contiguous(node):
        return False
    readers = {n for load in node.reductions[0].value.loads for n in graph.readers(load.buffer)}
    return any(isinstance(n, Map) and node in statistics_for(graph, n)[1] for n in readers)


def pieces_of(node: Reduce, again: bool, samples: bool = False) -> int:
    """How many pieces of the outermost reduced loop; 1: leave it whole. again: the elements are read by others too,
    samples: which come by with the same pieces of another sample."""
    if not node.rdims:
        return 1
    count, first, kept = count_of(node), node.rdims[0].extent.constant, node.extent.constant
    if count is None or first is None or kept is None:
        return 1
    along = reduces_contiguous(node)
    columns = 1 if along else min(VARIANCES.columns, kept)
    if (
        not samples
        and count * columns <= VARIANCES.cached
        and (along or again or count * columns <= VARIANCES.read_once)
    ):
        return 1
    most = VARIANCES.column_piece if not along else VARIANCES.walked_piece if samples else VARIANCES.row_piece
    return next((d for d in range(2, first + 1) if first % d == 0 and VARIANCES.piece <= count // d <= most), 1)


@dataclass(frozen=True)
class Cut:
    """The loops of a piece, and where its results lie: pieces and kept loops in the order of memory."""

    piece: Var
    dims: tuple[Var, ...]  # the kept loops and the pieces
    loops: tuple[Var, ...]
    moved: dict[Atom, Index]  # the outermost reduced loop, as piece and place in it
    at: Index
    size: int  # elements of a piece
    results: Index

    @classmethod
    def into(cls, node: Reduce, pieces: int) -> Cut:
        outer, others = node.rdims[0], node.rdims[1:]
        piece, inner = Var(f"{outer.name}_piece", as_index(pieces)), Var(f"{outer.name}_in", outer.extent // pieces)
        whole = inner.extent != ONE
        loops = (inner, *others) if whole else others
        before = _in_front(node)
        dims = (*node.dims[:before], piece, *node.dims[before:])
        return cls(
            piece,
            dims,
            loops,
            {outer: of(piece) * inner.extent + (of(inner) if whole else ZERO)},
            row_major(dims),
            (count_of(node) or 0) // pieces,
            product(v.extent for v in dims),
        )


def _in_front(node: Reduce) -> int:
    """How many of the kept loops take longer steps through memory than the outermost reduced one."""
    index = next((ld.index for ld in node.reductions[0].value.loads), ZERO)

    def step(v: Var) -> int:
        stride = index.coefficient(v)
        return (stride.constant or 0) if stride is not None else 0

    return next((i for i, v in enumerate(node.dims) if step(v) <= step(node.rdims[0])), len(node.dims))


def _split(pair: Pair, pieces: int) -> tuple[list[Reduce], list[Reduce]]:
    """The mean and the squares of the pieces, and the same of all of them."""
    mean, squares, cut = pair.mean, pair.squares, Cut.into(pair.mean, pieces)
    acc, dtype = squares.reductions[0].acc, mean.reductions[0].acc.dtype
    size, rest = Const(float(cut.size), dtype), Acc(f"{acc.name}_rest", dtype)
    names = (
        f"{mean.stores[0].buffer.name}_pieces",
        *(f"{squares.stores[0].buffer.name}_{n}" for n in ("pieces", "rest")),
    )
    means, squared, rests = (Load(Buffer(name, dtype, cut.results, "temp"), cut.at) for name in names)

    value, total = substitute(pair.value, cut.moved), mean.reductions[0]
    sums, average = (replace(total, value=value),), Call("div", (total.acc, size), dtype)

    def of_pieces(reductions: tuple[Reduction, ...], results: dict[Load, Expr], origin: Origin) -> Reduce:
        stores = tuple(Store(ld.buffer, ld.index, value) for ld, value in results.items())
        return Reduce(cut.dims, stores, origin, cut.loops, reductions)

    if reduces_contiguous(mean):
        first = of_pieces(sums, {means: average}, mean.origin)
        parts = [first, of_pieces(_deviations(value, means, acc, rest), {squared: acc, rests: rest}, squares.origin)]
    else:
        centre = Load(Buffer(f"{mean.stores[0].buffer.name}_first", dtype, cut.results, "temp"), cut.at)
        stored = {means: average, **_centred(acc, rest, _call("sub", average, centre), squared, rests, size)}
        all_ = of_pieces((*sums, *_deviations(value, centre, acc, rest)), stored, mean.origin + squares.origin)
        parts = [_of_first(mean, value, centre, cut), all_]
    of_all = replace(
        mean, rdims=(cut.piece,), reductions=(Reduction(total.acc, "sum", Call("mul", (means, size), dtype)),)
    )
    again = Var(f"{cut.piece.name}s", cut.piece.extent)
    back: dict[Atom, Index] = {cut.piece: of(again)}
    back |= {u: of(v) for v, u in zip(squares.dims, mean.dims, strict=True)}
    merged = substitute(_merged(mean, means, squared, rests, size), back)
    return [*parts, of_all], [replace(squares, rdims=(again,), reductions=(Reduction(acc, "sum", merged),))]


def _deviations(value: Expr, centre: Expr, squares: Acc, rest: Acc) -> tuple[Reduction, Reduction]:
    apart = _call("sub", value, centre)
    return Reduction(squares, "sum", _call("mul", apart, apart)), Reduction(rest, "sum", apart)


def _of_first(mean: Reduce, value: Expr, result: Load, cut: Cut) -> Reduce:
    """The mean of a piece's first elements."""
    longest = max(cut.loops, key=lambda v: v.extent.constant or 0)
    few = Var(f"{longest.name}_first", as_index(min(VARIANCES.piece, longest.extent.constant or VARIANCES.piece)))
    places: dict[Atom, Index] = {v: of(few) if v is longest else ZERO for v in cut.loops}
    acc = Acc(f"{mean.reductions[0].acc.name}_first", result.dtype)
    count = Const(float(few.extent.constant or 1), result.dtype)
    store = Store(result.buffer, result.index, _call("div", acc, count))
    return Reduce(cut.dims, (store,), mean.origin, (few,), (Reduction(acc, "sum", substitute(value, places)),))


def _merged(mean: Reduce, means: Load, squared: Load, rests: Load, size: Const) -> Expr:
    """t + (m - mean) (size (m - mean) + 2 r): what a piece adds to the squares."""
    between = _call("sub", means, Load(mean.stores[0].buffer, mean.stores[0].index))
    more = _call("mul", between, _call("add", _call("mul", between, size), _twice(rests)))
    return _positive(_call("add", squared, more))


def _centred(acc: Acc, rest: Acc, apart: Expr, squared: Load, rests: Load, size: Const) -> dict[Load, Expr]:
    """Sums of squares and of deviations from another centre, `apart` from the one that they were reduced from."""
    moved = _call("mul", apart, size)
    less = _call("mul", apart, _call("sub", _twice(rest), moved))
    return {squared: _positive(_call("sub", acc, less)), rests: _call("sub", rest, moved)}


def _positive(squares: Expr) -> Expr:
    """A sum of squares, not below 0 by what is rounded; NaN stays."""
    return _call("maximum", squares, Const(0.0, squares.dtype))


def _twice(e: Expr) -> Expr:
    return _call("mul", e, Const(2.0, e.dtype))


def _call(op: str, *args: Expr) -> Call:
    return Call(op, args, args[0].dtype)

"""Variances of many elements: piece by piece while these are in the cache, then the pieces (Chan, Golub, LeVeque 1979).

mean[j] = sum over i:I of x[i, j] / I                  m[p, j] = sum over i:I/P of x[p, i, j] / (I/P)
s[j] = sum over i:I of (x[i, j] - mean[j])^2    ->     t[p, j] = sum over i:I/P of (x[p, i, j] - m[p, j])^2
                                                       mean[j] = sum over p of m[p, j] * I/P / I
                                                       s[j] = sum over p of t[p, j] + I/P (m[p, j] - mean[j])^2

So memory is read once, not twice. The pieces depend on the sizes alone. As m is rounded, the deviations from it have a
sum too, r[p, j], and s gets 2 r[p, j] (m[p, j] - mean[j]) more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ir.expr import Acc, Call, Const, Expr, Load, substitute
from ..ir.index import ONE, ZERO, Atom, Index, Var, as_index, of, product
from ..ir.nodes import Buffer, Fold, Reduce, Store
from .graph import NodeGraph
from .loops import reduces_contiguous

#: elements that stay in the second level cache from one reading to the next; columns that are walked through together
CACHED, COLUMNS = 1 << 16, 64
#: most elements of a piece: of a row in the first level cache, of a column beside 1024 others in the second; and fewest
ROW_PIECE, COLUMN_PIECE, LEAST = 1 << 13, 64, 16


@dataclass(frozen=True)
class _Pair:
    """A mean, and the sum of squared deviations from it, over the same loops: those of the mean."""

    mean: Reduce
    squares: Reduce
    value: Expr
    names: dict[Atom, Index]  # the loops of the squares


def split_moments(graph: NodeGraph) -> None:
    """Cuts the means and squares of more elements than a cache holds."""
    for node in list(graph.nodes):
        pair = _pair(graph, node) if isinstance(node, Reduce) else None
        pieces = _pieces(pair.mean) if pair is not None else 1
        if pair is not None and pieces > 1:
            first, second = _split(pair, pieces)
            graph.replace_by(pair.squares, second)
            graph.replace_by(pair.mean, first)


def _pair(graph: NodeGraph, squares: Reduce) -> _Pair | None:
    """The squares with the mean that they read; None where they are something else."""
    if len(squares.folds) != 1 or squares.folds[0].op != "sum":
        return None
    value = squares.folds[0].value
    if not isinstance(value, Call) or value.op != "mul" or value.args[0] != value.args[1]:
        return None
    deviation = value.args[0]
    if not isinstance(deviation, Call) or deviation.op != "sub" or not isinstance(deviation.args[1], Load):
        return None
    element, load = deviation.args[0], deviation.args[1]
    mean = graph.producer(load.buffer)
    if not isinstance(mean, Reduce) or not _is_mean(mean):
        return None
    loops = ((*squares.dims, *squares.rdims), (*mean.dims, *mean.rdims))
    if [v.extent for v in loops[0]] != [v.extent for v in loops[1]] or len(squares.dims) != len(mean.dims):
        return None
    names: dict[Atom, Index] = {v: of(u) for v, u in zip(*loops, strict=True)}
    same = substitute(element, names) == mean.folds[0].value and load.index.substitute(names) == mean.stores[0].index
    adjacent = not graph.crosses(mean.reads(), mean, squares)
    return _Pair(mean, squares, mean.folds[0].value, names) if same and adjacent else None


def _is_mean(node: Reduce) -> bool:
    if len(node.folds) != 1 or len(node.stores) != 1 or node.folds[0].op != "sum":
        return False
    value = node.stores[0].value
    if not isinstance(value, Call) or value.op != "div" or not isinstance(value.args[0], Acc):
        return False
    return isinstance(value.args[1], Const) and value.args[1].value == _count(node)


def _count(node: Reduce) -> int | None:
    return product(v.extent for v in node.rdims).constant


def _pieces(node: Reduce) -> int:
    """How many pieces of the outermost reduced loop; 1: leave it whole."""
    if not node.rdims:
        return 1
    count, first, kept = _count(node), node.rdims[0].extent.constant, node.extent.constant
    along = reduces_contiguous(node)
    if count is None or first is None or kept is None or count * (1 if along else min(COLUMNS, kept)) <= CACHED:
        return 1
    most = ROW_PIECE if along else COLUMN_PIECE
    return next((d for d in range(2, first + 1) if first % d == 0 and LEAST <= count // d <= most), 1)


def _split(pair: _Pair, pieces: int) -> tuple[list[Reduce], list[Reduce]]:
    """The mean and the squares of the pieces, and the same of all of them."""
    mean, squares = pair.mean, pair.squares
    outer, others = mean.rdims[0], mean.rdims[1:]
    piece, inner = Var(f"{outer.name}_piece", as_index(pieces)), Var(f"{outer.name}_in", outer.extent // pieces)
    size = float((_count(mean) or 0) // pieces)
    loops = others if inner.extent == ONE else (inner, *others)
    moved: dict[Atom, Index] = {outer: of(piece) * inner.extent + (of(inner) if inner in loops else ZERO)}
    place, stride = ZERO, ONE
    for v in reversed(mean.dims):
        place, stride = place + of(v) * stride, stride * v.extent
    at: Index = of(piece) * stride + place
    value, dtype = substitute(pair.value, moved), mean.folds[0].acc.dtype
    names = (
        f"{mean.stores[0].buffer.name}_pieces",
        *(f"{squares.stores[0].buffer.name}_{n}" for n in ("pieces", "rest")),
    )
    means, spreads, rests = (Buffer(name, dtype, stride * pieces, "temp") for name in names)
    own, number = Load(means, at), Const(size, dtype)
    deviation = Call("sub", (value, own), dtype)
    acc = squares.folds[0].acc
    rest_acc = Acc(f"{acc.name}_rest", dtype)

    def of_pieces(node: Reduce, folds: tuple[Fold, ...], stores: tuple[Store, ...]) -> Reduce:
        return Reduce((piece, *mean.dims), stores, node.origin, loops, folds)

    average = Store(means, at, Call("div", (mean.folds[0].acc, number), dtype))
    first = of_pieces(mean, (replace(mean.folds[0], value=value),), (average,))
    folds = (Fold(acc, "sum", Call("mul", (deviation, deviation), dtype)), Fold(rest_acc, "sum", deviation))
    second = of_pieces(squares, folds, (Store(spreads, at, acc), Store(rests, at, rest_acc)))
    total = Fold(mean.folds[0].acc, "sum", Call("mul", (own, number), dtype))
    between = Call("sub", (own, Load(mean.stores[0].buffer, mean.stores[0].index)), dtype)
    rest_of = Call(
        "add", (Call("mul", (between, number), dtype), Call("mul", (Load(rests, at), Const(2.0, dtype)), dtype)), dtype
    )
    merged = Call("add", (Load(spreads, at), Call("mul", (between, rest_of), dtype)), dtype)
    again = Var(f"{piece.name}s", piece.extent)
    back: dict[Atom, Index] = {**{u: of(v) for v, u in zip(squares.dims, mean.dims, strict=True)}, piece: of(again)}
    last = replace(squares, rdims=(again,), folds=(Fold(acc, "sum", substitute(merged, back)),))
    return [first, second, replace(mean, rdims=(piece,), folds=(total,))], [last]

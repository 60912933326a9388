"""Primitives of reductions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from types import MappingProxyType

from ..buffers import Buffer
from ..expr import Acc, Call, Expr, Load, rewrite, substitute
from ..index import Atom, Index, Var, as_index
from ..nodes import Map, Reduce, Reduction, Store

#: reduction -> the operator of two values
OPERATORS: Mapping[str, str] = MappingProxyType(
    {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "top": "maximum"}
)


def rfactor(
    node: Reduce, dims: tuple[Var, ...], loops: tuple[Var, ...], moved: Mapping[Atom, Index], at: Index, size: Index
) -> tuple[Reduce, tuple[Reduction, ...]]:
    """The reductions of pieces, and the reductions of what they come to.

        for m  y[m] = sum r:R x[m, r]   ->   for m, p:P  part[m*P + p] = sum l:R/P x[m, p*(R/P) + l];
                                             for m       y[m] = sum p:P part[m*P + p]

    dims, loops: the kept loops with those over the pieces, and the loops of a piece. moved: the reduced loops in terms
    of both. at, size: where the result of a piece lies in a buffer of its own, and how many there are.

    Law (Suriana, Adams and Kamil, Parallel Associative Reductions in Halide, CGO 2017): the operators are associative
    and commutative, and a piece of a piece is a piece of the whole. Sums are rounded in another order, values of
    integers and of max and min stay to the bit.
    """
    reductions = tuple(replace(f, value=substitute(f.value, dict(moved))) for f in node.reductions)
    partial = [
        Buffer(f"{node.stores[0].buffer.name}_pieces{i or ''}", f.acc.dtype, size, "temp")
        for i, f in enumerate(node.reductions)
    ]
    stores = tuple(Store(b, at, f.acc) for b, f in zip(partial, node.reductions, strict=True))
    again = tuple(Reduction(f.acc, f.op, Load(b, at)) for b, f in zip(partial, node.reductions, strict=True))
    return Reduce(dims, stores, node.origin, loops, reductions), again


def unroll_reduction(node: Reduce) -> Map:
    """A reduction over few elements becomes a map of one expression.

        for m  y[m] = sum r:3 x[m*3 + r]      ->      for m  y[m] = x[m*3] + x[m*3 + 1] + x[m*3 + 2]

    Law: the extents are numbers, and the operators are those of OPERATORS. The order of the additions is that of the
    loops, the last one fastest.
    """
    values = {f.acc: _unrolled(f, node.rdims) for f in node.reductions}

    def leaf(e: Expr) -> Expr | None:
        return values.get(e) if isinstance(e, Acc) else None

    stores = tuple(Store(s.buffer, s.index, rewrite(s.value, leaf)) for s in node.stores)
    return Map(node.dims, stores, node.origin)


def _unrolled(reduction: Reduction, loops: tuple[Var, ...]) -> Expr:
    values = [reduction.value]
    for v in loops:
        count = v.extent.constant
        if count is None:
            raise ValueError(f"a reduction over {v.extent} elements cannot be unrolled")
        values = [substitute(e, {v: as_index(i)}) for e in values for i in range(count)]
    return reduce(lambda a, b: Call(OPERATORS[reduction.op], (a, b), reduction.acc.dtype), values)

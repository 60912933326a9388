"""Means, and the sums of squared deviations from them: what variances and norms are made of."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.expr import (
    Acc,
    Call,
    Const,
    Expr,
    Load,
    substitute,
)
from ...ir.index import Atom, Index, of, product
from ...ir.nodes import Reduce
from ..graph import NodeGraph
from ..loops.collapse import collapse_reduced


@dataclass(frozen=True)
class Pair:
    """A mean, and the sum of squared deviations from it, over the same loops: those of the mean."""

    mean: Reduce
    squares: Reduce

    @property
    def value(self) -> Expr:
        """What the mean is of."""
        return self.mean.reductions[0].value

    @property
    def element(self) -> Expr:
        """The same in the loops of the squares."""
        loops = ((*n.dims, *n.rdims) for n in (self.mean, self.squares))
        return substitute(self.value, {v: of(u) for v, u in zip(*loops, strict=True)})

    def with_one_loop(self) -> Pair:
        """The same with its reduced loops as one, where memory is walked through like that."""
        return Pair(collapse_reduced(self.mean), collapse_reduced(self.squares))


def pair_of(graph: NodeGraph, squares: Reduce) -> Pair | None:
    """The squares with the mean that they read; None where they are something else."""
    if len(squares.reductions) != 1 or squares.reductions[0].op != "sum":
        return None
    value = squares.reductions[0].value
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
    same = (
        substitute(element, names) == mean.reductions[0].value and load.index.substitute(names) == mean.stores[0].index
    )
    adjacent = not graph.crosses(mean.reads(), mean, squares)
    return Pair(mean, squares) if same and adjacent else None


def _is_mean(node: Reduce) -> bool:
    if len(node.reductions) != 1 or len(node.stores) != 1 or node.reductions[0].op != "sum":
        return False
    value = node.stores[0].value
    if not isinstance(value, Call) or value.op != "div" or not isinstance(value.args[0], Acc):
        return False
    return isinstance(value.args[1], Const) and value.args[1].value == count_of(node)


def count_of(node: Reduce) -> int | None:
    """Elements that are reduced to one."""
    return product(v.extent for v in node.rdims).constant


def read_again(graph: NodeGraph, first: Reduce, second: Reduce) -> bool:
    """Whether other nodes read what two reductions are of, and may have it from the cache."""
    buffers = {ld.buffer for ld in first.reductions[0].value.loads}
    return any(buffers & set(n.reads()) for n in graph.nodes if n is not first and n is not second)

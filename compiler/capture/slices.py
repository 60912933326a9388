"""Slices between numbers of tensors: rows at places that the run finds, as many as it finds.

y = slice(x, 0, a, b)     ->     first, last = a, b as Python means them, between 0 and n
                                 u = item(clamp(last - first, 0))
                                 y = index_select(x, 0, first + arange(u))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._sympy.symbol import SymT, symbol_is_type

from ..model.computed import free_symbols, raw, scalar_tensor
from ..model.fake import recording_fake

__all__ = ["slice_by_places"]

aten = torch.ops.aten


def slice_by_places(graph: fx.Graph, node: fx.Node, args: Sequence[Any]) -> fx.Node | None:
    """The slice `node` by places; None where its size is known or a formula. args: its arguments in `graph`."""
    if node.target is not aten.slice.Tensor:
        return None
    given: list[Any] = [*args, *(None, 0, None, None, 1)[len(args) :]]
    x, dim, start, stop, step = given
    axis, value = dim % x.meta["val"].dim(), node.meta["val"]
    size = value.shape[axis]
    symbol = raw(size)
    if not isinstance(symbol, sympy.Symbol) or not symbol_is_type(symbol, SymT.UNBACKED_INT):
        return None
    bounds = [n.meta["val"] for n in (start, stop) if isinstance(n, fx.Node)]
    if symbol in free_symbols([*bounds, x.meta["val"]]) or step != 1:
        return None
    emit = _Emitter(graph, node)
    n = emit(aten.scalar_tensor.default, emit(aten.sym_size.int, x, axis), dtype=torch.int64)
    first, last = emit.bound(start, 0, n), emit.bound(stop, n, n)
    count = emit(aten.item.default, emit(aten.clamp.default, emit(aten.sub.Tensor, last, first), 0), value=size)
    rows = emit(aten.add.Tensor, emit(aten.arange.default, count, dtype=torch.int64), first)
    return emit(aten.index_select.default, x, axis, rows, value=value)


class _Emitter:
    """Adds operators with the meta of a node."""

    def __init__(self, graph: fx.Graph, node: fx.Node) -> None:
        self._graph, self._node = graph, node
        self._mode = node.meta["val"].fake_mode

    def __call__(self, op: OpOverload, *args: Any, value: Any = None, **kwargs: Any) -> fx.Node:
        new = self._graph.call_function(op, args, kwargs)
        if value is None:
            with recording_fake(self._mode):
                value = op(*fx.map_arg(args, lambda n: n.meta["val"]), **kwargs)
        new.meta = {**self._node.meta, "val": value}
        return new

    def bound(self, bound: Any, default: Any, n: fx.Node) -> fx.Node:
        """A bound of a slice as Python means it: negative ones count from the end, and none is outside."""
        if bound is None:
            bound = default
        if isinstance(bound, int):
            bound = self(aten.scalar_tensor.default, bound, dtype=torch.int64)
        elif not isinstance(bound.meta["val"], torch.Tensor):
            bound = scalar_tensor(self._graph, bound, torch.int64)
        wrapped = self(aten.where.self, self(aten.lt.Scalar, bound, 0), self(aten.add.Tensor, bound, n), bound)
        return self(aten.minimum.default, self(aten.clamp.default, wrapped, 0), n)

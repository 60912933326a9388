"""Views that operators of several results or of other names take, as slices and selections, which have an inverse.

chunk(x, 2)[1]        ->   slice(x, 0, 2, 4)            unbind(x)[1]     ->   select(x, 0, 1)
narrow(x, 0, 1, 2)    ->   slice(x, 0, 1, 3)            movedim(x, 0, 1) ->   permute(x, [1, 0])
as_strided(x.t(), (2,), (3,))   ->   as_strided(x, (2,), (3,), 0)
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.utils._sympy.symbol import SymT, symbol_is_type

from ..model.computed import free_symbols
from .strides import memory_order, same_bits
from .tensors import Tensor

__all__ = ["piece_of", "plain_view", "strided_view"]

aten = torch.ops.aten

_PIECES = {
    aten.split.Tensor, aten.split.sizes, aten.split_with_sizes.default, aten.chunk.default, aten.tensor_split.sections,
    aten.tensor_split.indices,
}  # fmt: skip


def piece_of(graph: fx.Graph, node: fx.Node, whole: Tensor, place: int) -> Tensor | None:
    """The result at `place` of an operator that cuts a tensor, as a view of the tensor itself; None for others."""
    taken = whole.taken_by
    if taken is None or whole.parent is None or whole.stale:
        return None
    x, dim = taken.args[0], taken.args[2] if len(taken.args) > 2 else taken.kwargs.get("dim", 0)
    assert isinstance(x, fx.Node)
    if taken.target is aten.unbind.int:
        return _view(graph, node, whole.parent, aten.select.int, x, taken.args[1] if len(taken.args) > 1 else 0, place)
    if taken.target not in _PIECES or not isinstance(dim, int):
        return None
    lengths = [piece.shape[dim] for piece in taken.meta["val"]]
    if any(symbol_is_type(s, SymT.UNBACKED_INT) for n in lengths for s in free_symbols(n)):
        return None  # the run finds them
    place %= len(lengths)
    ends: list[Any] = [0]
    for i in range(place + 1):
        ends.append(_sum(graph, node, ends[-1], _length(graph, node, taken, i, dim)))
    return _view(graph, node, whole.parent, aten.slice.Tensor, x, dim, *ends[-2:])


def _length(graph: fx.Graph, node: fx.Node, taken: fx.Node, place: int, dim: int) -> Any:
    """The size of a piece: a number, or a node for a dynamic one."""
    piece = taken.meta["val"][place]
    size = piece.shape[dim]
    if isinstance(size, int):
        return size
    part = graph.call_function(operator.getitem, (taken, place))
    part.meta = {**node.meta, "val": piece}
    length = graph.call_function(aten.sym_size.int, (part, dim))
    length.meta = {**node.meta, "val": size}
    return length


def _sum(graph: fx.Graph, node: fx.Node, a: Any, b: Any) -> Any:
    if isinstance(a, int) and (isinstance(b, int) or a == 0):
        return b if a == 0 else a + b
    total = graph.call_function(operator.add, (a, b))
    values = [n.meta["val"] if isinstance(n, fx.Node) else n for n in (a, b)]
    total.meta = {**node.meta, "val": values[0] + values[1]}
    return total


def _view(graph: fx.Graph, node: fx.Node, parent: Tensor, target: Any, *args: Any) -> Tensor:
    new = graph.create_node("call_function", target, args, {}, name=node.name)
    new.meta = dict(node.meta)
    return parent.view(new, new)


def plain_view(graph: fx.Graph, node: fx.Node, args: Sequence[Any]) -> fx.Node | None:
    """A view under another name, as the operator that is written through; None for others."""
    target, value = node.target, node.meta.get("val")
    if target is aten.narrow.default and all(isinstance(a, int) for a in args[1:]) and args[2] >= 0:
        target, args = aten.slice.Tensor, (*args[:3], args[2] + args[3])
    elif target in (aten.movedim.int, aten.moveaxis.int) and isinstance(value, torch.Tensor):
        order = list(range(value.dim()))
        order.insert(args[2] % value.dim(), order.pop(args[1] % value.dim()))
        target, args = aten.permute.default, (args[0], order)
    else:
        return None
    new = graph.create_node("call_function", target, tuple(args), {}, name=node.name)
    new.meta = dict(node.meta)
    return new


def strided_view(graph: fx.Graph, node: fx.Node, tensor: Tensor, root: fx.Node, args: Sequence[Any]) -> Tensor | None:
    """What as_strided takes of the memory of a tensor, as a view of its root; None where the graph does not know what
    lies around the tensor.

    node: the call; root: the value of the tensor's root; args: the call's arguments behind the tensor, in `graph`.
    """
    source: Any = node.args[0]
    whole, value = root.meta["val"], source.meta["val"]
    order = memory_order(whole)
    if order is None or not same_bits(whole, value):
        return None
    size, stride, offset = (*args, None)[:3]
    if offset is None:
        offset = value.storage_offset()
    if not isinstance(offset, (int, fx.Node)):
        return None
    base = tensor.root()
    if order != sorted(order):
        transposed = graph.call_function(aten.permute.default, (root, order))
        transposed.meta = {**node.meta, "val": whole.permute(order)}
        base, root = base.view(transposed, transposed), transposed
    return _view(graph, node, base, aten.as_strided.default, root, size, stride, offset)

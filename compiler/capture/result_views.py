"""Views that operators of several results or of other names take, as slices and selections, which have an inverse.

chunk(x, 2)[1]        ->   slice(x, 0, 2, 4)            unbind(x)[1]     ->   select(x, 0, 1)
narrow(x, 0, 1, 2)    ->   slice(x, 0, 1, 3)            movedim(x, 0, 1) ->   permute(x, [1, 0])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from .tensors import Tensor

__all__ = ["piece_of", "plain_view"]

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
    if not all(isinstance(n, int) for n in lengths):
        return None
    start = sum(lengths[: place % len(lengths)])
    end = start + lengths[place]
    return _view(graph, node, whole.parent, aten.slice.Tensor, x, dim, start, end)


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

"""Functional forms of in-place operators, and of writes through views."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._sympy.symbol import SymT, symbol_is_type

from .computed import raw, scalar_tensor

__all__ = ["functional_form", "rebuild_base", "take_view"]

aten = torch.ops.aten

_TRANSPOSES = {aten.transpose.int, aten.t.default, aten.swapaxes.default, aten.swapdims.default, aten.numpy_T.default}
_RESHAPES = {
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
}
_SCATTERS = {
    aten.select.int: aten.select_scatter.default,
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.diagonal.default: aten.diagonal_scatter.default,
}
_SAME_VALUES = {aten.contiguous.default, aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.view_as.default}


def functional_form(graph: fx.Graph, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node | None:
    """The value that the in-place operator `node` leaves in its first argument; args and kwargs are of `graph`.

        y = add_(x, 1)  ->  y = add(x, 1), cast back when the functional form promotes the dtype

    None when there is no such operator.
    """
    op: OpOverload = node.target  # type: ignore[assignment]
    if op is aten.copy_.default:
        return _copied(graph, node, args[0], args[1])
    if op is aten.zero_.default:
        return _emit(graph, node, aten.zeros_like.default, (args[0],), {})
    if op is aten.fill_.Scalar:
        return _emit(graph, node, aten.full_like.default, args, {})
    if op is aten.fill_.Tensor:
        return _copied(graph, node, args[0], args[1])
    form = _functional_overload(op)
    if form is None:
        return None
    new = _emit(graph, node, form, args, kwargs)
    return _like(graph, node, new, args[0])


def _functional_overload(op: OpOverload) -> OpOverload | None:
    name, namespace = op._schema.name.split("::")[1], op.namespace
    if name.startswith("__i") and name.endswith("__"):
        functional = f"__{name[3:-2]}__"
    elif name.endswith("_") and not name.endswith("__"):
        functional = name[:-1]
    else:
        return None
    packet = getattr(getattr(torch.ops, namespace), functional, None)
    return getattr(packet, op._overloadname, None) if packet is not None else None


def _emit(graph: fx.Graph, node: fx.Node, target: Any, args: Any, kwargs: Any, value: Any = None) -> fx.Node:
    """A new node with the meta of `node` (where it came from), and `value` as its fake value when given."""
    new = graph.create_node("call_function", target, tuple(args), dict(kwargs))
    new.meta = dict(node.meta)
    if value is not None:
        new.meta["val"] = value
    return new


def _like(graph: fx.Graph, node: fx.Node, new: fx.Node, old: fx.Node) -> fx.Node:
    """`new` cast to the dtype of `old` when a functional operator would promote it."""
    values = [v.meta["val"] for v in new.all_input_nodes if isinstance(v.meta.get("val"), torch.Tensor)]
    dtype = old.meta["val"].dtype
    scalars = [a for a in (*new.args, *new.kwargs.values()) if isinstance(a, (float, complex))]
    if all(v.dtype == dtype for v in values) and (dtype.is_floating_point or not scalars):
        return new
    args, kwargs = fx.map_arg((new.args, new.kwargs), lambda n: n.meta["val"])
    with old.meta["val"].fake_mode:
        result = new.target(*args, **kwargs)  # type: ignore[operator]
    if result.dtype == dtype:
        return new
    new.meta["val"] = result
    return _emit(graph, node, aten.to.dtype, (new, dtype), {}, node.meta["val"])


def _copied(graph: fx.Graph, node: fx.Node, old: fx.Node, source: Any) -> fx.Node:
    """The value of copy_(old, source): source in the shape and dtype of old."""
    target, value = old.meta["val"], source.meta["val"]
    if value.dtype != target.dtype:
        with target.fake_mode:
            cast = value.to(target.dtype)
        source = _emit(graph, node, aten.to.dtype, (source, target.dtype), {}, cast)
    if tuple(value.shape) != tuple(target.shape):
        return _emit(graph, node, aten.expand.default, (source, _sizes(graph, node, old)), {}, target)
    return _emit(graph, node, aten.clone.default, (source,), {}, target)


def _sizes(graph: fx.Graph, node: fx.Node, tensor: fx.Node) -> list[Any]:
    """The shape of `tensor` as arguments: ints, and nodes for sizes that are dynamic."""
    return [
        _emit(graph, node, aten.sym_size.int, (tensor, i), {}, size) if isinstance(size, torch.SymInt) else size
        for i, size in enumerate(tensor.meta["val"].shape)
    ]


def take_view(graph: fx.Graph, view: fx.Node, base: fx.Node) -> fx.Node:
    """The view that `view` took of its first argument, taken again from `base`."""
    return _emit(graph, view, view.target, (base, *view.args[1:]), view.kwargs)


def _found_by_the_run(index: Any) -> bool:
    """Whether an index is a number of a tensor."""
    return isinstance(index, fx.Node) and any(
        symbol_is_type(s, SymT.UNBACKED_INT) for s in raw(index.meta["val"]).free_symbols
    )


def rebuild_base(graph: fx.Graph, base: fx.Node, view: fx.Node, new: fx.Node) -> fx.Node | None:
    """The value of `base` after its view `view` was given the value `new`; None when the view has no inverse here."""
    rest: tuple[Any, ...] = view.args[1:]
    op, value = view.target, base.meta["val"]
    if op is aten.select.int and _found_by_the_run(rest[1]):
        place = scalar_tensor(graph, rest[1], torch.int64)
        return _emit(
            graph, view, aten.index_put.default, (base, [*[None] * (rest[0] % value.dim()), place], new), {}, value
        )
    if op is aten.index_select.default:  # a slice by places
        return _emit(graph, view, aten.index_copy.default, (base, *rest, new), {}, value)
    if op in _SCATTERS:
        return _emit(graph, view, _SCATTERS[op], (base, new, *rest), view.kwargs, value)
    if op in _TRANSPOSES:
        return _emit(graph, view, op, (new, *rest), view.kwargs, value)
    if op is aten.permute.default:
        order = [d % len(rest[0]) for d in rest[0]]
        inverse = [order.index(d) for d in range(len(order))]
        return _emit(graph, view, op, (new, inverse), {}, value)
    if op in _RESHAPES:
        return _emit(graph, view, aten.reshape.default, (new, _sizes(graph, view, base)), {}, value)
    if op in _SAME_VALUES and tuple(view.meta["val"].shape) == tuple(value.shape):
        return new
    return None

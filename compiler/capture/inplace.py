"""Functional forms of in-place operators, and of writes through views."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload, OpOverloadPacket
from torch.utils._sympy.symbol import SymT, symbol_is_type

from ..model.computed import raw, scalar_tensor
from ..model.fake import recording_fake
from .strides import memory_order, overlaps, strides_in

__all__ = [
    "functional_form", "functional_item", "functional_overload", "rebuild_base", "rebuild_by_strides",
    "rebuild_expanded", "take_view",
]  # fmt: skip

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
    form = functional_overload(op)
    if form is None:
        return None
    new = _emit(graph, node, form, *_rearranged(op, form, args, kwargs))
    return _like(graph, node, new, args[0])


def functional_item(
    graph: fx.Graph, node: fx.Node, place: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> fx.Node | None:
    """What an in-place operator on a list of tensors leaves in one of them: its functional form on lists of one.

    _foreach_add_([x, y], [a, b])  ->  for place 1   _foreach_add([y], [b])[0]
    """
    op: OpOverload = node.target  # type: ignore[assignment]
    form = functional_overload(op)
    if form is None:
        return None
    old = args[0][place]
    with recording_fake(old.meta["val"].fake_mode):
        own = [[v[place]] if isinstance(v, (list, tuple)) else v for v in args]
        fakes, named = fx.map_arg((own, kwargs), lambda n: n.meta["val"])
        values = form(*fakes, **named)
    whole = _emit(graph, node, form, own, kwargs, list(values))
    new = _emit(graph, node, operator.getitem, (whole, 0), {}, values[0])
    if values[0].dtype == old.meta["val"].dtype:
        return new
    return _emit(graph, node, aten.to.dtype, (new, old.meta["val"].dtype), {}, old.meta["val"])


@functools.cache
def functional_overload(op: OpOverload) -> OpOverload | None:
    """The overload that gives what `op` leaves in its first argument: the one with the same arguments by name and type.

        pow_.Scalar(Tensor self, Scalar exponent)  ->  pow.Tensor_Scalar, not pow.Scalar(Scalar self, Tensor exponent)

    None when there is none.
    """
    wanted = _arguments(op)
    result = str(op._schema.arguments[0].type)
    for packet in _functional_packets(op):
        overloads = packet.overloads()
        first = [op._overloadname] if op._overloadname in overloads else []
        for name in dict.fromkeys([*first, *overloads]):
            form: OpOverload = getattr(packet, name)
            returns = [str(r.type) for r in form._schema.returns]
            if not form._schema.is_mutable and returns == [result] and _arguments(form) == wanted:
                return form
    return None


def _functional_packets(op: OpOverload) -> Iterator[OpOverloadPacket]:
    name = op._schema.name.split("::")[1]
    if name.startswith("__i") and name.endswith("__"):
        names = [f"__{name[3:-2]}__"]
    elif name.endswith("_") and not name.endswith("__"):
        names = [name[:-1], f"{name}functional"]
    else:
        names = []
    for functional in names:
        packet = getattr(getattr(torch.ops, op.namespace), functional, None)
        if packet is not None:
            yield packet


def _arguments(op: OpOverload) -> dict[str, str]:
    """Types of an operator's arguments by name."""
    return {_argument_name(a.name): str(a.type) for a in op._schema.arguments}


def _argument_name(name: str) -> str:
    """Of the tensor that an in-place operator changes: dropout calls it otherwise than dropout_."""
    return "self" if name == "input" else name


def _rearranged(
    op: OpOverload, form: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call's arguments in the order of `form`: polygamma_(x, n) -> polygamma(n, x)."""
    mine, theirs = op._schema.arguments, form._schema.arguments
    same = [(_argument_name(a.name), a.default_value) for a in mine]
    if same == [(_argument_name(a.name), a.default_value) for a in theirs]:
        return args, kwargs
    given = {_argument_name(a.name): v for a, v in zip(mine, args, strict=False)} | kwargs
    values = {a.name: given.get(_argument_name(a.name), a.default_value) for a in mine}
    values = {_argument_name(name): value for name, value in values.items()}
    positional = tuple(values[_argument_name(a.name)] for a in theirs if not a.kwarg_only)
    return positional, {a.name: values[a.name] for a in theirs if a.kwarg_only}


def _emit(graph: fx.Graph, node: fx.Node, target: Any, args: Any, kwargs: Any, value: Any = None) -> fx.Node:
    """A new node with the meta of `node` (where it came from), and `value` as its fake value when given."""
    new = graph.create_node("call_function", target, tuple(args), dict(kwargs))
    new.meta = dict(node.meta)
    if value is not None:
        new.meta["val"] = value
    return new


def _like(graph: fx.Graph, node: fx.Node, new: fx.Node, old: fx.Node) -> fx.Node:
    """`new` cast to the dtype of `old` when a functional operator has another: it promotes, or compares."""
    dtype = old.meta["val"].dtype
    args, kwargs = fx.map_arg((new.args, new.kwargs), lambda n: n.meta["val"])
    with recording_fake(old.meta["val"].fake_mode):
        result = new.target(*args, **kwargs)  # type: ignore[operator]
    if result.dtype == dtype:
        return new
    new.meta["val"] = result
    return _emit(graph, node, aten.to.dtype, (new, dtype), {}, node.meta["val"])


def _copied(graph: fx.Graph, node: fx.Node, old: fx.Node, source: Any) -> fx.Node:
    """The value of copy_(old, source): source in the shape and dtype of old."""
    target, value = old.meta["val"], source.meta["val"]
    if value.dtype != target.dtype:
        with recording_fake(target.fake_mode):
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
    if op is aten.detach.default:
        return new
    if op is aten.index_select.default:  # a slice by places
        return _emit(graph, view, aten.index_copy.default, (base, *rest, new), {}, value)
    if op is aten.as_strided.default:
        if overlaps(view.meta["val"]) is not False:  # some of its elements are new, others old, in one place
            return None
        return _emit(graph, view, aten.as_strided_scatter.default, (base, new, *rest), {}, value)
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
    if op is aten.view.dtype:
        return _emit(graph, view, op, (new, value.dtype), {}, value)
    if op in _SAME_VALUES and tuple(view.meta["val"].shape) == tuple(value.shape):
        return new
    return None


#: copies of a tensor's memory in an expanded view, of which each is looked at
MOST_COPIES = 64


def rebuild_expanded(graph: fx.Graph, base: fx.Node, view: fx.Node, new: fx.Node) -> fx.Node | None:
    """The value of `base` after its expanded view `view` was given the value `new` without adding to what it held.

        v = x.expand(2, 3); v[:, i] = a      ->      x = v'[1]                             the last copy
        v = x.expand(2, 3); v[0, i] = a      ->      x = where(v'[0] != x, v'[0], x) ...   the copy that differs

    All copies lie in the same memory; torch's own functional form adds the changes of all of them up. None: too many
    copies, a number of them that is dynamic, or indices that name several, of which the last one stays.
    """
    old, shape = base.meta["val"], view.meta["val"].shape
    added = len(shape) - old.dim()
    copied = [d for d, size in enumerate(shape) if d < added or (old.shape[d - added] == 1 and size != 1)]
    if not all(isinstance(shape[d], int) for d in copied) or math.prod(int(shape[d]) for d in copied) > MOST_COPIES:
        return None
    indices = new.args[1] if new.target is aten.index_put.default else ()
    assert isinstance(indices, (list, tuple))
    values = [index.meta["val"] for index in indices if isinstance(index, fx.Node)]
    named = [indices[d].meta["val"] for d in copied if d < len(indices) and isinstance(indices[d], fx.Node)]
    if any(value.dtype in (torch.bool, torch.uint8) for value in values) or any(n.numel() != 1 for n in named):
        return None
    alike = new.target is aten.index_put.default and not named

    def emit(target: Any, *args: Any) -> fx.Node:
        with recording_fake(old.fake_mode):
            value = target(*fx.map_arg(args, lambda n: n.meta["val"]))
        return _emit(graph, view, target, args, {}, value)

    def changed(copy: fx.Node, held: fx.Node, after: fx.Node) -> fx.Node:
        """`copy` where it is not what was held, signs of zeros too; elsewhere `after`."""
        unequal = emit(aten.ne.Tensor, copy, held)
        if old.is_floating_point():
            signs = [emit(aten.signbit.default, x) for x in (copy, held)]
            unequal = emit(aten.logical_or.default, unequal, emit(aten.ne.Tensor, *signs))
        return emit(aten.where.self, unequal, copy, after)

    held = emit(aten.expand.default, base, _sizes(graph, view, view))
    for number, d in enumerate(copied):
        held = emit(aten.select.int, held, d - number, 0)
        copies = [emit(aten.select.int, new, d - number, copy) for copy in range(int(shape[d]))]
        new = copies[-1] if alike else held
        for copy in () if alike else copies:
            new = changed(copy, held, new)
    return emit(aten.reshape.default, new, _sizes(graph, view, base))


def rebuild_by_strides(graph: fx.Graph, root: fx.Node, view: fx.Node, new: fx.Node, uniform: bool) -> fx.Node | None:
    """The value of `root`, a tensor with memory of its own, after a view anywhere in it was given the value `new`.

    uniform: all elements of `new` are equal, so that they may lie over each other. None for dynamic sizes, and where
    the graph does not know what lies in the memory.
    """
    whole, part = root.meta["val"], view.meta["val"]
    order = memory_order(whole)
    place = None if order is None else strides_in(whole, part)
    if order is None or place is None or (overlaps(part) and not uniform):
        return None
    memory = whole.permute(order)
    base = _emit(graph, view, aten.permute.default, (root, order), {}, memory)
    changed = _emit(graph, view, aten.as_strided_scatter.default, (base, new, *place), {}, memory)
    inverse = [order.index(d) for d in range(len(order))]
    return _emit(graph, view, aten.permute.default, (changed, inverse), {}, whole)

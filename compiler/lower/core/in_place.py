"""Values that are written over memory: buffers of the model, arguments that are written to, what a loop hands on.

Operators that graph/updates.py found write the elements that they change; their result is a later value in the same
memory (Buffer.of). All other new values are computed as usual, and stored there when everything else has read the old
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch.fx

from ...graph.patterns import is_op
from ...graph.updates import bases_of
from ...ir.buffers import IN_PLACE, Buffer
from ...ir.expr import Expr, Load
from ...ir.index import (
    ONE,
    ZERO,
    Index,
    Indirect,
    maximum,
    minimum,
    product,
)
from ...ir.nodes import Origin
from ...ir.routines import Blocks
from ...model.operators.functional import behind_twin
from .builder import Builder, compare, size_value, where
from .context import Context
from .registry import row
from .tensor import Shape, Strided, Tensor, dense_strides, is_dense, linear_index, permute, reshape, slice_dim


def target_of(ctx: Context, x: Tensor) -> Tensor | None:
    """A view like `x` of a later value in its memory, for a node that may write there; None: it makes a tensor."""
    if ctx.node not in ctx.builder.updates or x.strided is None or x.strided.buffer.kind not in IN_PLACE:
        return None
    later = ctx.builder.later(x.strided.buffer)
    return Tensor(x.shape, x.dtype, Strided(later, x.strided.strides, x.strided.offset))


@row("aten.slice_scatter.default")
def slice_scatter(
    ctx: Context, x: Tensor, part: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    axis = ctx.axis(dim, x.rank)
    first = ctx.slice_bound(start, x.shape[axis], ctx.size(0))
    return _written(ctx, x, part, axis, first)


@row("aten.select_scatter.default")
def select_scatter(ctx: Context, x: Tensor, part: Tensor, dim: int, index: int) -> Tensor:
    axis = ctx.axis(dim, x.rank)
    at = ctx.place(index, x.shape[axis])
    part = reshape(part, (*part.shape[:axis], ONE, *part.shape[axis:])) or part
    return _written(ctx, x, part, axis, at)


def _written(ctx: Context, x: Tensor, part: Tensor, axis: int, first: Index) -> Tensor:
    """x with `part` in the place of what begins at `first` of a dimension; the part may lie there already."""
    length = part.shape[axis]
    place, lies = slice_dim(x, axis, first, length).strided, part.strided
    if x.strided is not None and place is not None and lies is not None and lies.buffer.root is place.buffer.root:
        if lies.offset == place.offset and _same_strides(part.shape, lies.strides, place.strides):
            return Tensor(x.shape, x.dtype, Strided(lies.buffer, x.strided.strides, x.strided.offset))
        part = ctx.builder.copy(part)
    out = target_of(ctx, x)
    if out is not None:
        ctx.builder.map(part.shape, x.dtype, part.at, out=slice_dim(out, axis, first, length))
        return out

    def chosen(i: list[Index]) -> Expr:
        behind = compare("ge", size_value(i[axis], "i64"), size_value(first, "i64"))
        before = compare("lt", size_value(i[axis], "i64"), size_value(first + length, "i64"))
        at = minimum(maximum(i[axis] - first, ZERO), length - 1)
        return where(compare("logical_and", behind, before), part.at([*i[:axis], at, *i[axis + 1 :]]), x.at(i))

    return ctx.builder.map(x.shape, x.dtype, chosen)


def _same_strides(shape: Shape, a: Shape, b: Shape) -> bool:
    return all(s == t or n == ONE for n, s, t in zip(shape, a, b, strict=True))


@contextmanager
def on_its_memory(builder: Builder, node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> Iterator[None]:
    """An update works on the memory of its operand, also where others were given a copy of the old value."""
    bases = [base for base in bases_of(node) if base in builder.bases] if node in builder.updates else []
    copies = {base: values[base] for base in bases}
    values |= {base: builder.bases[base] for base in bases}
    try:
        yield
    finally:
        values |= copies


def keep_old_values(builder: Builder, node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> None:
    """Copies what later operators read of the memory that `node` is about to write to."""
    if is_op(node, "slice_scatter", "select_scatter") and node.args[1] in builder.updates:
        return  # the part has been written where it lies
    for base in bases_of(node):
        place = values.get(base)
        if isinstance(place, Tensor) and place.strided is not None and place.strided.buffer.kind in IN_PLACE:
            _keep_old_values(builder, place.strided.buffer.root, values)


def _keep_old_values(builder: Builder, root: Buffer, values: dict[torch.fx.Node, Any]) -> None:
    for other, value in values.items():
        pending = [user for user in other.users if user not in values]
        if any(_reads(builder, user, other) for user in pending):
            values[other] = _copied(builder, value, root)
            if values[other] is not value:
                builder.bases.setdefault(other, value)


def _reads(builder: Builder, user: torch.fx.Node, value: torch.fx.Node) -> bool:
    """Whether an operator reads a value, and does not just write to its memory."""
    if user not in builder.updates:
        return True
    operands = list(user.all_input_nodes)
    if behind_twin(user.target) is not None:
        return value in operands and value not in bases_of(user)
    operands = []
    torch.fx.map_arg((user.args[1:], user.kwargs), operands.append)
    return value in operands and not (value in builder.updates and is_op(user, "slice_scatter", "select_scatter"))


def _copied(builder: Builder, value: Any, root: Buffer) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_copied(builder, v, root) for v in value)
    if isinstance(value, Tensor) and reads_memory(builder, value, root):
        return builder.copy(value)
    return value


def copied_to_write(builder: Builder, t: Tensor, order: Sequence[int] | None = None) -> tuple[Blocks, Tensor]:
    """Memory with the tensor's values, and the tensor of what a kernel makes of them there.

    order: its dimensions from the slowest to the fastest in memory; row-major by default.
    """
    order = list(range(t.rank)) if order is None else list(order)
    permuted = permute(t, order)
    kept = Buffer(builder.fresh(builder.hint), t.dtype, product(t.shape), "carry")
    strides = dense_strides(permuted.shape)
    builder.map(permuted.shape, t.dtype, permuted.at, out=Tensor(permuted.shape, t.dtype, Strided(kept, strides)))
    later = Tensor(permuted.shape, t.dtype, Strided(builder.later(kept), strides))
    return Blocks(kept, product(t.shape)), permute(later, [order.index(d) for d in range(len(order))])


def reads_memory(builder: Builder, t: Tensor, root: Buffer) -> bool:
    """Whether an element of the tensor is read from that memory."""
    return root in memory_read(builder, t)


def memory_read(builder: Builder, t: Tensor) -> set[Buffer]:
    """The pieces of memory that an element of the tensor is read from."""
    if t.strided is not None and not any(isinstance(a, Indirect) for a in t.strided.offset.atoms()):
        return {t.strided.buffer.root}
    return {load.buffer.root for load, _ in _loads(builder, t)}


def _loads(builder: Builder, t: Tensor) -> Iterator[tuple[Load, Index]]:
    """The loads of an element, and where the element lies in a dense tensor."""
    _, indices = builder.loops(t.shape)
    place = linear_index(indices, t.shape)
    for load in t.at(indices).loads:
        yield load, place


def settled(builder: Builder, targets: Sequence[tuple[Buffer, Tensor]]) -> list[tuple[Buffer, Tensor]]:
    """New values that still have to be stored in their memory. Those that read memory which is stored to meanwhile,
    other than their own elements, are computed first."""
    pending = [(root, t) for root, t in targets if not _there(builder, root, t)]
    roots = {root for root, _ in pending}
    found = []
    for root, t in pending:
        foreign = any(
            load.buffer.root in roots and (load.buffer.root is not root or load.index != place)
            for load, place in _loads(builder, t)
        )
        found.append((root, builder.copy(t) if foreign else t))
    return found


def _there(builder: Builder, root: Buffer, t: Tensor) -> bool:
    return t.strided is not None and t.strided.buffer is builder.latest(root) and is_dense(t)


def store_over(builder: Builder, root: Buffer, t: Tensor) -> None:
    """The tensor, dense, as the next value in the memory."""
    later = builder.later(root)
    out = Tensor(t.shape, t.dtype, Strided(later, dense_strides(t.shape)))
    builder.origin = Origin(("aten.copy",), builder.origin.lines, builder.origin.nodes)
    builder.map(t.shape, t.dtype, t.at, out=out)

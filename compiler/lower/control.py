"""Lowering of control flow: branches and loops that the host runs, around blocks of nodes.

    y = cond(p, a, b, (x,))            choose y by p { y = a(x) } else { y = b(x) }
    c, y = scan(f, [c], [x], ())       repeat t of n times { c, y[t] = f(c, x[t]) }

What a loop hands on lies in memory that its body writes in place (kind carry), so that a body that changes a few
elements of it writes only those. The slices of a scan's operands are views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx

from ...runtime.errors import CompileError
from ..capture.control import operands_of
from ..capture.graph import ModelGraph
from ..ir.dtypes import from_torch
from ..ir.index import Index, Size, of, product
from ..ir.nodes import AnyNode, Buffer, Choose, Repeat
from .builder import Builder
from .in_place import settled, store_over
from .tensor import Shape, Strided, Tensor, dense_strides, is_dense, select

#: lowers a region for the values of its inputs
Lower = Callable[[ModelGraph, Sequence[Any]], list[Tensor]]


def lower_control(builder: Builder, node: torch.fx.Node, args: Sequence[Any], lower: Lower) -> tuple[Tensor, ...]:
    """The results of a node of control flow; among its arguments are ModelGraphs for its bodies."""
    if builder.family == "cuda":
        raise CompileError(
            f"torch.ops.higher_order.{node.target} runs on the CPU alone so far",
            hint="Compile for the CPU (--target cpu), or use torch.where.",
        )
    given = operands_of(str(node.target), args)
    if node.target is torch.ops.higher_order.cond:
        return _choose(builder, node, given.flag, given.bodies, given.shared, lower)
    if node.target is torch.ops.higher_order.while_loop:
        return _while(builder, given.bodies, given.own, given.shared, lower)
    kept = len(given.own) - given.sliced
    return _scan(builder, node, given.bodies[0], given.own[:kept], given.own[kept:], given.shared, lower)


@contextmanager
def _block(builder: Builder) -> Iterator[list[AnyNode]]:
    """Nodes that are added inside belong to the list."""
    outer, defined, origin, hint = builder.nodes, len(builder.defines), builder.origin, builder.hint
    builder.nodes = []
    try:
        yield builder.nodes
    finally:
        builder.nodes, builder.origin, builder.hint = outer, origin, hint
    if len(builder.defines) > defined:
        raise CompileError("a size depends on the values of a tensor inside of a branch or loop, where none may")


def _choose(
    builder: Builder,
    node: torch.fx.Node,
    flag: Tensor,
    bodies: Sequence[ModelGraph],
    shared: Sequence[Any],
    lower: Lower,
) -> tuple[Tensor, ...]:
    condition = _flag(builder, flag)
    results = [builder.temp(builder.sizes.shape(v.shape), from_torch(v.dtype)) for v in node.meta["val"]]
    blocks = []
    for body in bodies:
        with _block(builder) as nodes:
            for result, t in zip(results, lower(body, shared), strict=True):
                builder.map(t.shape, t.dtype, t.at, out=result)
        blocks.append(tuple(nodes))
    then, other = blocks
    builder.add(Choose((), (), builder.origin, condition, then, other, tuple(_buffer(r) for r in results)))
    return tuple(results)


def _while(
    builder: Builder, bodies: Sequence[ModelGraph], carried: Sequence[Tensor], shared: Sequence[Any], lower: Lower
) -> tuple[Tensor, ...]:
    handed = [_carry(builder, t.shape, t.dtype, t) for t in carried]
    with _block(builder) as test:
        (condition,) = lower(bodies[0], [*handed, *shared])
        flag = _flag(builder, condition)
    with _block(builder) as body:
        _hand_on(builder, handed, lower(bodies[1], [*handed, *shared]))
    return _repeat(builder, handed, test=tuple(test), flag=flag, body=tuple(body))


def _scan(
    builder: Builder,
    node: torch.fx.Node,
    body: ModelGraph,
    carried: Sequence[Tensor],
    sliced: Sequence[Tensor],
    shared: Sequence[Any],
    lower: Lower,
) -> tuple[Tensor, ...]:
    values = node.meta["val"]
    kept = len(carried)
    handed = [_carry(builder, t.shape, t.dtype, t) for t in carried]
    columns = [_carry(builder, builder.sizes.shape(v.shape), from_torch(v.dtype)) for v in values[kept:]]
    count = sliced[0].shape[0]
    last = count.constant
    turn = Size(builder.fresh("turn"), 0, None if last is None else max(last - 1, 0))
    with _block(builder) as nodes:
        results = lower(body, [*handed, *(select(x, 0, of(turn)) for x in sliced), *shared])
        for column, t in zip(columns, results[kept:], strict=True):
            assert column.strided is not None
            later = Strided(builder.later(_buffer(column)), column.strided.strides, column.strided.offset)
            row = select(Tensor(column.shape, column.dtype, later), 0, of(turn))
            builder.map(t.shape, t.dtype, t.at, out=row)
        _hand_on(builder, handed, results[:kept])
    return _repeat(builder, [*handed, *columns], turn=turn, count=count, body=tuple(nodes))


def _repeat(
    builder: Builder,
    handed: Sequence[Tensor],
    body: tuple[AnyNode, ...],
    test: tuple[AnyNode, ...] = (),
    flag: Buffer | None = None,
    turn: Size | None = None,
    count: Index | None = None,
) -> tuple[Tensor, ...]:
    last = [builder.latest(_buffer(t)) for t in handed]
    changed = tuple(b for b, t in zip(last, handed, strict=True) if b is not _buffer(t))
    builder.add(Repeat((), (), builder.origin, test, flag, turn, count, body, changed))
    return tuple(
        Tensor(t.shape, t.dtype, Strided(b, dense_strides(t.shape))) for b, t in zip(last, handed, strict=True)
    )


def _hand_on(builder: Builder, handed: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    targets = [(_buffer(t), result) for t, result in zip(handed, results, strict=True)]
    for root, t in settled(builder, targets):
        store_over(builder, root, t)


def _carry(builder: Builder, shape: Shape, dtype: str, first: Tensor | None = None) -> Tensor:
    """Memory that a loop hands on, with its first value."""
    buffer = Buffer(builder.fresh(builder.hint), dtype, product(shape), "carry")
    made = Tensor(shape, dtype, Strided(buffer, dense_strides(shape)))
    if first is not None:
        builder.map(shape, dtype, first.at, out=made)
    return made


def _flag(builder: Builder, t: Tensor) -> Buffer:
    """A bool that the host reads."""
    if t.strided is None or t.strided.buffer.kind != "temp" or not is_dense(t):
        t = builder.copy(t)
    return _buffer(t)


def _buffer(t: Tensor) -> Buffer:
    assert t.strided is not None
    return t.strided.buffer

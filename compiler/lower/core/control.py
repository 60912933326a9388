"""Lowering of control flow: branches and loops that the host runs, around blocks of nodes.

    y = cond(p, a, b, (x,))            choose y by p { y = a(x) } else { y = b(x) }
    c, y = scan(f, [c], [x], ())       repeat t of n times { c, y[t] = f(c, x[t]) }

What a loop hands on lies in memory that its body writes in place (kind carry), so that a body that changes a few
elements of it writes only those. The slices of a scan's operands are views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from ....runtime.errors import CompileError
from ...ir.buffers import Buffer
from ...ir.dtypes import from_torch
from ...ir.index import ZERO, Index, Size, of, product
from ...ir.program import AnyNode, Choose, Repeat
from ...model.control import Operands, operands_of
from ...model.graph import ModelGraph
from ...model.random_operators import draws_random_numbers
from ..random import mersenne, philox
from .builder import Builder
from .in_place import settled, store_over
from .tensor import Shape, Strided, Tensor, dense_strides, is_dense, select

#: lowers a region for the values of its inputs
Lower = Callable[[ModelGraph, Sequence[Any]], list[Tensor]]
#: shape and dtype of a result
Form = tuple[Shape, str]


def lower_control(builder: Builder, node: torch.fx.Node, args: Sequence[Any], lower: Lower) -> tuple[Tensor, ...]:
    """The results of a node of control flow; among its arguments are ModelGraphs for its bodies."""
    given = operands_of(str(node.target), args)
    forms = [
        (builder.sizes.shape(v.shape), from_torch(v.dtype)) for v in node.meta["val"] if isinstance(v, torch.Tensor)
    ]
    if any(draws_random_numbers(body) for body in given.bodies):
        return _with_generator(builder, given, forms, lower)
    return _lowered(builder, given, forms, lower)


def _lowered(builder: Builder, given: Operands, forms: Sequence[Form], lower: Lower) -> tuple[Tensor, ...]:
    if given.flag is not None:
        return _choose(builder, given, forms, lower)
    if len(given.bodies) == 2:
        return _while(builder, given, lower)
    return _scan(builder, given, forms, lower)


def _with_generator(builder: Builder, given: Operands, forms: Sequence[Form], lower: Lower) -> tuple[Tensor, ...]:
    """The generator of random numbers is the first value that bodies take, change and hand on."""
    if given.flag is None and len(given.bodies) == 2 and draws_random_numbers(given.bodies[0]):
        raise CompileError("the condition of a while_loop draws random numbers", hint="Draw them in its body.")
    generator = mersenne.generator if builder.family == "cpu" else philox.position

    def drawing(body: ModelGraph, inputs: Sequence[Any]) -> list[Tensor]:
        builder.generator, builder.drawn = inputs[0], ZERO
        results = lower(body, inputs[1:])
        return [generator(builder), *results]

    first = generator(builder)
    if given.flag is not None:
        given = replace(given, shared=(first, *given.shared))
    else:
        given = replace(given, own=(first, *given.own))
    builder.generator, *results = _lowered(builder, given, [(first.shape, first.dtype), *forms], drawing)
    builder.drawn = ZERO
    return tuple(results)


@contextmanager
def block(builder: Builder) -> Iterator[list[AnyNode]]:
    """Nodes that are added inside belong to the list."""
    outer, known, origin, hint = builder.nodes, builder.known, builder.origin, builder.hint
    builder.nodes, builder.known = [], list(known)
    builder.depth += 1
    try:
        yield builder.nodes
    finally:
        builder.nodes, builder.known, builder.origin, builder.hint = outer, known, origin, hint
        builder.depth -= 1


def _choose(builder: Builder, given: Operands, forms: Sequence[Form], lower: Lower) -> tuple[Tensor, ...]:
    condition = _flag(builder, given.flag)
    results = [builder.temp(*form) for form in forms]
    blocks = []
    for body in given.bodies:
        with block(builder) as nodes:
            for result, t in zip(results, lower(body, given.shared), strict=True):
                builder.map(t.shape, t.dtype, t.at, out=result)
        blocks.append(tuple(nodes))
    then, other = blocks
    builder.add(Choose((), (), builder.origin, condition, then, other, tuple(_buffer(r) for r in results)))
    return tuple(results)


def _while(builder: Builder, given: Operands, lower: Lower) -> tuple[Tensor, ...]:
    handed = [carry(builder, t.shape, t.dtype, t) for t in given.own]
    with block(builder) as test:
        *_, condition = lower(given.bodies[0], [*handed, *given.shared])
        flag = _flag(builder, condition)
    with block(builder) as body:
        _hand_on(builder, handed, lower(given.bodies[1], [*handed, *given.shared]))
    return repeat(builder, handed, test=tuple(test), flag=flag, body=tuple(body))


def _scan(builder: Builder, given: Operands, forms: Sequence[Form], lower: Lower) -> tuple[Tensor, ...]:
    kept = len(given.own) - given.sliced
    sliced = given.own[kept:]
    handed = [carry(builder, t.shape, t.dtype, t) for t in given.own[:kept]]
    columns = [carry(builder, *form) for form in forms[kept:]]
    count = sliced[0].shape[0]
    iteration = iteration_of(builder, count)
    with block(builder) as nodes:
        results = lower(given.bodies[0], [*handed, *(select(x, 0, of(iteration)) for x in sliced), *given.shared])
        for column, t in zip(columns, results[kept:], strict=True):
            row = select(builder.later_view(column), 0, of(iteration))
            builder.map(t.shape, t.dtype, t.at, out=row)
        _hand_on(builder, handed, results[:kept])
    return repeat(builder, [*handed, *columns], iteration=iteration, count=count, body=tuple(nodes))


def iteration_of(builder: Builder, count: Index) -> Size:
    """The number of the time, for the body of a loop of `count` times."""
    last = count.constant
    return Size(builder.fresh("iteration"), 0, None if last is None else max(last - 1, 0))


def repeat(
    builder: Builder,
    handed: Sequence[Tensor],
    body: tuple[AnyNode, ...],
    test: tuple[AnyNode, ...] = (),
    flag: Buffer | None = None,
    iteration: Size | None = None,
    count: Index | None = None,
) -> tuple[Tensor, ...]:
    """Adds a loop over `body` to the program; with `test`, its nodes set `flag`, and the loop runs while that holds."""
    last = [builder.latest(_buffer(t)) for t in handed]
    changed = tuple(b for b, t in zip(last, handed, strict=True) if b is not _buffer(t))
    builder.add(Repeat((), (), builder.origin, test, flag, iteration, count, body, changed))
    return tuple(
        Tensor(t.shape, t.dtype, Strided(b, dense_strides(t.shape))) for b, t in zip(last, handed, strict=True)
    )


def _hand_on(builder: Builder, handed: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    targets = [(_buffer(t), result) for t, result in zip(handed, results, strict=True)]
    for root, t in settled(builder, targets):
        store_over(builder, root, t)


def carry(builder: Builder, shape: Shape, dtype: str, first: Tensor | None = None) -> Tensor:
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

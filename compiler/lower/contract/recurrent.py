"""Recurrent layers: a loop over the steps that the host runs, so that the kernels of a layer stand once.

    gates = x @ w_input + b_input                                for all steps in one product
    repeat t of steps times:
        own = h @ w_hidden + b_hidden
        h, c = cell(gates[t], own, h, c);  y[t] = h

With projections h is multiplied by one more weight before it is kept. The other direction takes the steps from the
last one on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, cast
from ...ir.index import Size, as_index, of
from ...ir.nodes import Map, Store
from ..core.builder import call, number
from ..core.context import ConstantRef, Context
from ..core.control import block, carry, iteration_of, repeat
from ..core.registry import row
from ..core.tensor import Tensor, select, slice_dim
from .matmul import linear_with

#: what the input, or the state, adds to a gate
Gate: TypeAlias = Callable[[int], Expr]
Weight: TypeAlias = tuple[Tensor, ConstantRef | None]
#: what a step computes of both shares and an element of the states: the new states; the first one is the output
Cell: TypeAlias = Callable[[Gate, Gate, Sequence[Expr]], tuple[Expr, ...]]


def _lstm(x: Gate, own: Gate, states: Sequence[Expr]) -> tuple[Expr, ...]:
    i, f, g, o = (call("add", x(k), own(k)) for k in range(4))
    kept, new = call("mul", call("sigmoid", f), states[1]), call("mul", call("sigmoid", i), call("tanh", g))
    c = call("add", kept, new)
    return call("mul", call("sigmoid", o), call("tanh", c)), c


def _gru(x: Gate, own: Gate, states: Sequence[Expr]) -> tuple[Expr, ...]:
    r, z = (call("sigmoid", call("add", x(k), own(k))) for k in range(2))
    n = call("tanh", call("add", x(2), call("mul", r, own(2))))
    return (call("add", call("mul", call("sub", states[0], n), z), n),)


def _tanh(x: Gate, own: Gate, _: Sequence[Expr]) -> tuple[Expr, ...]:
    return (call("tanh", call("add", x(0), own(0))),)


def _relu(x: Gate, own: Gate, _: Sequence[Expr]) -> tuple[Expr, ...]:
    total = call("add", x(0), own(0))
    return (call("maximum", total, number(0.0, total.dtype)),)


CELLS: dict[str, Cell] = {
    "aten.lstm.input": _lstm,
    "aten.gru.input": _gru,
    "aten.rnn_tanh.input": _tanh,
    "aten.rnn_relu.input": _relu,
}


@row(*CELLS)
def recurrent(
    ctx: Context,
    x: Tensor,
    first: Tensor | Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """x [steps, batch, in] or [batch, steps, in], states [layers * directions, batch, n]: the outputs of the last
    layer, and the last states."""
    if train and dropout and num_layers > 1:
        raise ctx.refuse("dropout between recurrent layers while training")
    directions = 2 if bidirectional else 1
    count = len(params) // (num_layers * directions)
    biases = 2 if has_biases else 0
    axis = 1 if batch_first else 0
    layer = _Layer(ctx, CELLS[str(ctx.node.target)], axis, iteration_of(ctx.builder, x.shape[axis]), biases)
    starts = [first] if isinstance(first, Tensor) else list(first)
    ends, y = [], x
    for place in range(num_layers * directions):
        if place % directions == 0:
            x = ctx.builder.latest_view(y)
            y = carry(ctx.builder, (*x.shape[:2], starts[0].shape[2] * directions), x.dtype)
        weights = layer.weights(params, place * count, count)
        states = [select(s, 0, as_index(place)) for s in starts]
        ends.append(layer.direction(x, states, weights, y, place % directions))
    return (ctx.builder.latest_view(y), *(_stacked(ctx, states) for states in zip(*ends, strict=True)))


@dataclass(frozen=True)
class _Layer:
    """Writes the nodes of a layer. axis: of the steps. iteration: the number of a step, whose name is the same in
    all layers, so that they share kernels. biases: how many follow the two weights of a direction, before its
    projection if it has one."""

    ctx: Context
    cell: Cell
    axis: int
    iteration: Size
    biases: int

    def weights(self, params: Sequence[Tensor], start: int, count: int) -> list[Weight]:
        nodes = self.ctx.node.args[2]
        return [(params[i], self.ctx.constant_at(nodes[i])) for i in range(start, start + count)]  # type: ignore[index]

    def direction(
        self, x: Tensor, first: Sequence[Tensor], weights: Sequence[Weight], y: Tensor, backwards: int
    ) -> list[Tensor]:
        """Writes one direction's share of y [.., .., directions * n]; its last states."""
        builder = self.ctx.builder
        biases: list[Tensor | None] = [b for b, _ in weights[2 : 2 + self.biases]] or [None, None]
        gates = linear_with(self.ctx, x, *weights[0], biases[0])
        states = [carry(builder, s.shape, s.dtype, s) for s in first]
        size, steps = states[0].shape[1], x.shape[self.axis]
        at = steps - 1 - of(self.iteration) if backwards else of(self.iteration)
        with block(builder) as body:
            own = linear_with(self.ctx, states[0], *weights[1], biases[1])
            share = slice_dim(builder.later_view(y), 2, size * backwards, size)
            out = select(share, self.axis, at)
            self._step(select(gates, self.axis, at), own, states, out, weights[2 + self.biases :])
        return list(repeat(builder, [*states, y], body=tuple(body), iteration=self.iteration, count=steps)[:-1])

    def _step(
        self, gates: Tensor, own: Tensor, states: Sequence[Tensor], out: Tensor, projections: Sequence[Weight]
    ) -> None:
        """The new states, over the old ones, and the output; gates and own [batch, gates * n], out [batch, n] or, with
        a projection, what it makes of that."""
        builder, shape = self.ctx.builder, states[-1].shape
        loops, (m, n) = builder.loops(shape)
        wide = DTYPES[out.dtype].compute

        def gate(t: Tensor) -> Gate:
            return lambda k: cast(t.at([m, shape[1] * k + n]), wide)

        def old(state: Tensor) -> Expr:
            # The cell does not ask for the state that a projection made: it is of another size.
            return number(0.0, wide) if state.shape != shape else cast(state.at([m, n]), wide)

        values = self.cell(gate(gates), gate(own), [old(s) for s in states])
        first, *places = [builder.later_view(s) for s in states]
        outs = [builder.temp(shape, out.dtype)] if projections else [out, first]
        rows = [*((t, values[0]) for t in outs), *zip(places, values[1:], strict=True)]
        stores = tuple(Store(t.strided.buffer, t.place([m, n]), cast(v, t.dtype)) for t, v in rows if t.strided)
        builder.add(Map(loops, stores, builder.origin))
        for weight in projections:
            shared = linear_with(self.ctx, outs[0], *weight, None)
            for t in (out, first):
                builder.map(out.shape, out.dtype, shared.at, out=t)


def _stacked(ctx: Context, states: Sequence[Tensor]) -> Tensor:
    out = ctx.builder.temp((as_index(len(states)), *states[0].shape), states[0].dtype)
    for i, state in enumerate(states):
        ctx.builder.map(state.shape, state.dtype, state.at, out=select(out, 0, as_index(i)))
    return out

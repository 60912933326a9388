"""Our own decompositions of recurrent layers and cells: gates from products, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ....runtime.errors import CompileError
from .definitions import definition


@definition("aten.lstm.input")
def lstm(
    x: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Time step by time step; the input's share of all gates in one product before."""
    x = x.transpose(0, 1) if batch_first else x
    directions = 2 if bidirectional else 1
    count = len(params) // (num_layers * directions)
    _check_steps("lstm", x, 0)
    last_h, last_c = [], []
    for layer in range(num_layers):
        outs = []
        for d in range(directions):
            row = layer * directions + d
            own = params[row * count : (row + 1) * count]
            out, h, c = _lstm_direction(x, states[0][row], states[1][row], own, has_biases, backwards=d == 1)
            outs.append(out)
            last_h.append(h)
            last_c.append(c)
        x = torch.cat(outs, -1) if directions == 2 else outs[0]
    return (x.transpose(0, 1) if batch_first else x), torch.stack(last_h), torch.stack(last_c)


def _check_steps(name: str, x: Tensor, axis: int) -> None:
    if not isinstance(x.shape[axis], int):
        raise CompileError(
            f"{name} with a dynamic number of time steps: for a GPU the steps are unrolled, one after the other",
            hint="Compile for a CPU, or with a fixed number of steps for a GPU.",
        )


def _unrolled(name: str) -> None:
    layer = getattr(torch.ops.aten, name).input

    @definition(f"aten.{name}.input")
    def steps(x: Tensor, *args: Any) -> Any:
        """As torch writes it, step by step."""
        _check_steps(name, x, 1 if args[-1] else 0)
        return layer.decompose(x, *args)


for _name in ("gru", "rnn_tanh", "rnn_relu"):
    _unrolled(_name)


def _lstm_direction(
    x: Tensor, h: Tensor, c: Tensor, params: Sequence[Tensor], has_biases: bool, backwards: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """One layer in one direction: x [t, b, i], c [b, n], weights [4n, i] and [4n, p], two biases [4n] and, where h
    [b, p] is projected, a weight [p, n]."""
    linear = torch.nn.functional.linear
    (w_input, w_hidden), rest = params[:2], params[2:]
    (b_input, b_hidden), projections = (rest[:2], rest[2:]) if has_biases else ((None, None), rest)
    gates_of_input = linear(x, w_input, b_input)
    outs: list[Tensor] = []
    for t in reversed(range(x.shape[0])) if backwards else range(x.shape[0]):
        gates = gates_of_input[t] + linear(h, w_hidden, b_hidden)
        h, c = _lstm_gates(gates, c)
        for weight in projections:
            h = linear(h, weight)
        outs.append(h)
    return torch.stack(outs[::-1] if backwards else outs), h, c


def _lstm_gates(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The new h and c of gates [b, 4n]; rounded to the type once."""
    dtype, wide = c.dtype, torch.float32 if c.dtype.itemsize == 2 else c.dtype
    i, f, g, o = gates.to(wide).chunk(4, -1)
    c = torch.sigmoid(f) * c.to(wide) + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return h.to(dtype), c.to(dtype)


@definition("aten.lstm_cell")
def lstm_cell(x: Tensor, state: Sequence[Tensor], w_input: Tensor, w_hidden: Tensor, *bias: Tensor) -> Any:
    return _lstm_gates(_of_both(x, state[0], w_input, w_hidden, *bias), state[1])


@definition("aten.gru_cell")
def gru_cell(x: Tensor, h: Tensor, w_input: Tensor, w_hidden: Tensor, *bias: Tensor | None) -> Tensor:
    linear, (b_input, b_hidden) = torch.nn.functional.linear, bias or (None, None)
    r, z, n = linear(x, w_input, b_input).chunk(3, -1)
    r_h, z_h, n_h = linear(h, w_hidden, b_hidden).chunk(3, -1)
    z, n = torch.sigmoid(z + z_h), torch.tanh(n + torch.sigmoid(r + r_h) * n_h)
    return (h - n) * z + n


@definition("aten.rnn_tanh_cell")
def rnn_tanh_cell(x: Tensor, h: Tensor, *params: Tensor) -> Tensor:
    return torch.tanh(_of_both(x, h, *params))


@definition("aten.rnn_relu_cell")
def rnn_relu_cell(x: Tensor, h: Tensor, *params: Tensor) -> Tensor:
    return torch.relu(_of_both(x, h, *params))


def _of_both(
    x: Tensor,
    h: Tensor,
    w_input: Tensor,
    w_hidden: Tensor,
    b_input: Tensor | None = None,
    b_hidden: Tensor | None = None,
) -> Tensor:
    linear = torch.nn.functional.linear
    return linear(x, w_input, b_input) + linear(h, w_hidden, b_hidden)

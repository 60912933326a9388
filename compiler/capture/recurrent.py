"""Recurrent layers with a dynamic number of steps: torch walks over the steps to find the shapes, and fixes how many.

In the capture they are operators of mycc's own, of the same arguments; normalising gives them torch's names again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..model.operators.own import own_operator

__all__ = ["of_all_lengths"]

_REST = (
    "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"
)


def _shapes(x: Tensor, states: Sequence[Tensor], bidirectional: bool) -> tuple[Tensor, ...]:
    width: Any = states[0].shape[2]
    y = x.new_empty([*x.shape[:2], 2 * width if bidirectional else width])
    return (y, *(s.new_empty(s.shape) for s in states))


def _define(name: str) -> None:
    """mycc::name, which computes what torch's layer does."""
    layer, several = getattr(torch, name), name == "lstm"
    states, results = ("Tensor[] hx", "Tensor, Tensor, Tensor") if several else ("Tensor hx", "Tensor, Tensor")

    def fake(x: Tensor, first: Any, *rest: Any) -> tuple[Tensor, ...]:
        return _shapes(x, first if several else [first], rest[5])

    @own_operator(f"{name}(Tensor input, {states}, {_REST}) -> ({results})", fake)
    def run(*args: Any) -> tuple[Tensor, ...]:
        return tuple(t.contiguous() for t in layer(*args))


for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    _define(_name)


_ORDER = ("hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")


def of_all_lengths(layer: Callable[..., Any], input: Any = None, *args: Any, **named: Any) -> Any:
    """A call of torch.lstm, gru, rnn_tanh or rnn_relu, of sequences that are packed or not."""
    if input is None or not {*named} <= {*_ORDER}:  # packed, by names
        return layer(*(() if input is None else (input,)), *args, **named)
    call = (input, *args, *(named[name] for name in _ORDER if name in named))
    packed = (layer is torch.lstm and isinstance(call[1], Tensor)) or not isinstance(call[3], bool)
    if packed or not isinstance(input.shape[1 if call[-1] else 0], torch.SymInt):
        return layer(*call)
    return getattr(torch.ops.mycc, layer.__name__)(*call)

"""Recurrences over time: the CTC loss and recursive filters (kernels/linalg/sequences.h)."""

from __future__ import annotations

from ...ir.index import as_index
from ..core.context import Context
from ..core.registry import row
from ..core.routines import call_routine
from ..core.tensor import Tensor, expand, permute, unsqueeze


@row("mycc.ctc_loss.default")
def ctc_loss(ctx: Context, probs: Tensor, labels: Tensor, first: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """The loss of each sequence, [batch]; model/operators/own.py has the operands."""
    steps, batch, classes = probs.shape
    operands = [(permute(probs, [1, 0, 2]), 2), (labels, 1), (first, 0), (lengths, 1)]
    sizes = [steps, classes, labels.shape[0], as_index(blank)]
    return call_routine(ctx.builder, "ctc", (batch,), operands, [((), probs.dtype)], sizes)[0]


@row("mycc.torchaudio___lfilter_core_loop.default")
def recursive_filter(ctx: Context, x: Tensor, coefficients: Tensor, before: Tensor) -> tuple[Tensor, ...]:
    """torchaudio's loop of lfilter: what it leaves in its third argument, [batch, channels, n + order - 1].

    x: [batch, channels, n]. coefficients: [channels, order], that of the oldest value first.
    """
    batch, channels, n = x.shape
    order = coefficients.shape[1]
    each = expand(unsqueeze(coefficients, 0), (batch, channels, order))
    outputs = [((before.shape[2],), x.dtype)]
    operands = [(x, 1), (each, 1), (before, 1)]
    return tuple(call_routine(ctx.builder, "recursive_filter", (batch, channels), operands, outputs, [n, order]))

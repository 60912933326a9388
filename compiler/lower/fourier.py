"""Fourier transforms of the last dimension: routines of mycc/fft.h (graph/complex/fourier.py makes the calls)."""

from __future__ import annotations

from ..ir.index import Index
from .context import Context
from .registry import row
from .routines import call_routine
from .tensor import Tensor


def _table(ctx: Context, given: Tensor | None, n: Index, dtype: str, half: bool) -> Tensor:
    """The constant table, or one made in front of the transform, as large as any size could need."""
    if given is not None:
        return given
    outputs = [((n * 20 + 2,), dtype)]
    return call_routine(ctx.builder, "fft_table", (), [], outputs, [n, int(half)])[0]


@row("mycc.fft.default")
def fft(ctx: Context, re: Tensor, im: Tensor, table: Tensor | None, forward: bool) -> tuple[Tensor, ...]:
    """Backwards, both the parts of the operand and those of the result change places."""
    n = re.shape[-1]
    roots = _table(ctx, table, n, re.dtype, half=False)
    operands = (re, im) if forward else (im, re)
    inputs = [*((t, 1) for t in operands), (roots, 1)]
    a, b = call_routine(ctx.builder, "fft", re.shape[:-1], inputs, [((n,), re.dtype)] * 2, [n])
    return (a, b) if forward else (b, a)


@row("mycc.rfft.default")
def rfft(ctx: Context, x: Tensor, table: Tensor | None) -> tuple[Tensor, ...]:
    n = x.shape[-1]
    roots = _table(ctx, table, n, x.dtype, half=True)
    outputs = [((n // 2 + 1,), x.dtype)] * 2
    return tuple(call_routine(ctx.builder, "rfft", x.shape[:-1], [(x, 1), (roots, 1)], outputs, [n]))


@row("mycc.irfft.default")
def irfft(ctx: Context, re: Tensor, im: Tensor, table: Tensor | None, n: Index | int) -> Tensor:
    size = ctx.size(n)
    roots = _table(ctx, table, size, re.dtype, half=True)
    inputs = [(re, 1), (im, 1), (roots, 1)]
    return call_routine(ctx.builder, "irfft", re.shape[:-1], inputs, [((size,), re.dtype)], [size])[0]

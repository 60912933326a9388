"""Pooling: reductions over a window; positions in the padding are left out by a condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.conditions import neutral
from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, IndexValue, cast
from ...ir.index import (
    ONE,
    ZERO,
    Index,
    as_index,
    maximum,
    minimum,
)
from ..core.builder import compare, number, quotient, size_value, where
from ..core.context import Context, ints
from ..core.registry import row
from ..core.tensor import Tensor, squeeze, unsqueeze


@row("aten.max_pool2d.default")
def max_pool2d(
    ctx: Context, x: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Tensor:
    return _pool(ctx, x, "max", ints(kernel, 2), _stride(stride, kernel), ints(padding, 2), ints(dilation, 2), None)


@row("aten.avg_pool2d.default")
def avg_pool2d(
    ctx: Context,
    x: Tensor,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Tensor:
    pad = ints(padding, 2)
    counted = _average(x, ints(kernel, 2), _stride(stride, kernel), pad, count_include_pad, divisor)
    return _pool(ctx, x, "sum", ints(kernel, 2), _stride(stride, kernel), pad, (1, 1), counted)


@row("aten.max_pool1d.default")
def max_pool1d(ctx: Context, x: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, *rest: Any) -> Tensor:
    s = _stride(stride, kernel)[-1:]
    wide = unsqueeze(x, x.rank - 1)
    dilation = (1, *ints(rest[0], 1)) if rest else (1, 1)
    out = _pool(
        ctx, wide, "max", (1, *ints(kernel, 1)[-1:]), (1, *s), (0, *ints(padding, 1)), dilation, None, wide=True
    )
    return squeeze(out, out.rank - 2)


@row("aten.avg_pool1d.default")
def avg_pool1d(ctx: Context, x: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, *rest: Any) -> Tensor:
    s = _stride(stride, kernel)[-1:]
    wide = unsqueeze(x, x.rank - 1)
    k, p = (1, *ints(kernel, 1)[-1:]), (0, *ints(padding, 1))
    include = rest[1] if len(rest) > 1 else True
    out = _pool(ctx, wide, "sum", k, (1, *s), p, (1, 1), _average(wide, k, (1, *s), p, include, None), wide=True)
    return squeeze(out, out.rank - 2)


@row("aten.adaptive_avg_pool2d.default", "aten._adaptive_avg_pool2d.default")
def adaptive_avg_pool2d(ctx: Context, x: Tensor, output_size: Sequence[Any]) -> Tensor:
    rank = x.rank
    out_shape = ctx.result_shape()
    h, w = x.shape[-2:]
    oh, ow = out_shape[-2:]
    if (h % oh) == ZERO and (w % ow) == ZERO:
        kernel = (h // oh, w // ow)
        count = size_value(kernel[0] * kernel[1], DTYPES[x.dtype].compute)
        return _windows(
            ctx,
            x,
            "sum",
            kernel,
            lambda d, o, k: o * kernel[d] + k,
            lambda *_: None,
            lambda acc, _: quotient(acc, count),
        )
    sizes, outs = (h, w), (oh, ow)

    def start(d: int, o: Index) -> Index:
        return (o * sizes[d]) // outs[d]

    def end(d: int, o: Index) -> Index:
        return ((o + 1) * sizes[d] + (outs[d] - 1)) // outs[d]

    def valid(d: int, o: Index, k: Index) -> Expr:
        return compare("lt", IndexValue(start(d, o) + k), IndexValue(end(d, o)))

    def finish(acc: Expr, at: Sequence[Index]) -> Expr:
        area = (end(0, at[0]) - start(0, at[0])) * (end(1, at[1]) - start(1, at[1]))
        return quotient(acc, size_value(area, acc.dtype))

    def position(d: int, o: Index, k: Index) -> Index:
        return minimum(start(d, o) + k, sizes[d] - 1)

    assert rank in (3, 4)
    return _windows(ctx, x, "sum", (widest(h, oh), widest(w, ow)), position, valid, finish)


def widest(size: Index, out: Index) -> Index:
    """As many places as the widest of `out` windows has, which cover a dimension from floor(o size / out) to
    ceil((o + 1) size / out); dynamic, a bound."""
    s, n = size.constant, out.constant
    if s is None or n is None:
        return (size + (out - 1)) // out + 1
    return as_index(max((-(-(o + 1) * s // n) - o * s // n for o in range(n)), default=1))


def _stride(stride: Any, kernel: Any) -> tuple[int, ...]:
    return ints(kernel, 2) if stride is None or stride == [] or stride == () else ints(stride, 2)


def _average(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int], include: bool, divisor: int | None
) -> Any:
    """The divisor of an average at an output position, as a function of (acc, output position)."""
    size = x.shape[-2:]

    def finish(acc: Expr, at: Sequence[Index]) -> Expr:
        if divisor is not None:
            return quotient(acc, number(float(divisor), acc.dtype))
        area = ONE
        for d in (0, 1):
            first = at[d] * stride[d] - pad[d]
            last = first + kernel[d]
            if include:
                area = area * (minimum(last, size[d] + pad[d]) - first)
            else:
                area = area * (minimum(last, size[d]) - maximum(first, ZERO))
        return quotient(acc, size_value(area, acc.dtype))

    return finish


def _pool(
    ctx: Context,
    x: Tensor,
    op: str,
    kernel: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[int],
    dilation: Sequence[int],
    finish: Any,
    wide: bool = False,
) -> Tensor:
    def position(d: int, o: Index, k: Index) -> Index:
        own = o * stride[d] + k * dilation[d] - pad[d]
        return minimum(maximum(own, ZERO), x.shape[d - 2] - 1)

    def valid(d: int, o: Index, k: Index) -> Expr | None:
        own = o * stride[d] + k * dilation[d] - pad[d]
        n = x.shape[d - 2]
        conditions = []
        if not own.nonnegative():
            conditions.append(compare("ge", IndexValue(own), IndexValue(ZERO)))
        if not (n - own - 1).nonnegative():
            conditions.append(compare("lt", IndexValue(own), IndexValue(n)))
        return all_of(conditions)

    end = finish or (lambda acc, _: acc)
    taps = [reached(kernel[d], x.shape[d - 2], pad[d], dilation[d]) for d in (0, 1)]
    return _windows(ctx, x, op, (taps[0], taps[1]), position, valid, end, wide)


def reached(kernel: int, size: Index, pad: int, dilation: int) -> Index:
    """The taps of a window that lie in front of the end of a dimension at least once: all where its size is dynamic.

    A window over a whole image may be written with more taps than the image has pixels (ceil_mode).
    """
    n = size.constant
    return as_index(kernel if n is None else min(kernel, (n + pad - 1) // dilation + 1))


def all_of(conditions: Sequence[Expr]) -> Expr | None:
    total: Expr | None = None
    for c in conditions:
        total = c if total is None else compare("logical_and", total, c)
    return total


def _windows(
    ctx: Context,
    x: Tensor,
    op: str,
    kernel: tuple[Index, Index],
    position: Any,
    valid: Any,
    finish: Any,
    wide: bool = False,
) -> Tensor:
    """Reduces x over windows: position(axis, out, tap) is the index read, valid(axis, out, tap) None or a condition."""
    shape = ctx.result_shape()
    if wide:
        shape = (*shape[:-1], ONE, shape[-1])
    lead = len(shape) - 2
    source = (*shape, kernel[0], kernel[1])
    compute = DTYPES[x.dtype].compute if DTYPES[x.dtype].kind == "i" else x.dtype
    identity = number(neutral(op, compute), compute)

    def value(i: list[Index]) -> Expr:
        at, taps = i[lead : lead + 2], i[lead + 2 :]
        own = cast(x.at([*i[:lead], position(0, at[0], taps[0]), position(1, at[1], taps[1])]), compute)
        condition = all_of([c for c in (valid(d, at[d], taps[d]) for d in (0, 1)) if c is not None])
        return own if condition is None else where(condition, own, identity)

    order = (*x.memory_order(), lead + 2, lead + 3)
    holder: list[list[Index]] = []

    def remember(i: list[Index]) -> Expr:
        holder.append(i)
        return value(i)

    (out,) = ctx.builder.reduce(
        source,
        [lead + 2, lead + 3],
        [(op, remember)],
        [(x.dtype, lambda accs: finish(accs[0], holder[0][lead : lead + 2]))],
        False,
        order,
    )
    return out

"""Pooling with places, in three dimensions, and adaptive maxima: a reduction over windows of any number of dimensions.

The pools of one and two dimensions without places are in pool.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, IndexValue, cast
from ...ir.index import (
    ONE,
    ZERO,
    Index,
    as_index,
    maximum,
    minimum,
    product,
)
from ...machine.cpu_loops import WINDOWS
from ..core.builder import (
    call,
    compare,
    number,
    quotient,
    size_value,
    where,
)
from ..core.context import Context, ints
from ..core.registry import row
from ..core.tensor import Shape, Tensor, linear_index
from .pool import all_of, reached, widest
from .scan import worst


@dataclass(frozen=True)
class Windows:
    """Windows over the last dimensions of a tensor: `taps` of them; at(d, o, k) is the position of tap k of window o.

    first(d, o) and last(d, o) bound the positions that count, last not included.
    """

    size: Shape
    taps: Shape
    at: Callable[[int, Index, Index], Index]
    first: Callable[[int, Index], Index]
    last: Callable[[int, Index], Index]

    def inside(self, d: int, o: Index, k: Index) -> list[Expr]:
        own, first, last = self.at(d, o, k), self.first(d, o), self.last(d, o)
        found = []
        if not (own - first).nonnegative():
            found.append(compare("ge", IndexValue(own), IndexValue(first)))
        if not (last - own - 1).nonnegative():
            found.append(compare("lt", IndexValue(own), IndexValue(last)))
        return found

    def step(self, d: int, o: Index) -> Index:
        """How far apart taps lie."""
        return self.at(d, o, ONE) - self.at(d, o, ZERO)

    def first_inside(self, d: int, o: Index) -> Index:
        """The position of the first tap that counts."""
        start, step = self.at(d, o, ZERO), self.step(d, o)
        before = maximum(self.first(d, o) - start, ZERO)
        return start + (before + (step - 1)) // step * step

    def clamped(self, d: int, o: Index, k: Index) -> Index:
        return minimum(maximum(self.at(d, o, k), ZERO), self.size[d] - 1)


def _sliding(
    size: Shape, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Windows:
    return Windows(
        size,
        tuple(reached(*of) for of in zip(kernel, size, padding, dilation, strict=True)),
        lambda d, o, k: o * stride[d] + k * dilation[d] - padding[d],
        lambda d, o: ZERO,
        lambda d, o: size[d],
    )


def _adaptive(size: Shape, out: Shape) -> Windows:
    """Window o of n over a dimension of size s: from floor(o s / n) to ceil((o + 1) s / n)."""

    def first(d: int, o: Index) -> Index:
        return (o * size[d]) // out[d]

    def last(d: int, o: Index) -> Index:
        return ((o + 1) * size[d] + (out[d] - 1)) // out[d]

    taps = tuple(widest(s, n) for s, n in zip(size, out, strict=True))
    return Windows(size, taps, lambda d, o, k: first(d, o) + k, first, last)


def _reduced(
    ctx: Context,
    x: Tensor,
    shape: Shape,
    windows: Windows,
    reductions: Sequence[str],
    finish: Sequence[tuple[str, Callable[[Sequence[Expr], list[Index]], Expr]]],
    of_nan: bool = False,
) -> list[Tensor]:
    """Reduces over the windows; finish(accumulators, position of the window). of_nan: the last accumulator is the
    number of the last tap that is NaN, or -1."""
    count = len(windows.taps)
    lead = len(shape) - count
    compute = DTYPES[x.dtype].compute
    identity = number(0 if reductions[0] == "sum" else worst(x.dtype, lowest=True), compute)
    holder: list[list[Index]] = []

    def value(i: list[Index]) -> Expr:
        holder.append(i)
        spots = [(d, i[lead + d], i[lead + count + d]) for d in range(count)]
        own = cast(x.at([*i[:lead], *(windows.clamped(*s) for s in spots)]), compute)
        condition = all_of([c for s in spots for c in windows.inside(*s)])
        return own if condition is None else where(condition, own, identity)

    def ended(function: Callable[[Sequence[Expr], list[Index]], Expr]) -> Callable[[list[Expr]], Expr]:
        return lambda accs: function(accs, holder[0][lead : lead + count])

    def nan_tap(i: list[Index]) -> Expr:
        tap = linear_index(i[lead + count :], windows.taps)
        return where(compare("isnan", value(i)), IndexValue(tap), number(-1, "i64"))

    source = (*shape, *windows.taps)
    rows = [(op, value) for op in reductions] + ([("max", nan_tap)] if of_nan else [])
    axes = list(range(lead + count, lead + 2 * count))
    ends = [(dtype, ended(function)) for dtype, function in finish]
    order = (*x.memory_order(), *axes)
    return ctx.builder.reduce(source, axes, rows, ends, False, order)


def _max_with_indices(ctx: Context, x: Tensor, windows: Windows) -> tuple[Tensor, ...]:
    """Maxima, and where each lies in the flat spatial dimensions: of NaN the last, of equal numbers the first. A window
    without a number above the least, -inf for floats, has its first place inside, never one in the padding."""
    shape, floats = ctx.result_shape(0), DTYPES[x.dtype].kind == "f"
    offsets = _offsets(windows) if floats else {}
    if offsets:
        (largest,) = _reduced(ctx, x, shape, windows, ["max"], [(x.dtype, lambda accs, _: accs[0])])
        return largest, _places_of(ctx, x, windows, largest, offsets)
    least = number(worst(x.dtype, lowest=True), DTYPES[x.dtype].compute)

    def place(accs: Sequence[Expr], o: list[Index]) -> Expr:
        rest = where(compare("ge", accs[2], number(0, "i64")), accs[2], accs[1]) if floats else accs[1]
        digits: list[Expr] = []
        for taps in reversed(windows.taps):
            digits.insert(0, call("remainder", rest, size_value(taps, "i64")))
            rest = call("floor_div", rest, size_value(taps, "i64"))
        flat: Expr = number(0, "i64")
        for d, digit in enumerate(digits):
            start, step = size_value(windows.at(d, o[d], ZERO), "i64"), size_value(windows.step(d, o[d]), "i64")
            at = call("add", start, call("mul", digit, step))
            flat = call("add", call("mul", flat, size_value(windows.size[d], "i64")), at)
        inside = linear_index([windows.first_inside(d, o[d]) for d in range(len(windows.size))], windows.size)
        return where(compare("eq", accs[0], least), size_value(inside, "i64"), flat)

    finish = [(x.dtype, lambda accs, _: accs[0]), ("i64", place)]
    return tuple(_reduced(ctx, x, shape, windows, ["max", "argmax"], finish, floats))


def _offsets(windows: Windows) -> dict[tuple[int, ...], int]:
    """The taps of small windows in order, and how far each lies behind the first in the flat dimensions; none where
    they are many, or distances are no numbers."""
    dims = range(len(windows.taps))
    taps = _numbers(windows.taps)
    steps = _numbers([windows.step(d, ZERO) for d in dims])
    inner = _numbers([product(windows.size[d + 1 :]) for d in dims])
    if taps is None or steps is None or inner is None or prod(taps) > WINDOWS.compared:
        return {}
    every = itertools.product(*(range(n) for n in taps))
    return {tap: sum(tap[d] * steps[d] * inner[d] for d in dims) for tap in every}


def _numbers(sizes: Sequence[Index]) -> list[int] | None:
    known = [n.constant for n in sizes if n.constant is not None]
    return known if len(known) == len(sizes) else None


def _places_of(
    ctx: Context, x: Tensor, windows: Windows, largest: Tensor, offsets: Mapping[tuple[int, ...], int]
) -> Tensor:
    """Where maxima lie, found by comparing each tap with them: lanes of a vector are windows, and taps are unrolled."""
    count = len(windows.taps)
    compute = DTYPES[x.dtype].compute

    def value(i: list[Index]) -> Expr:
        lead, o = i[:-count], i[-count:]
        top = cast(largest.at(i), compute)
        first, of_nan = number(0, "i32"), number(0, "i32")

        def found(tap: tuple[int, ...], op: str, *others: Expr) -> Expr:
            spots = [(d, o[d], as_index(tap[d])) for d in range(count)]
            own = cast(x.at([*lead, *(windows.clamped(*s) for s in spots)]), compute)
            condition = all_of([*(c for s in spots for c in windows.inside(*s)), compare(op, own, *others)])
            assert condition is not None
            return condition

        for tap, offset in reversed(list(offsets.items())):
            first = where(found(tap, "eq", top), number(offset, "i32"), first)
        for tap, offset in offsets.items():
            of_nan = where(found(tap, "isnan"), number(offset, "i32"), of_nan)
        start = linear_index([windows.at(d, o[d], ZERO) for d in range(count)], windows.size)
        behind = cast(where(compare("isnan", top), of_nan, first), "i64")
        return call("add", size_value(start, "i64"), behind)

    return ctx.builder.map(largest.shape, "i64", value, x.memory_order())


def _stride(stride: Any, kernel: Any, count: int) -> tuple[int, ...]:
    return ints(kernel if stride is None or not len(stride) else stride, count)


@row("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool_with_indices(
    ctx: Context, x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> tuple[Tensor, ...]:
    count = 3 if "3d" in str(ctx.node.target) else 2
    geometry = (_stride(stride, kernel, count), ints(padding, count), ints(dilation, count))
    return _max_with_indices(ctx, x, _sliding(x.shape[-count:], ints(kernel, count), *geometry))


@row("aten.max_pool3d.default")
def max_pool3d(
    ctx: Context, x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Tensor:
    windows = _sliding(x.shape[-3:], ints(kernel, 3), _stride(stride, kernel, 3), ints(padding, 3), ints(dilation, 3))
    return _reduced(ctx, x, ctx.result_shape(), windows, ["max"], [(x.dtype, lambda accs, _: accs[0])])[0]


@row("aten.avg_pool3d.default")
def avg_pool3d(
    ctx: Context,
    x: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Tensor:
    steps, pad, taps = _stride(stride, kernel, 3), ints(padding, 3), ints(kernel, 3)
    size = x.shape[-3:]

    def average(accs: Sequence[Expr], o: list[Index]) -> Expr:
        if divisor is not None:
            return quotient(accs[0], number(float(divisor), accs[0].dtype))
        count = ONE
        for d in range(3):
            first = o[d] * steps[d] - pad[d]
            last = minimum(first + taps[d], size[d] + pad[d])
            if not count_include_pad:
                first, last = maximum(first, ZERO), minimum(last, size[d])
            count = count * (last - first)
        return quotient(accs[0], size_value(count, accs[0].dtype))

    windows = _sliding(size, taps, steps, pad, (1, 1, 1))
    return _reduced(ctx, x, ctx.result_shape(), windows, ["sum"], [(x.dtype, average)])[0]


@row("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def adaptive_max_pool(ctx: Context, x: Tensor, output_size: Any) -> tuple[Tensor, ...]:
    count = 3 if "3d" in str(ctx.node.target) else 2
    return _max_with_indices(ctx, x, _adaptive(x.shape[-count:], ctx.result_shape(0)[-count:]))


@row("aten._adaptive_avg_pool3d.default", "aten.adaptive_avg_pool3d.default")
def adaptive_avg_pool3d(ctx: Context, x: Tensor, output_size: Any) -> Tensor:
    windows = _adaptive(x.shape[-3:], ctx.result_shape()[-3:])

    def average(accs: Sequence[Expr], o: list[Index]) -> Expr:
        count = product(windows.last(d, o[d]) - windows.first(d, o[d]) for d in range(3))
        return quotient(accs[0], size_value(count, accs[0].dtype))

    return _reduced(ctx, x, ctx.result_shape(), windows, ["sum"], [(x.dtype, average)])[0]

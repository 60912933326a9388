"""Fourier transforms of the last dimension: routines of kernels/linalg/fft.h, called by graph/complex.

A GPU has them as kernels for sizes without large prime factors that are known; all others go by Bluestein's algorithm
there, as maps around transforms of a power of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ...ir import fourier
from ...ir.bounds import largest
from ...ir.dtypes import to_torch
from ...ir.expr import Expr, IndexValue, cast
from ...ir.index import Index, as_index, minimum
from ..core.builder import call, compare, number, size_value, where
from ..core.context import Context
from ..core.registry import row
from ..core.routines import call_routine
from ..core.tensor import Strided, Tensor, dense_strides

#: real and imaginary parts
Parts = tuple[Tensor, ...]
Function = Literal["fft", "rfft", "irfft"]
#: values of the longest transform of a size that only the run knows
LONGEST = 1 << 22


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
    operands = (re, im) if forward else (im, re)
    a, b = _transform(ctx, "fft", operands, table, n, n)
    return (a, b) if forward else (b, a)


@row("mycc.rfft.default")
def rfft(ctx: Context, x: Tensor, table: Tensor | None) -> tuple[Tensor, ...]:
    n = x.shape[-1]
    return _transform(ctx, "rfft", (x,), table, n, n // 2 + 1)


@row("mycc.irfft.default")
def irfft(ctx: Context, re: Tensor, im: Tensor, table: Tensor | None, n: Index | int) -> Tensor:
    size = ctx.size(n)
    return _transform(ctx, "irfft", (re, im), table, size, size)[0]


def _transform(
    ctx: Context, function: Function, operands: Sequence[Tensor], table: Tensor | None, n: Index, length: Index
) -> tuple[Tensor, ...]:  # fmt: skip
    """The results of a transform of n values, each `length` long."""
    x = operands[0]
    if ctx.builder.family == "cuda":
        if n.constant is None or not fourier.is_smooth(n.constant, fourier.PRIMES):
            return _bluestein(ctx, function, operands, n, length)
        known = _constant(ctx, f"fft_passes_{n}", fourier.pass_table(n.constant), x.dtype)
    else:
        known = _table(ctx, table, n, x.dtype, half=function != "fft")
    outputs = [((length,), x.dtype)] * (1 if function == "irfft" else 2)
    inputs = [*((t, 1) for t in operands), (known, 1)]
    return tuple(call_routine(ctx.builder, function, x.shape[:-1], inputs, outputs, [n]))


def _constant(ctx: Context, name: str, values: NDArray[np.float64], dtype: str) -> Tensor:
    """A table; equal ones are one constant."""
    shape = (as_index(len(values)),)
    buffer = ctx.builder.derived(f"{name}_{dtype}", torch.from_numpy(values.copy()).to(to_torch(dtype)))
    return Tensor(shape, dtype, Strided(buffer, dense_strides(shape)))


# Bluestein's algorithm -----------------------------------------------------------------------------------------------
def _bluestein(
    ctx: Context, function: Function, operands: Sequence[Tensor], n: Index, length: Index
) -> tuple[Tensor, ...]:  # fmt: skip
    """x_j c_j convolved with the conjugate of the chirp c_j = exp(-pi i j^2 / n), times c_k."""
    x, builder = operands[0], ctx.builder
    most = n.constant if n.constant is not None else _upper_bound(ctx, n)
    m = fourier.padded(most)
    chirp, kernel = _known_chirp(ctx, n.constant, x.dtype) if n.constant else _made_chirp(ctx, n, m, x.dtype)
    batch, size = x.shape[:-1], as_index(m)
    zero = number(0.0, x.dtype)

    def spread(part: int) -> Callable[[list[Index]], Expr]:
        """One part of the values times the chirp, zeros behind."""

        def value(i: list[Index]) -> Expr:
            j = minimum(i[-1], n - 1)
            product = _times(_value(function, operands, [*i[:-1], j], n), _pair(chirp, [j]))
            return product[part] if size == n else where(_before(i[-1], n), product[part], zero)

        return value

    def filtered(part: int) -> Callable[[list[Index]], Expr]:
        return lambda i: _times(_pair(forth, i), _pair(kernel, [i[-1]]))[1 - part]  # exchanged: for the way back

    def result(part: int) -> Callable[[list[Index]], Expr]:
        def value(i: list[Index]) -> Expr:
            j = minimum(i[-1], n - 1)  # it is i: said for the proof that it stays inside
            return _times(_pair(back, [*i[:-1], minimum(j, m - 1)])[::-1], _pair(chirp, [j]))[part]

        return value

    def powers(parts: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return _transform(ctx, "fft", parts, None, size, size)

    forth = powers([builder.map((*batch, size), x.dtype, spread(part)) for part in (0, 1)])
    back = powers([builder.map((*batch, size), x.dtype, filtered(part)) for part in (0, 1)])
    parts = (1,) if function == "irfft" else (0, 1)
    return tuple(builder.map((*batch, length), x.dtype, result(part)) for part in parts)


def _upper_bound(ctx: Context, n: Index) -> int:
    found = largest(n)
    if found is None or found > LONGEST:
        raise ctx.refuse(f"on a GPU the size of a Fourier transform needs an upper bound of at most {LONGEST}")
    return found


def _value(function: Function, operands: Sequence[Tensor], i: list[Index], n: Index) -> tuple[Expr, Expr]:
    """Element i of what is transformed; of irfft its parts exchanged, as it goes backwards."""
    dtype = operands[0].dtype
    if function == "rfft":
        return operands[0].at(i), number(0.0, dtype)
    if function == "fft":
        return _pair(operands, i)
    *batch, j = i
    half = n // 2
    re, im = _pair(operands, [*batch, minimum(j, half)])
    re_far, im_far = _pair(operands, [*batch, minimum(n - j, half)])
    near, zero = compare("le", IndexValue(j), IndexValue(half)), number(0.0, dtype)
    real = compare("eq", IndexValue((j * 2) % n), IndexValue(as_index(0)))  # these parts have to be 0
    return where(real, zero, where(near, im, call("neg", im_far))), where(near, re, re_far)


def _pair(parts: Sequence[Tensor], i: Sequence[Index]) -> tuple[Expr, Expr]:
    re, im = parts
    return re.at(i), im.at(i)


def _times(a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
    re = call("sub", call("mul", a[0], b[0]), call("mul", a[1], b[1]))
    return re, call("add", call("mul", a[0], b[1]), call("mul", a[1], b[0]))


def _before(i: Index, n: Index) -> Expr:
    return compare("lt", IndexValue(i), IndexValue(n))


def _known_chirp(ctx: Context, n: int, dtype: str) -> tuple[Parts, Parts]:
    chirp, kernel = fourier.chirp_tables(n)

    def parts(name: str, z: NDArray[np.complex128]) -> Parts:
        return _constant(ctx, f"{name}_re_{n}", z.real, dtype), _constant(ctx, f"{name}_im_{n}", z.imag, dtype)

    return parts("fft_chirp", chirp), parts("fft_kernel", kernel)


def _made_chirp(ctx: Context, n: Index, m: int, dtype: str) -> tuple[Parts, Parts]:
    """The chirp and the transform of its conjugate, wrapped around m values and divided by m."""
    builder, size = ctx.builder, as_index(m)

    def angle(j: Index) -> Expr:
        place = cast(IndexValue(j), "i64")
        square = call("remainder", call("mul", place, place), size_value(n * 2, "i64"))
        return call("div", call("mul", cast(square, "f64"), number(torch.pi, "f64")), size_value(n, "f64"))

    def chirp(part: int) -> Callable[[list[Index]], Expr]:
        if part:
            return lambda i: call("neg", call("sin", angle(i[0])))
        return lambda i: call("cos", angle(i[0]))

    def wrapped(part: int) -> Callable[[list[Index]], Expr]:
        """Both ends of the m values; the conjugate."""

        def value(i: list[Index]) -> Expr:
            far = compare("gt", IndexValue(i[0] + n), IndexValue(size))
            rotation = call("sin" if part else "cos", angle(minimum(i[0], size - i[0])))
            inside = call("logical_or", _before(i[0], n), far)
            return where(inside, call("mul", rotation, number(1.0 / m, "f64")), number(0.0, "f64"))

        return value

    own = tuple(builder.map((n,), dtype, chirp(part)) for part in (0, 1))
    ends = [builder.map((size,), dtype, wrapped(part)) for part in (0, 1)]
    return own, _transform(ctx, "fft", ends, None, size, size)

"""Scans: running sums, products, extrema and log-sum-exps along a dimension.

Sums and products of float32 are carried in float64, and those of the narrow types in float32, as torch does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...ir.dtypes import DTYPES
from ...ir.expr import Acc, Expr, IndexValue, cast
from ...ir.index import ONE, ZERO, Index, of
from ...ir.nodes import Carry, Scan, Store
from ..core.builder import call, compare, number, where
from ..core.context import Context
from ..core.registry import row
from ..core.tensor import Tensor

#: what a narrow or single float is carried in
CARRIED_IN = {"f16": "f32", "bf16": "f32", "f32": "f64", "f64": "f64"}


@dataclass(frozen=True)
class Running:
    """A carried value: dtype, where it starts, and its next value from all carried ones, the element (of several
    tensors: the elements) and its place."""

    dtype: str
    start: float | int | bool
    next: Callable[[Sequence[Expr], Any, Index], Expr]


def scan(ctx: Context, x: Tensor, dim: int, carried: Sequence[Running], results: Sequence[str]) -> list[Tensor]:
    """Runs along `dim` of x; result i, of dtype results[i], is carried value i after each step."""
    return scan_together(ctx, (x,), dim, [replace(r, next=_of_first(r.next)) for r in carried], results)


def _of_first(following: Callable[[Sequence[Expr], Any, Index], Expr]) -> Callable[[Sequence[Expr], Any, Index], Expr]:
    return lambda accs, elements, step: following(accs, elements[0], step)


def scan_together(
    ctx: Context, xs: Sequence[Tensor], dim: int, carried: Sequence[Running], results: Sequence[str]
) -> list[Tensor]:
    """As `scan`, over several tensors of one shape: `next` gets an element of each."""
    builder, x = ctx.builder, xs[0]
    axis = ctx.axis(dim, x.rank) if x.rank else None
    step = builder.var(x.shape[axis] if axis is not None else ONE, "s")
    loops = [builder.var(n) if n != ONE and d != axis else None for d, n in enumerate(x.shape)]
    indices = [of(step) if d == axis else ZERO if v is None else of(v) for d, v in enumerate(loops)]
    element = [t.at(indices) for t in xs]
    accs = [Acc(builder.fresh("acc"), r.dtype) for r in carried]
    carries = tuple(
        Carry(acc, number(r.start, r.dtype), cast(r.next(accs, element, of(step)), r.dtype))
        for acc, r in zip(accs, carried, strict=True)
    )
    outs = [builder.temp(x.shape, dtype) for dtype in results]
    stores = []
    for out, acc in zip(outs, accs, strict=False):
        place = out.at(indices)
        stores.append(Store(place.buffer, place.index, cast(acc, out.dtype)))  # type: ignore[attr-defined]
    dims = tuple(v for v in loops if v is not None)
    builder.add(Scan(dims, tuple(stores), builder.origin, step, carries))
    return outs


def _reduced(ctx: Context, x: Tensor, dim: int, op: str, start: int) -> Tensor:
    dtype = ctx.result_dtype()
    if x.rank == 0:  # itself, with its sign of zero
        return ctx.builder.map((), dtype, lambda _: cast(x.at([]), dtype))
    carried = CARRIED_IN.get(dtype, DTYPES[dtype].compute)
    running = Running(carried, start, lambda accs, e, _: call(op, accs[0], cast(cast(e, dtype), carried)))
    return scan(ctx, x, dim, [running], [dtype])[0]


@row("aten.cumsum.default")
def cumsum(ctx: Context, x: Tensor, dim: int, **_: Any) -> Tensor:
    return _reduced(ctx, x, dim, "add", 0)


@row("aten.cumprod.default")
def cumprod(ctx: Context, x: Tensor, dim: int, **_: Any) -> Tensor:
    return _reduced(ctx, x, dim, "mul", 1)


@row("mycc.complex_cumprod.default")
def complex_cumprod(ctx: Context, re: Tensor, im: Tensor, dim: int) -> tuple[Tensor, ...]:
    """Running products of complex numbers, both parts carried."""
    carried = CARRIED_IN[re.dtype]

    def real(a: Sequence[Expr], b: Sequence[Expr], _: Index) -> Expr:
        x, y = (cast(e, carried) for e in b)
        return call("sub", call("mul", a[0], x), call("mul", a[1], y))

    def imaginary(a: Sequence[Expr], b: Sequence[Expr], _: Index) -> Expr:
        x, y = (cast(e, carried) for e in b)
        return call("add", call("mul", a[0], y), call("mul", a[1], x))

    parts = [Running(carried, 1, real), Running(carried, 0, imaginary)]
    return tuple(scan_together(ctx, (re, im), dim, parts, [re.dtype, im.dtype]))


@row("aten.cummax.default")
def cummax(ctx: Context, x: Tensor, dim: int) -> tuple[Tensor, ...]:
    return _extremum(ctx, x, dim, "ge", lowest=True)


@row("aten.cummin.default")
def cummin(ctx: Context, x: Tensor, dim: int) -> tuple[Tensor, ...]:
    return _extremum(ctx, x, dim, "le", lowest=False)


def _extremum(ctx: Context, x: Tensor, dim: int, better: str, lowest: bool) -> tuple[Tensor, ...]:
    """The extremum so far and the place of its last occurrence; NaN is better than all."""
    compute = DTYPES[x.dtype].compute

    def taken(accs: Sequence[Expr], e: Expr) -> Expr:
        e = cast(e, compute)
        wins = compare(better, e, accs[0])
        return compare("logical_or", wins, compare("isnan", e)) if DTYPES[compute].kind == "f" else wins

    value = Running(
        compute, worst(compute, lowest), lambda accs, e, _: where(taken(accs, e), cast(e, compute), accs[0])
    )
    place = Running("i64", 0, lambda accs, e, step: where(taken(accs, e), IndexValue(step), accs[1]))
    return tuple(scan(ctx, x, dim, [value, place], [x.dtype, "i64"]))


def worst(compute: str, lowest: bool) -> float | int | bool:
    """The smallest or the largest value of a compute type."""
    if DTYPES[compute].kind == "f":
        return float("-inf") if lowest else float("inf")
    if compute == "bool":
        return not lowest
    bits = DTYPES[compute].size * 8
    return -(2 ** (bits - 1)) if lowest else 2 ** (bits - 1) - 1


@row("aten.logcumsumexp.default")
def logcumsumexp(ctx: Context, x: Tensor, dim: int) -> Tensor:
    """log(exp a + exp b) as max + log1p(exp(min - max)), where both are not the same infinity."""
    if x.rank == 0:  # itself, with its sign of zero
        return ctx.builder.map((), x.dtype, lambda _: x.at([]))
    carried = CARRIED_IN[x.dtype]

    def following(accs: Sequence[Expr], e: Expr, _: Index) -> Expr:
        a, b = accs[0], cast(e, carried)
        low, high = call("minimum", a, b), call("maximum", a, b)
        total = call("add", high, call("log1p", call("exp", call("sub", low, high))))
        return where(compare("logical_or", compare("ne", low, high), compare("isfinite", low)), total, a)

    return scan(ctx, x, dim, [Running(carried, float("-inf"), following)], [x.dtype])[0]

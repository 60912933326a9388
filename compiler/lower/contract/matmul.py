"""Matrix products: constant matrices become packed panels, other operands are read with their strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.buffers import Operand
from ...ir.dtypes import DTYPES
from ...ir.expr import Acc, Expr, Load, cast
from ...ir.index import ONE, ZERO, Index, of, product
from ...ir.nodes import Store
from ...ir.structured import Gemm
from ..core.builder import call, number
from ..core.constants import Panels
from ..core.context import ConstantRef, Context
from ..core.registry import row
from ..core.tensor import (
    Shape,
    Tensor,
    expand,
    permute,
    reshape,
    squeeze,
    unsqueeze,
)

HALVES = ("f16", "bf16")
#: types of weights that products read in panels; those of 16 bits become float32 in registers
PACKED = ("f32", *HALVES)
#: columns of a product that a CPU sums one by one (docs/decisions/0103)
FEW = (1, 2, 3)

Finish = Any  # Callable[[Expr, Sequence[Index]], Expr]: the sum and the output's indices -> the stored value


def _no_finish(acc: Expr, _: Sequence[Index]) -> Expr:
    return acc


@row("aten.linear.default")
def linear(ctx: Context, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return linear_with(ctx, x, weight, ctx.constant(1, "weight"), bias)


def linear_with(ctx: Context, x: Tensor, weight: Tensor, ref: ConstantRef | None, bias: Tensor | None) -> Tensor:
    """x [..., k] times weight [n, k]; ref: the graph constant that the weight is."""

    def finish(acc: Expr, i: Sequence[Index]) -> Expr:
        return acc if bias is None else call("add", acc, cast(bias.at([i[-1]]), acc.dtype))

    return _product(ctx, x, weight, ref, transposed=False, finish=finish)


@row("aten.mm.default")
def mm(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    return _product(ctx, a, b, ctx.constant(1), transposed=True, finish=_no_finish)


@row("aten.addmm.default")
def addmm(ctx: Context, bias: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    return _product(ctx, a, b, ctx.constant(2), True, _scaled_bias(bias, beta, alpha))


def _scaled_bias(bias: Tensor, beta: float, alpha: float) -> Finish:
    def finish(acc: Expr, i: Sequence[Index]) -> Expr:
        y = acc if alpha == 1 else call("mul", acc, number(float(alpha), acc.dtype))
        if beta == 0:
            return y
        b = cast(bias.at_broadcast(i), acc.dtype)
        return call("add", y, b if beta == 1 else call("mul", b, number(float(beta), b.dtype)))

    return finish


@row("aten.bmm.default")
def bmm(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    return _batched(ctx, a, b, _no_finish)


@row("aten.baddbmm.default")
def baddbmm(ctx: Context, bias: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    return _batched(ctx, a, b, _scaled_bias(bias, beta, alpha))


@row("aten.matmul.default")
def matmul(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    if b.rank == 2 and a.rank >= 2:
        return _product(ctx, a, b, ctx.constant(1), True, _no_finish)
    lead = unsqueeze(a, 0) if a.rank == 1 else a
    tail = unsqueeze(b, 1) if b.rank == 1 else b
    batch = _broadcast(lead.shape[:-2], tail.shape[:-2])
    out = _batched(ctx, expand(lead, (*batch, *lead.shape[-2:])), expand(tail, (*batch, *tail.shape[-2:])), _no_finish)
    if b.rank == 1:
        out = squeeze(out, out.rank - 1)
    return squeeze(out, out.rank - (1 if b.rank == 1 else 2)) if a.rank == 1 else out


def _broadcast(a: Shape, b: Shape) -> Shape:
    n = max(len(a), len(b))
    wide_a, wide_b = (ONE,) * (n - len(a)) + a, (ONE,) * (n - len(b)) + b
    return tuple(y if x == ONE else x for x, y in zip(wide_a, wide_b, strict=True))


def _product(
    ctx: Context, x: Tensor, weight: Tensor, ref: ConstantRef | None, transposed: bool, finish: Finish
) -> Tensor:
    """x [..., k] times weight ([n, k], or [k, n] when transposed)."""
    layout = ctx.layout_of(ref) if ref is not None else None
    k = x.shape[-1]
    matrix = weight if transposed else permute(weight, (1, 0))
    packs = isinstance(layout, Panels) and layout.transposed == transposed and x.dtype in PACKED
    if ref is None or not packs or _are_dots(ctx, x, matrix.shape[1], matrix.shape[1] if transposed else ONE):
        rows = ctx.builder.reshape(x, (product(x.shape[:-1]), k))
        out = _batched(ctx, rows, matrix, finish)
        return ctx.builder.reshape(out, (*x.shape[:-1], matrix.shape[1]))
    n = matrix.shape[1]
    packed = ctx.builder.constant(ref.target, ref.tensor, layout)
    rows = dense_rows(ctx, widened(ctx, x), (product(x.shape[:-1]), k))
    b = Operand(packed, ZERO, ())
    out = _gemm(ctx, rows, b, True, n, k, finish, x.dtype)
    return ctx.builder.reshape(out, (*x.shape[:-1], n))


def dense_rows(ctx: Context, x: Tensor, shape: Shape) -> Tensor:
    """x as a matrix whose last dimension is dense; a copy only where no strides give that."""
    view = reshape(x, shape) if x.strided is not None else None
    if view is not None and view.strided is not None and (view.strided.strides[-1] == ONE or shape[-1] == ONE):
        return view
    view = reshape(ctx.builder.dense(x), shape)
    assert view is not None
    return view


def _batched(ctx: Context, a: Tensor, b: Tensor, finish: Finish, dtype: str = "") -> Tensor:
    """a [z..., m, k] times b [z..., k, n], both read in place where their strides allow. dtype: of the result."""
    dtype = dtype or a.dtype
    a = _last_dense(ctx, widened(ctx, a), (a.rank - 1, a.rank - 2) if _turns(ctx, a) else (a.rank - 1,))
    b = _last_dense(ctx, widened(ctx, b), (b.rank - 1, b.rank - 2))
    k = a.shape[-1]
    batch = a.shape[:-2]
    if len(batch) > 2:
        m, n = a.shape[-2], b.shape[-1]
        flat_a = ctx.builder.reshape(a, (product(batch), m, k))
        flat_b = ctx.builder.reshape(b, (product(batch), k, n))
        out = _batched(ctx, flat_a, flat_b, _unflattened(finish, batch), dtype)
        return ctx.builder.reshape(out, (*batch, m, n))
    assert b.strided is not None
    operand = Operand(b.strided.buffer, b.strided.offset, b.strided.strides)
    return _gemm(ctx, a, operand, False, b.shape[-1], k, finish, dtype)


def _turns(ctx: Context, a: Tensor) -> bool:
    """Whether the target's products read a left operand whose columns are dense, as that of a weight's gradient is:
    tensor cores take values of 16 bits in either order."""
    return ctx.builder.family == "cuda" and a.dtype in HALVES and a.shape[-2] != ONE


def product_of(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """a [z..., m, k] times b [z..., k, n]."""
    return _batched(ctx, a, b, _no_finish)


def _unflattened(finish: Finish, batch: Shape) -> Finish:
    from ..core.tensor import split_index

    return lambda acc, i: finish(acc, [*split_index(i[0], batch), *i[1:]])


def _last_dense(ctx: Context, t: Tensor, axes: Sequence[int]) -> Tensor:
    """t in memory with stride 1 along one of the axes."""
    strides = t.strided.strides if t.strided is not None and ctx.takes_product(t.dtype) else ()
    if strides and any(strides[d] == ONE or t.shape[d] == ONE for d in axes):
        return t
    return ctx.builder.map(t.shape, t.dtype, t.at)


def widened(ctx: Context, x: Tensor) -> Tensor:
    """x in float32 where it is of 16 bits and this target multiplies in float32 only."""
    if x.dtype not in HALVES or ctx.takes_product(x.dtype):
        return x
    return ctx.builder.map(x.shape, "f32", x.at)


def _are_dots(ctx: Context, a: Tensor, n: Index, step: Index) -> bool:
    """Whether a times b, whose columns are dense (step is 1), is a few sums for each row: a panel is mostly zeros."""
    return n.constant in FEW and step == ONE and a.dtype == "f32" and ctx.builder.family == "cpu"


def _gemm(ctx: Context, a: Tensor, b: Operand, packed: bool, n: Index, k: Index, finish: Finish, dtype: str) -> Tensor:
    """dtype: of the result."""
    takes = ctx.takes_product(a.dtype)
    if not takes and packed:
        raise ctx.refuse(f"matrix products of {a.dtype} are not supported on this target")
    empty = ZERO in (*a.shape[:-1], n)  # its columns are no digits of a place, where an epilogue stores across them
    if not takes or (not packed and (empty or _are_dots(ctx, a, n, b.strides[-2]))):
        return _sums(ctx, a, b, n, k, finish, dtype)
    assert a.strided is not None
    builder = ctx.builder
    shape = (*a.shape[:-1], n)
    out = builder.temp(shape, dtype)
    assert out.strided is not None
    names = ("z", "y")[: len(shape) - 2]
    dims = tuple(builder.var(e, name) for e, name in zip(shape, (*names, "m", "n"), strict=True))
    indices = [of(d) for d in dims]
    acc = Acc(builder.fresh("acc"), "f32")
    store = Store(out.strided.buffer, out.place(indices), cast(finish(acc, indices), dtype))
    operand = Operand(a.strided.buffer, a.strided.offset, a.strided.strides)
    rounded = dtype if packed and dtype == b.buffer.dtype == "bf16" != a.dtype else ""
    builder.add(Gemm(dims, (store,), builder.origin, k, operand, b, packed, acc, rounded=rounded))
    return out


def _sums(ctx: Context, a: Tensor, b: Operand, n: Index, k: Index, finish: Finish, dtype: str) -> Tensor:
    """The product as sums of products: for types that the matrix kernels do not take, and few columns."""
    compute = DTYPES[a.dtype].compute
    holder: list[list[Index]] = []

    def term(i: list[Index]) -> Expr:
        holder.append(i)
        *lead, _, column, inner = i
        place = b.offset
        for at, stride in zip((*lead, inner, column), b.strides, strict=True):
            place = place + at * stride
        return call("mul", cast(a.at([*i[:-2], inner]), compute), cast(Load(b.buffer, place), compute))

    def ended(accs: list[Expr]) -> Expr:
        return finish(accs[0], holder[0][:-1])

    shape = (*a.shape[:-1], n)
    (out,) = ctx.builder.reduce((*shape, k), [len(shape)], [("sum", term)], [(dtype, ended)])
    return out

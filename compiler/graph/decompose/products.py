"""Our own decompositions of products of vectors, matrices and, by letters, tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...ir.dtypes import from_torch, held
from .definitions import NoDecomposition, definition, widened

aten = torch.ops.aten


@definition("aten.outer", "aten.ger")
def outer(a: Tensor, b: Tensor) -> Tensor:
    return a.unsqueeze(1) * b


@definition("aten.dot", "aten.vdot")
def dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum()


@definition("aten.mv")
def mv(a: Tensor, b: Tensor) -> Tensor:
    return aten.squeeze.dim(aten.mm.default(a, b.unsqueeze(1)), 1)


def _factor(value: float, x: Tensor) -> float | int:
    """A number as torch takes it in products with x: whole for integers."""
    return value if x.dtype.is_floating_point else int(value)


@definition("aten.linear")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Forms that are no layer: of weights for one output, or a bias that is broadcast."""
    y = torch.matmul(x, weight if weight.dim() == 1 else weight.t())
    return y if bias is None else y + bias


@definition("aten.addmv")
def addmv(c: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    return _factor(beta, c) * c + _factor(alpha, c) * mv(a, b)


@definition("aten.addr")
def addr(c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta c + (alpha a) b, each step and both numbers rounded as in torch's kernel; c is not read when beta is 0."""
    dtype = torch.result_type(c, a.new_empty([1], dtype=torch.result_type(a, b)))
    alpha, beta = (held(x, from_torch(dtype)) if dtype.is_floating_point else x for x in (alpha, beta))
    a, b = a.to(dtype).unsqueeze(1), b.to(dtype)
    if dtype == torch.bool:
        product = a & b if alpha else torch.zeros_like(a & b)
        return c | product if beta else product
    product = a * b if alpha == 1 else _factor(alpha, a) * a * b
    if beta == 0:
        return product
    return (c if beta == 1 else _factor(beta, a) * c.to(dtype)) + product


@definition("aten.linalg_cross")
def linalg_cross(a: Tensor, b: Tensor, *, dim: int = -1) -> Tensor:
    """Products and their difference, each rounded to the tensors' type."""
    a, b = torch.broadcast_tensors(a, b)
    return a.roll(-1, dim) * b.roll(-2, dim) - a.roll(-2, dim) * b.roll(-1, dim)


@definition("aten.addbmm")
def addbmm(c: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """One product over batch and k together."""
    dtype = c.dtype
    c, a, b = widened(c, a, b)
    product = aten.mm.default(a.movedim(1, 0).reshape([a.shape[1], -1]), b.reshape([-1, b.shape[2]]))
    return (_factor(beta, c) * c + _factor(alpha, c) * product).to(dtype)


#: products of numbers of 8 bits whose sum a float32 holds exactly
_EXACT = 1024


@definition("aten._int_mm")
def int_mm(a: Tensor, b: Tensor) -> Tensor:
    """Products of bytes in float32, exact for so many that their sums are whole numbers below 2^24; sums of these in
    int32. Of a dynamic number of products, sums of products in int32."""
    k = a.shape[1]
    if not isinstance(k, int):
        return (a.to(torch.int32).unsqueeze(2) * b.to(torch.int32).unsqueeze(0)).sum(1, dtype=torch.int32)
    cuts = [(first, min(first + _EXACT, k)) for first in range(0, max(k, 1), _EXACT)]
    parts = [
        aten.mm.default(a[:, first:last].to(torch.float32), b[first:last].to(torch.float32)).to(torch.int32)
        for first, last in cuts
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


@definition("aten._scaled_mm")
def scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """(a @ b) * scale_a * scale_b + bias, in float32. Scales: one of each, or of rows of a and columns of b."""
    whole = scale_a.numel() == 1 and scale_b.numel() == 1
    rows = scale_a.dim() == 2 and scale_a.shape[1] == 1 and scale_b.dim() == 2 and scale_b.shape[0] == 1
    if scale_result is not None or not (whole or rows) or torch.float8_e8m0fnu in (scale_a.dtype, scale_b.dtype):
        raise NoDecomposition
    wide = torch.float64 if scale_a.dtype == torch.float64 else torch.float32
    if whole:
        scale_a, scale_b = scale_a.reshape([]), scale_b.reshape([])
    y = aten.mm.default(a.to(wide), b.to(wide)) * (scale_a * scale_b)
    return (y if bias is None else y + bias).to(out_dtype or a.dtype)


@definition("aten.einsum")
def einsum(equation: str, operands: Sequence[Tensor], *, path: Any = None) -> Tensor:
    """Two operands as one batched matrix product; others as torch does it, two at a time."""
    text = equation.replace(" ", "")
    if len(operands) == 2 and "->" in text and "." not in text:
        left, right, result = text.replace("->", ",").split(",")
        if all(len(set(t)) == len(t) for t in (left, right, result)):
            product = _contraction(left, right, result, *operands)
            if product is not None:
                return product
    return aten.einsum.default.decompose(equation, operands, path=path)


def _contraction(left: str, right: str, result: str, a: Tensor, b: Tensor) -> Tensor | None:
    batch = [c for c in result if c in left and c in right]
    rows = [c for c in result if c in left and c not in right]
    columns = [c for c in result if c in right and c not in left]
    summed = [c for c in left if c in right and c not in result]
    if not summed or len(batch) + len(rows) + len(columns) != len(result):
        return None
    if set(left) - set(batch) - set(rows) - set(summed) or set(right) - set(batch) - set(columns) - set(summed):
        return None
    size = {**dict(zip(left, a.shape, strict=True)), **dict(zip(right, b.shape, strict=True))}
    a, b = _ordered(a, left, batch, rows, summed, size), _ordered(b, right, batch, summed, columns, size)
    out = torch.matmul(a, b) if a.dim() == 2 or b.dim() == 2 else _batched(a, b)
    have = [*batch, *rows, *columns]
    out = out.reshape([size[c] for c in have])
    return out.permute([have.index(c) for c in result])


def _ordered(x: Tensor, letters: str, batch: list[str], first: list[str], last: list[str], size: Any) -> Tensor:
    """x as [batch..., first, last] with the dimensions of each of the two merged into one."""
    order = [letters.index(c) for c in (*batch, *first, *last)]
    merged = [_count(first, size), _count(last, size)]
    return x.permute(order).reshape([*(size[c] for c in batch), *merged])


def _count(letters: Sequence[str], size: Any) -> Any:
    total: Any = 1
    for letter in letters:
        total = total * size[letter]
    return total


def _batched(a: Tensor, b: Tensor) -> Tensor:
    lead = a.shape[:-2]
    if len(lead) == 1:
        return aten.bmm.default(a, b)
    flat = [t.reshape([-1, *t.shape[-2:]]) for t in (a, b)]
    return aten.bmm.default(*flat).reshape([*lead, a.shape[-2], b.shape[-1]])

"""Gradients of operators that are linear along each dimension (resizing, padding): the transposed matrix of each.

    y = resize(x) = A x B^T        ->        grad_x = A^T grad_y B

The matrix of a dimension is what the operator makes of the rows of an identity; of fixed sizes it is a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .definitions import definition, widened

aten = torch.ops.aten
Matrix = Callable[[Tensor, Any, Any], Tensor]


def _transposed(grad: Tensor, sizes: Sequence[Any], matrices: Sequence[Callable[[Tensor], Tensor]]) -> Tensor:
    """grad with each of its last dimensions taken back to one of `sizes`; matrices: of rows [n, 1, n] -> [n, 1, m]."""
    dtype, first = grad.dtype, grad.dim() - len(sizes)
    (grad,) = widened(grad)
    for d, (n, matrix) in enumerate(zip(sizes, matrices, strict=True)):
        weights = matrix(torch.eye(n, dtype=grad.dtype).unsqueeze(1)).squeeze(1)
        last = grad.transpose(first + d, -1)
        grad = torch.matmul(last, weights.t()).transpose(first + d, -1)
    return grad.to(dtype)


# resizing ------------------------------------------------------------------------------------------------------------
def _resized(operator: Any, m: Any, *settings: Any) -> Callable[[Tensor], Tensor]:
    return lambda rows: operator(rows, [m], *settings)


def _resized_2d(operator: Any, m: Any, *settings: Any) -> Callable[[Tensor], Tensor]:
    """By an operator of two dimensions, of which the other keeps its two elements: of one, torch's kernel is wrong."""

    def matrix(rows: Tensor) -> Tensor:
        maps = rows.squeeze(1).unsqueeze(0).unsqueeze(-1).expand(1, -1, -1, 2).contiguous()
        return operator(maps, [m, 2], *settings, None)[0, :, :, 0].unsqueeze(1)

    return matrix


def _resize(names: str, operator: Any, count: int, aligned: bool, of_two: bool = False) -> None:
    @definition(names)
    def backward(
        grad: Tensor, output_size: Sequence[Any], input_size: Sequence[Any], *rest: Any, **named: Any
    ) -> Tensor:
        settings = list(rest)
        align = [settings.pop(0) if settings else named["align_corners"]] if aligned else []
        scales = settings or [named.get(key) for key in ("scales_d", "scales_h", "scales_w", "scales") if key in named]
        scales = [*scales, *[None] * (count - len(scales))]
        form = _resized_2d if of_two else _resized
        matrices = [form(operator, m, *align, s) for m, s in zip(output_size, scales, strict=True)]
        return _transposed(grad, input_size[2:], matrices)


_resize("aten.upsample_nearest1d_backward", aten.upsample_nearest1d.default, 1, False)
_resize("aten.upsample_nearest2d_backward", aten.upsample_nearest1d.default, 2, False)
_resize("aten.upsample_nearest3d_backward", aten.upsample_nearest1d.default, 3, False)
_resize("aten._upsample_nearest_exact1d_backward", aten._upsample_nearest_exact1d.default, 1, False)
_resize("aten._upsample_nearest_exact2d_backward", aten._upsample_nearest_exact1d.default, 2, False)
_resize("aten._upsample_nearest_exact3d_backward", aten._upsample_nearest_exact1d.default, 3, False)
_resize("aten.upsample_linear1d_backward", aten.upsample_linear1d.default, 1, True)
_resize("aten.upsample_bilinear2d_backward", aten.upsample_linear1d.default, 2, True)
_resize("aten.upsample_trilinear3d_backward", aten.upsample_linear1d.default, 3, True)
_resize("aten.upsample_bicubic2d_backward", aten.upsample_bicubic2d.default, 2, True, of_two=True)
_resize("aten._upsample_bilinear2d_aa_backward", aten._upsample_bilinear2d_aa.default, 2, True, of_two=True)
_resize("aten._upsample_bicubic2d_aa_backward", aten._upsample_bicubic2d_aa.default, 2, True, of_two=True)


# padding -------------------------------------------------------------------------------------------------------------
@definition("aten.replication_pad1d_backward", "aten.replication_pad2d_backward", "aten.replication_pad3d_backward")
def replication_pad_backward(grad: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
    count = len(padding) // 2
    sides = [padding[2 * i : 2 * i + 2] for i in reversed(range(count))]
    matrices = [lambda rows, side=side: aten.replication_pad1d.default(rows, list(side)) for side in sides]
    return _transposed(grad, x.shape[-count:], matrices)


# weight norm and distances -------------------------------------------------------------------------------------------
@definition("aten._weight_norm_interface_backward")
def weight_norm_interface_backward(
    grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """w = v * g / |v|, the norm over all dimensions but one."""
    others = [d for d in range(v.dim()) if d != dim]
    shape = [v.shape[d] if d == dim else 1 for d in range(v.dim())]
    along, sizes = (grad * v).sum(others, keepdim=True), norms.reshape(shape).to(v.dtype)
    of_g = along / sizes
    return g.reshape(shape) / sizes * (grad - v * of_g / sizes), of_g.reshape(g.shape)


@definition("aten._cdist_backward")
def cdist_backward(grad: Tensor, a: Tensor, b: Tensor, p: float, distances: Tensor) -> Tensor:
    """Of a; points that lie on each other have the gradient 0, as torch has it. Repeated batches are summed."""
    return _cdist_backward(grad, a, b, p, distances).sum_to_size(a.shape)


def _cdist_backward(grad: Tensor, a: Tensor, b: Tensor, p: float, distances: Tensor) -> Tensor:
    apart = a.unsqueeze(-2) - b.unsqueeze(-3)
    far, factor = distances.unsqueeze(-1), grad.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(a)
    if p == 1:
        share = apart.sign()
    elif p == 2:
        share = apart / torch.where(far == 0, 1.0, far)
    elif p == float("inf"):
        share = torch.where(apart.abs() == far, apart.sign(), 0.0)
    else:
        safe = torch.where(far == 0, 1.0, far)
        share = torch.where(apart == 0, 0.0, apart.sign() * (apart.abs() / safe).pow(p - 1))
    return torch.where(far == 0, 0.0, share * factor).sum(-2)

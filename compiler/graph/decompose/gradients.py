"""Our own decompositions of what differentiation leaves in a graph: gradients of convolutions and of attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...machine.gpu_programs import GRADIENTS
from ...model.operators.trained_attention import attention_gradient, attention_scale, score_gradients, trained_attention
from .definitions import NoDecomposition, definition

aten = torch.ops.aten
mycc = torch.ops.mycc

#: channels of a group from which on the gradient of the weights is a product for each tap, not one for all
_MANY_CHANNELS = 16


# convolutions --------------------------------------------------------------------------------------------------------
@definition("aten.convolution_backward")
def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradient of x is a convolution of the other direction; that of the weights sums products over all places."""
    count = x.dim() - 2
    stride, padding, dilation = (_each(v, count) for v in (stride, padding, dilation))
    of_x = of_weight = of_bias = None
    if output_mask[0]:
        if transposed:
            of_x = aten.convolution.default(grad, weight, None, stride, padding, dilation, False, [0] * count, groups)
            of_x = _cut(of_x, x.shape[2:])
        else:
            behind = [
                x.shape[2 + d]
                - ((grad.shape[2 + d] - 1) * stride[d] - 2 * padding[d] + dilation[d] * (weight.shape[2 + d] - 1) + 1)
                for d in range(count)
            ]
            of_x = _transposed(grad, weight, stride, padding, dilation, behind, groups, x.shape[2:])
    if output_mask[1]:
        small, large = (x, grad) if transposed else (grad, x)
        of_weight = _weight_gradient(small, large, weight, stride, padding, dilation, groups)
    if output_mask[2]:
        of_bias = grad.sum([0, *range(2, grad.dim())])
    return of_x, of_weight, of_bias


def _each(value: Sequence[int], count: int) -> list[int]:
    return list(value) * count if len(value) == 1 else list(value)


def _transposed(
    grad: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    behind: Sequence[Any],
    groups: int,
    size: Sequence[Any],
) -> Tensor:
    """A transposed convolution with so many elements behind: where their number is dynamic, as many as there may be
    and cut."""
    if all(isinstance(n, int) for n in behind):
        return aten.convolution.default(grad, weight, None, stride, padding, dilation, True, list(behind), groups)
    most = [s - 1 for s in stride]
    y = aten.convolution.default(grad, weight, None, stride, padding, dilation, True, most, groups)
    return _cut(y, size)


def _cut(y: Tensor, size: Sequence[Any]) -> Tensor:
    """The first elements along dimensions of the space that have as many or more."""
    for d, n in enumerate(size, 2):
        if not _same(y.shape[d], n):
            y = y.narrow(d, 0, n) if isinstance(n, int) else y.index_select(d, torch.arange(n))
    return y


def _weight_gradient(
    small: Tensor,
    large: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """w[a, b, t] = sum over n and places p of small[n, a, p] * large[n, b, p * stride + t * dilation - padding]."""
    kernel = list(weight.shape[2:])
    sizes = (*small.shape, *large.shape, *kernel)
    if groups == 1 and small.dtype != torch.float64 and small.numel() and all(isinstance(n, int) for n in sizes):
        geometry = list(stride), list(padding), list(dilation)
        return torch.ops.mycc.conv_weight_gradient.default(small, large, kernel, *geometry)
    return _products_of_places(small, large, kernel, weight.shape[1], stride, padding, dilation, groups)


@definition("mycc.conv_weight_gradient")
def conv_weight_gradient(
    small: Tensor,
    large: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """As products, for targets without a kernel for it."""
    return _products_of_places(small, large, list(kernel), large.shape[1], stride, padding, dilation, 1)


def _products_of_places(
    small: Tensor,
    large: Tensor,
    kernel: list[Any],
    columns: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """A product over all places for each tap; one for all taps where a group has few channels."""
    space = tuple(range(2, small.dim()))
    sides = [n for p in reversed(padding) for n in (p, p)]
    windows = aten.constant_pad_nd.default(large, sides) if any(sides) else large
    for d, k in enumerate(kernel):
        windows = aten.unfold.default(windows, 2 + d, dilation[d] * (k - 1) + 1, stride[d])
    windows = _cut(windows, small.shape[2:])
    n, rows = small.shape[0], small.shape[1] // groups
    taps = [[o * dilation[d] for o in range(k)] for d, k in enumerate(kernel)]
    at = [_tap(windows, place) for place in _product(taps)]
    if rows == columns == 1:
        parts = [(small * part).sum((0, *space)) for part in at]
        return torch.stack(parts, -1).reshape([groups, 1, *kernel])
    places: Any = math.prod(small.shape[2:])
    left = small.reshape([n, groups, rows, places]).permute([1, 2, 0, 3]).reshape([groups, rows, n * places])
    right = [part.reshape([n, groups, columns, places]) for part in at]
    if columns < _MANY_CHANNELS:
        whole = torch.stack(right, 3).permute([1, 0, 4, 2, 3]).reshape([groups, n * places, columns * len(at)])
        return aten.bmm.default(left, whole).reshape([groups * rows, columns, *kernel])
    each = [aten.bmm.default(left, r.permute([1, 0, 3, 2]).reshape([groups, n * places, columns])) for r in right]
    return torch.stack(each, -1).reshape([groups * rows, columns, *kernel])


def _same(a: Any, b: Any) -> bool:
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return bool(statically_known_true(a == b))


def _product(choices: Sequence[Sequence[int]]) -> list[list[int]]:
    found: list[list[int]] = [[]]
    for some in choices:
        found = [[*head, last] for head in found for last in some]
    return found


def _tap(windows: Tensor, place: Sequence[int]) -> Tensor:
    """What one tap meets: windows have their dimensions behind the others."""
    for index in reversed(place):
        windows = aten.select.int(windows, windows.dim() - 1, index)
    return windows


# attention -----------------------------------------------------------------------------------------------------------
definition("mycc.trained_attention")(trained_attention)
definition("mycc.attention_gradient")(attention_gradient)


def _scale(q: Tensor, scale: float | None) -> float:
    return attention_scale(q.shape[-1]) if scale is None else scale


def _is_whole(q: Tensor, v: Tensor) -> bool:
    """Whether kernels have the attention and its gradient as a whole: those of GPUs hold rows of fixed sizes."""
    sizes = (q.shape[-1], v.shape[-1])
    return all(isinstance(n, int) and n <= GRADIENTS.longest_head for n in sizes)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """The result and its logarithms of sums of exponentials, which are 0 where a row sees no key."""
    found: Any = mycc.trained_attention if _is_whole(q, v) else trained_attention
    out, logsumexp, top = found(q, k, v, mask, None, 0.0, causal, _scale(q, scale))
    return out, logsumexp if mask is None or mask.dtype == torch.bool else logsumexp + top


def _gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, logsumexp: Tensor, mask: Tensor | None, causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Those of queries, keys and values; of rows that see no key all are 0."""
    found: Any = mycc.attention_gradient if _is_whole(q, v) else attention_gradient
    of_q, of_k, of_v = found(grad, q, k, v, out, logsumexp, None, mask, None, 0.0, causal, _scale(q, scale))
    return of_q, of_k, of_v


def _without_dropout(probability: float) -> None:
    if probability:
        raise NoDecomposition


@definition("aten.native_dropout_backward")
def native_dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    """In torch's order: an integer that the mask drops is the integer 0, a float keeps its sign."""
    return grad * mask.to(grad.dtype) * scale


@definition("aten._scaled_dot_product_flash_attention_for_cpu")
def flash_attention_for_cpu(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    _without_dropout(dropout_p)
    return _attention(q, k, v, attn_mask, is_causal, scale)


@definition("aten._scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_for_cpu_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    _without_dropout(dropout_p)
    return _gradients(grad, q, k, v, out, logsumexp, attn_mask, is_causal, scale)


@definition("aten._scaled_dot_product_flash_attention_backward")
def flash_attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    _without_dropout(dropout_p)
    return _gradients(grad, q, k, v, out, logsumexp, None, is_causal, scale)


@definition("aten._scaled_dot_product_efficient_attention_backward")
def efficient_attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: Sequence[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    """torch stores logarithms of more rows than there are."""
    _without_dropout(dropout_p)
    logsumexp = logsumexp[:, :, : q.shape[2]]
    found: list[Tensor | None] = [*_gradients(grad, q, k, v, out, logsumexp, attn_bias, is_causal, scale), None]
    if attn_bias is not None and grad_input_mask[3]:
        of_scores = score_gradients(grad, q, k, v, attn_bias, None, 0.0, is_causal, _scale(q, scale))[1]
        found[3] = of_scores.sum_to_size(attn_bias.shape)
    return tuple(g if wanted else None for g, wanted in zip(found, grad_input_mask, strict=True))

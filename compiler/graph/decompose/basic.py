"""Our own decompositions of activations, norms, views and copies; other families have files beside this one.

Only where torch has none, where torch's splits further than the lowering needs, or where ours gives fewer operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .definitions import NoDecomposition, definition, widened

aten = torch.ops.aten


@definition("aten.glu")
def glu(x: Tensor, dim: int = -1) -> Tensor:
    a, b = widened(*x.chunk(2, dim))
    return (a * torch.sigmoid(b)).to(x.dtype)


@definition("aten.hardshrink")
def hardshrink(x: Tensor, bound: float = 0.5) -> Tensor:
    return torch.where((x >= -bound) & (x <= bound), 0.0, x)


@definition("aten.hardshrink_backward", "aten.softshrink_backward")
def shrink_backward(grad: Tensor, x: Tensor, bound: float) -> Tensor:
    return torch.where((x >= -bound) & (x <= bound), 0.0, grad)


@definition("aten.softsign")
def softsign(x: Tensor) -> Tensor:
    return x / (1 + x.abs())


@definition("aten.tanhshrink")
def tanhshrink(x: Tensor) -> Tensor:
    return x - torch.tanh(x)


@definition("aten.instance_norm")
def instance_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Tensor:
    """Statistics over the spatial dimensions of each image and channel; or those given."""
    column, dtype = [1, -1] + [1] * (x.dim() - 2), x.dtype
    x, weight, bias, mean, var = widened(x, weight, bias, mean, var)
    if use_input_stats:
        variance, average = torch.var_mean(x, list(range(2, x.dim())), correction=0, keepdim=True)
    else:
        assert mean is not None
        assert var is not None
        variance, average = var.reshape(column), mean.reshape(column)
    y = (x - average) * torch.rsqrt(variance + eps)
    if weight is not None:
        y = y * weight.reshape(column)
    return (y if bias is None else y + bias.reshape(column)).to(dtype)


@definition("aten.cosine_similarity")
def cosine_similarity(a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    dtype = torch.promote_types(a.dtype, b.dtype)
    a, b = widened(a, b)
    """Sums of products by the lengths: one reading of both, where torch divides their elements."""
    size_a, size_b = ((x * x).sum(dim).sqrt().clamp_min(eps) for x in (a, b))
    return ((a * b).sum(dim) / size_a / size_b).to(dtype)


@definition("aten.linalg_vector_norm")
def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    x, wide, axes = _of_norm(x, dim, dtype)
    return _norm(wide, ord, axes, keepdim).to(x.dtype)


def _of_norm(x: Tensor, dim: Sequence[int] | None, dtype: torch.dtype | None) -> tuple[Tensor, Tensor, list[int]]:
    """x in the dtype, the same widened, and the axes that a norm reduces."""
    x = x if dtype is None else x.to(dtype)
    (wide,) = widened(x)
    return x, wide, list(range(x.dim())) if dim is None or not len(dim) else list(dim)


def _norm(x: Tensor, ord: float, axes: list[int], keepdim: bool) -> Tensor:
    if ord == math.inf:
        return x.abs().amax(axes, keepdim)
    if ord == -math.inf:
        return x.abs().amin(axes, keepdim)
    if ord == 0:
        return (x != 0).to(x.dtype).sum(axes, keepdim)
    if ord == 1:
        return x.abs().sum(axes, keepdim)
    if ord == 2:
        return (x * x).sum(axes, keepdim).sqrt()
    return x.abs().pow(ord).sum(axes, keepdim).pow(1.0 / ord)


@definition("aten.linalg__powsum")
def power_sum(
    x: Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    x, wide, axes = _of_norm(x, dim, dtype)
    return (wide.abs().pow(ord) if ord != 2 else wide * wide).sum(axes, keepdim).to(x.dtype)


@definition("aten._foreach_zero")
def foreach_zero(xs: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(x) for x in xs]


@definition("aten.dist")
def dist(x: Tensor, y: Tensor, p: float = 2) -> Tensor:
    """The difference in the tensors' type, its norm in a wider one, as torch does it."""
    return aten.linalg_vector_norm.default(x - y, p)


@definition("aten.norm.ScalarOpt_dim", "aten.norm.Scalar")
def norm(x: Tensor, p: float | None = 2, dim: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    return vector_norm(x, 2.0 if p is None else p, dim, keepdim)


@definition("aten.diff")
def diff(x: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    if n == 0:
        return x.clone()
    x = torch.cat([t for t in (prepend, x, append) if t is not None], dim)
    for _ in range(n):
        size = x.shape[dim]
        if isinstance(size, int) and size == 0:
            break
        ahead, behind = x.narrow(dim, 1, size - 1), x.narrow(dim, 0, size - 1)
        x = ahead ^ behind if x.dtype == torch.bool else ahead - behind
    return x


@definition("prims.convert_element_type")
def convert_element_type(x: Tensor, dtype: torch.dtype) -> Tensor:
    return aten._to_copy.default(x, dtype=dtype)


@definition("prims.fma")
def fma(a: Tensor, b: Tensor | float, c: Tensor) -> Tensor:
    """What TorchDynamo writes for addcmul_ with a tensor as its factor."""
    return a * b + c


@definition("aten.copy")
def copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return aten._to_copy.default(source, dtype=x.dtype).expand(x.shape)


@definition("aten.fill")
def fill(x: Tensor, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return aten._to_copy.default(value, dtype=x.dtype).expand(x.shape)
    return torch.full_like(x, value)


@definition("aten.slice_scatter")
def slice_scatter(
    x: Tensor, part: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """x with a slice replaced: what lies before it, the part, what lies behind."""
    size = x.shape[dim]
    first, last = _bound(start, 0, size), _bound(end, size, size)
    if step == 1:
        # The three lengths add up to `size` as symbols too: sizes of what follows would grow with each write.
        length = part.shape[dim]
        if _is_zero(size - last):
            first, after = size - length, 0
        else:
            after = size - first - length
        before = [] if _is_zero(first) else [x.narrow(dim, 0, first)]
        behind = [] if _is_zero(after) else [x.narrow(dim, first + length, after)]
        return torch.cat([*before, part, *behind], dim)
    column = [1] * x.dim()
    column[dim] = -1
    index = torch.arange(size).reshape(column)
    inside = (index >= first) & (index < last) & ((index - first) % step == 0)
    source = ((index - first) // step).clamp(0, part.shape[dim] - 1).reshape([-1])
    return torch.where(inside, part.index_select(dim, source), x)


def _bound(value: Any, default: Any, size: Any) -> Any:
    """A bound of a slice as a position; negative ones count from the end, large ones end there."""
    if value is None:
        return default
    if not statically_known_true(value >= 0):
        value = torch.sym_max(_from_end(value, size), 0)
    if (isinstance(value, int) and value >= 2**62) or statically_known_true(value >= size):
        return size
    return value if statically_known_true(value <= size) else torch.sym_min(value, size)


def _from_end(value: Any, size: Any) -> Any:
    """A place as a position: negative ones count from the end."""
    if statically_known_true(value >= 0):
        return value
    if statically_known_true(value < 0):
        return size + value
    return value + size * torch.sym_min(torch.sym_max(-value, 0), 1)


def _is_zero(size: Any) -> bool:
    """Whether a size is 0 whatever the symbols are."""
    return bool(statically_known_true(size == 0))


@definition("aten.select_scatter")
def select_scatter(x: Tensor, part: Tensor, dim: int, index: int) -> Tensor:
    size = x.shape[dim]
    first = _from_end(index, size)
    if not any(_is_one_of_example(n) for n in (first, size - first - 1)):
        return slice_scatter(x, part.unsqueeze(dim), dim, first, first + 1)
    column = [1] * x.dim()
    column[dim] = -1
    return torch.where(torch.arange(size).reshape(column) == first, part.unsqueeze(dim), x)


def _is_one_of_example(size: Any) -> bool:
    """Whether a dynamic size is 1 for the example: torch takes a slice of such a size for one of a single element."""
    return isinstance(size, torch.SymInt) and size.node.has_hint() and size.node.hint == 1


@definition("aten.diagonal")
def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    x = x.movedim([dim1, dim2], [-2, -1])
    rows, columns = x.shape[-2:]
    above, left = max(offset, 0), max(-offset, 0)
    index = torch.arange(torch.sym_min(rows - left, columns - above))
    return aten.index.Tensor(x, [*[None] * (x.dim() - 2), index + left, index + above])


@definition("aten.trace")
def trace(x: Tensor) -> Tensor:
    return diagonal(x).sum()


@definition("aten.pad")
def pad(x: Tensor, sides: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Circular padding: the other end of each dimension put before and behind it."""
    if mode != "circular":
        return aten.pad.default.decompose(x, sides, mode, value)
    for i in range(len(sides) // 2):
        dim = x.dim() - 1 - i
        before, behind = sides[2 * i : 2 * i + 2]
        cut = max(-before, 0), max(-behind, 0)
        x = x.narrow(dim, cut[0], x.shape[dim] - cut[0] - cut[1])
        before, behind = max(before, 0), max(behind, 0)
        head = [] if _is_zero(before) else [x.narrow(dim, x.shape[dim] - before, before)]
        tail = [] if _is_zero(behind) else [x.narrow(dim, 0, behind)]
        x = torch.cat([*head, x, *tail], dim)
    return x


@definition("aten.adaptive_avg_pool1d")
def adaptive_avg_pool1d(x: Tensor, output_size: Sequence[int]) -> Tensor:
    if output_size[0] == 1:
        return x.mean(-1, keepdim=True)
    return aten.squeeze.dim(aten._adaptive_avg_pool2d.default(x.unsqueeze(-2), [1, output_size[0]]), -2)


@definition("aten.pixel_unshuffle")
def pixel_unshuffle(x: Tensor, factor: int) -> Tensor:
    *lead, c, h, w = x.shape
    n = len(lead)
    split = x.reshape([*lead, c, h // factor, factor, w // factor, factor])
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    return split.permute(order).reshape([*lead, c * factor * factor, h // factor, w // factor])


@definition("aten.channel_shuffle")
def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    n, c, *space = x.shape
    return x.reshape([n, groups, c // groups, *space]).transpose(1, 2).reshape([n, c, *space])


@definition("aten.repeat_interleave.self_int")
def repeat_interleave(x: Tensor, repeats: int, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    if dim is None:
        x, dim = x.reshape([-1]), 0
    dim = dim % x.dim()
    shape = list(x.shape)
    wide = x.unsqueeze(dim + 1).expand([*shape[: dim + 1], repeats, *shape[dim + 1 :]])
    return wide.reshape([*shape[:dim], shape[dim] * repeats, *shape[dim + 1 :]])


@definition("aten._efficientzerotensor")
def zeros_without_memory(size: Sequence[int], *, dtype: torch.dtype | None = None, **_: object) -> Tensor:
    return torch.zeros(list(size), dtype=dtype)


@definition("aten.nextafter")
def nextafter(a: Tensor, b: Tensor) -> Tensor:
    """Of 16-bit floats, whose bits are a sign and a magnitude: one step of the magnitude, away from zero or towards it.

    a: 0, b: -1  ->  the smallest negative number;  a = b  ->  b;  NaN of either  ->  NaN
    """
    dtype = torch.promote_types(a.dtype, b.dtype)
    if dtype not in (torch.float16, torch.bfloat16):
        raise NoDecomposition
    a, b = torch.broadcast_tensors(a.to(dtype), b.to(dtype))
    bits = a.contiguous().view(torch.int16)
    away = bits + torch.where((a > 0) == (b > a), 1, -1).to(torch.int16)
    from_zero = torch.where(b > 0, 1, -32767).to(torch.int16)
    step = torch.where(a == 0, from_zero, away).view(dtype)
    return torch.where(a.isnan() | b.isnan(), torch.nan, torch.where(a == b, b, step))

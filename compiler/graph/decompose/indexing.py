"""Selecting, scattering, searching and counting, in terms of gathers, scatters and reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .definitions import NoDecomposition, definition

aten = torch.ops.aten


def _ranks(mask: Tensor) -> Tensor:
    """For each element of a flat mask, how many of those before it are set."""
    return mask.to(torch.int64).cumsum(0) - mask.to(torch.int64)


def _never_empty(values: Tensor, dim: int = 0) -> Tensor:
    """Values of which the run finds the number, and one more: where there are none, something is read all the same."""
    if isinstance(values.shape[dim], int) and values.shape[dim] > 0:
        return values
    return torch.cat([values, values.new_zeros([*values.shape[:dim], 1, *values.shape[dim + 1 :]])], dim)


@definition("aten.masked_scatter")
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    x, mask = x.expand(shape), mask.expand(shape)
    if statically_known_true(source.numel() == 0) or statically_known_true(x.numel() == 0):
        return x.clone()
    flat, values = mask.reshape([-1]), _never_empty(source.reshape([-1]))
    picked = values.index_select(0, _ranks(flat).clamp_max(values.numel() - 1))
    return torch.where(flat, picked, x.reshape([-1])).reshape(shape)


@definition("aten.index_put", "aten._unsafe_index_put")
def index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """Only for one mask and no other index: its elements take the values in order, or all the same ones."""
    used = [i for i, t in enumerate(indices) if t is not None]
    mask = indices[used[0]] if used else None
    if len(used) != 1 or mask is None or mask.dtype != torch.bool:
        raise NoDecomposition("several indices with a mask among them")
    first, rank = used[0], mask.dim()
    lead, rest = list(x.shape[:first]), list(x.shape[first + rank :])
    flat = x.reshape([*lead, mask.numel(), *rest])
    chosen = mask.reshape([-1])
    count = values.shape[first] if values.dim() == len(lead) + 1 + len(rest) else 1
    if not (isinstance(count, int) and count == 1):
        values = _never_empty(values, first)
        values = values.index_select(first, _ranks(chosen).clamp_max(values.shape[first] - 1))
    column = chosen.reshape([-1, *[1] * len(rest)])
    new = values.to(x.dtype) + flat if accumulate else values.to(x.dtype).expand(flat.shape)
    return torch.where(column, new, flat).reshape(x.shape)


@definition("aten.take")
def take(x: Tensor, index: Tensor) -> Tensor:
    return aten.index.Tensor(x.reshape([-1]), [index])


@definition("aten.diagonal_scatter")
def diagonal_scatter(x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    moved = x.movedim([dim1, dim2], [0, 1])
    rows, columns = moved.shape[:2]
    above, left = max(offset, 0), max(-offset, 0)
    index = torch.arange(max(min(rows - left, columns - above), 0))
    out = aten.index_put.default(moved, [index + left, index + above], source.movedim(-1, 0))
    return out.movedim([0, 1], [dim1, dim2])


@definition("aten.nonzero_static")
def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """Row r is where element r that is not zero lies; a row too many takes those that do not fit."""
    mask = (x != 0).reshape([-1])
    ranks = _ranks(mask)
    row = torch.where(mask & (ranks < size), ranks, size)
    place = torch.arange(x.numel())
    columns: list[Tensor] = []
    for n in reversed(x.shape):
        columns.insert(0, place % n)
        place = place // n
    if not columns:
        return torch.full([size, 0], fill_value)
    out = torch.full([size + 1, len(columns)], fill_value)
    return aten.index_put.default(out, [row], torch.stack(columns, -1))[:size]


@definition("aten.resize")
def resize(x: Tensor, size: Sequence[int], *, memory_format: Any = None) -> Tensor:
    """The elements in their order, some of them left out at the end when the new size is smaller."""
    count = math.prod(size)
    fits = isinstance(count, int) and isinstance(x.numel(), int) and count <= x.numel()
    if not fits or not x.is_contiguous() or memory_format not in (None, torch.contiguous_format, torch.preserve_format):
        raise NoDecomposition("more elements than there are have no values, and others lie in an order of their own")
    return x.reshape([-1])[:count].reshape(list(size))


# searching -----------------------------------------------------------------------------------------------------------
def _as_tensor(value: Any, like: Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else torch.full([], value, dtype=like.dtype)


@definition("aten.searchsorted.Scalar")
def searchsorted(edges: Tensor, value: Any, **options: Any) -> Tensor:
    return torch.searchsorted(edges, _as_tensor(value, edges), **options)


@definition("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(values: Any, edges: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    return torch.searchsorted(edges, _as_tensor(values, edges), out_int32=out_int32, right=right)


@definition("aten.isin.Tensor_Tensor", "aten.isin.Tensor_Scalar", "aten.isin.Scalar_Tensor")
def isin(elements: Any, tests: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    if isinstance(elements, Tensor) and isinstance(tests, Tensor):
        found = (elements.unsqueeze(-1) == tests.reshape([-1])).any(-1)
    else:
        found = elements == tests if isinstance(elements, Tensor) else (tests == elements).any()
    return ~found if invert else found


# counting ------------------------------------------------------------------------------------------------------------
def _counted(x: Tensor, edges: Tensor, weight: Tensor | None) -> Tensor:
    """Weights of the elements in each bin; the last bin has its right edge."""
    flat, bins = x.reshape([-1]), edges.shape[0] - 1
    place, inside = _bin(flat, edges)
    weights = torch.ones_like(flat) if weight is None else weight.reshape([-1]).to(flat.dtype)
    share = torch.where(inside, weights, torch.zeros_like(weights))
    return aten.index_add.default(flat.new_zeros([bins]), 0, place, share)


def _bin(x: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """The number of each value's bin, and whether it has one."""
    bins = edges.shape[0] - 1
    place = torch.where(x == edges[-1], bins - 1, torch.searchsorted(edges, x.contiguous(), right=True) - 1)
    return place.clamp(0, bins - 1), (x >= edges[0]) & (x <= edges[-1])


def _limits(x: Tensor, given: Any) -> tuple[Tensor, Tensor]:
    """The range of histogram and histogramdd: as given; of the data; 0 to 1 of none."""
    low, high = given or ((0, 0) if x.numel() else (0, 1))
    return _range(x, low, high, 0.5)


def _range(x: Tensor, low: Any, high: Any, margin: float) -> tuple[Tensor, Tensor]:
    """The range of a histogram; that of the data when none is given, and never empty: a margin on both sides."""
    if low == high:
        if x.numel() == 0:
            first, last = x.new_full([], low), x.new_full([], high)
        else:
            first, last = x.min(), x.max()
    else:
        first, last = x.new_full([], low), x.new_full([], high)
    same = first == last
    return torch.where(same, first - margin, first), torch.where(same, last + margin, last)


def _edges(first: Tensor, last: Tensor, bins: int) -> Tensor:
    step = (last - first) / bins
    index = torch.arange(bins + 1).to(first.dtype)
    return torch.where(index < (bins + 1) / 2, first + step * index, last - step * (bins - index))


@definition("aten.histc")
def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """torch finds a bin by these steps, each rounded to the type of x, and not by its edges. Counts are exact."""
    flat = x.reshape([-1])
    first, last = _range(flat, min, max, 1.0)
    inside = (flat >= first) & (flat <= last)
    place = torch.where(inside, (flat - first) * bins / (last - first), torch.zeros_like(flat))
    place = place.to(torch.int64).clamp(max=bins - 1)
    counts = aten.index_add.default(torch.zeros([bins], dtype=torch.int64), 0, place, inside.to(torch.int64))
    return counts.to(x.dtype)


@definition("aten.histogram.bin_ct")
def histogram(
    x: Tensor, bins: int = 100, *, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    edges = _edges(*_limits(x, range), bins)
    return _density(_counted(x, edges, weight), edges, density), edges


@definition("aten.histogram.bins_tensor")
def histogram_edges(
    x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    return _density(_counted(x, bins, weight), bins, density), bins.clone()


@definition("aten._histogramdd_bin_edges")
def histogramdd_bin_edges(
    x: Tensor, bins: Sequence[int], *, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> list[Tensor]:
    columns = x.reshape([-1, x.shape[-1]]).unbind(1)
    given = [range[2 * i : 2 * i + 2] if range else None for i, _ in enumerate(columns)]
    return [_edges(*_limits(c, limits), n) for c, limits, n in zip(columns, given, bins, strict=True)]


@definition("aten._histogramdd_from_bin_tensors")
def histogramdd(x: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False) -> Tensor:
    """Weights of the points in each cell of a grid; the last cell of a dimension has its right edge."""
    points = x.reshape([-1, x.shape[-1]])
    counts = [edges.shape[0] - 1 for edges in bins]
    cell = torch.zeros([points.shape[0]], dtype=torch.int64)
    inside = torch.ones([points.shape[0]], dtype=torch.bool)
    for column, edges, n in zip(points.unbind(1), bins, counts, strict=True):
        place, within = _bin(column, edges)
        cell, inside = cell * n + place, inside & within
    weights = torch.ones_like(points[:, 0]) if weight is None else weight.reshape([-1]).to(x.dtype)
    share = torch.where(inside, weights, torch.zeros_like(weights))
    total = aten.index_add.default(x.new_zeros([math.prod(counts)]), 0, cell, share).reshape(counts)
    if density:
        total = total / total.sum()
        for d, edges in enumerate(bins):
            total = total / (edges[1:] - edges[:-1]).reshape([-1, *[1] * (len(counts) - 1 - d)])
    return total


@definition("aten._histogramdd_from_bin_cts")
def histogramdd_counts(
    x: Tensor, bins: Sequence[int], *, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Tensor:
    return histogramdd(x, histogramdd_bin_edges(x, bins, range=range), weight=weight, density=density)


def _density(counts: Tensor, edges: Tensor, density: bool) -> Tensor:
    return counts / counts.sum() / (edges[1:] - edges[:-1]) if density else counts


@definition("aten.linspace")
def linspace(start: Any, end: Any, steps: int, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """From both ends to the middle, so that the ends are exact; ends of whole numbers are whole."""
    dtype = dtype or torch.get_default_dtype()
    wide = dtype if dtype.is_floating_point else torch.float64
    if steps <= 1:
        first = start.to(dtype) if isinstance(start, Tensor) else torch.full([], start, dtype=dtype)
        return first.reshape([1])[:steps] if steps else torch.zeros([0], dtype=dtype)
    ends = (v.to(dtype) if isinstance(v, Tensor) else torch.full([], v, dtype=dtype) for v in (start, end))
    first, last = (v.to(wide) for v in ends)
    step = (last - first) / (steps - 1)
    index = torch.arange(steps).to(wide)
    return torch.where(index < steps // 2, first + step * index, last - step * (steps - 1 - index)).to(dtype)


@definition("aten.max_unpool2d", "aten.max_unpool3d")
def max_unpool(x: Tensor, places: Tensor, output_size: Sequence[int], *_: Any) -> Tensor:
    """Zeros but for the elements at their places, each in the plane that it comes from."""
    n = len(output_size)
    lead = x.shape[:-n]
    planes = x.new_zeros([*lead, math.prod(output_size)])
    return planes.scatter(-1, places.flatten(-n), x.flatten(-n)).reshape([*lead, *output_size])


@definition("aten.fractional_max_pool2d.default", "aten.fractional_max_pool3d.default")
def fractional_max_pool(
    x: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], samples: Tensor
) -> tuple[Tensor, Tensor]:
    """Windows whose starts are spread by a number per plane and dimension; the largest element and its place."""
    n = len(kernel_size)
    planes, space = x.shape[:-n], x.shape[-n:]
    samples = samples[0] if x.dim() == n + 1 else samples  # torch draws more than it reads of one image in 3-d
    order = range(n) if n == 3 else (1, 0)  # which of a plane's numbers each dimension has
    flat, stride = None, 1
    for i in reversed(range(n)):
        starts = _interval_starts(samples[..., order[i]], space[i], output_size[i], kernel_size[i])
        places = starts.unsqueeze(-1) + torch.arange(kernel_size[i])  # [.., out, kernel]
        shape = [1] * (2 * n)
        shape[i], shape[n + i] = output_size[i], kernel_size[i]
        own = places.reshape([*planes, *shape]) * stride
        flat, stride = (own if flat is None else flat + own), stride * space[i]
    assert flat is not None
    inside, outputs = math.prod(kernel_size), math.prod(output_size)
    flat = flat.reshape([*planes, *output_size, inside])
    values = x.reshape([*planes, stride]).gather(-1, flat.reshape([*planes, outputs * inside])).reshape(flat.shape)
    largest, which = values.max(-1)
    last_nan = torch.where(values.isnan(), torch.arange(inside), -1).amax(-1)
    which = torch.where(last_nan >= 0, last_nan, which)
    return largest, flat.gather(-1, which.unsqueeze(-1)).squeeze(-1)


def _interval_starts(sample: Tensor, size: int, count: int, kernel: int) -> Tensor:
    """torch's generate_intervals: `count` starts for each number of `sample`, the last one at the end."""
    steps = torch.arange(count)
    last = (steps == count - 1).expand([*sample.shape, count])
    alpha = (size - kernel) / (count - 1) if count > 1 else 0.0
    sample = sample.unsqueeze(-1)
    starts = ((steps + sample) * alpha).to(torch.int64) - (sample * alpha).to(torch.int64)
    return torch.where(last, size - kernel, starts)

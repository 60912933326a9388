"""References of detection operators: non-maximum suppression, and pooling over regions of interest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .numbers import Array


def _nms(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    """Which boxes no kept box in front of them overlaps by more than the limit."""
    n = sizes[0]
    x1, y1, x2, y2 = given[0][: 4 * n].reshape(4, n)
    area, kept = (x2 - x1) * (y2 - y1), np.ones(n, bool)
    for i in range(n):
        if not kept[i]:
            continue
        width = np.minimum(x2[i], x2) - np.maximum(x1[i], x1)
        height = np.minimum(y2[i], y2) - np.maximum(y1[i], y1)
        common = np.maximum(width, 0) * np.maximum(height, 0)
        over = common / (area[i] + area - common) > given[1][0]
        kept &= ~over | (np.arange(n) <= i)
    return (kept,)


def _samples(start: float, length: float, bins: int, fixed: int, size: int) -> tuple[Array, int]:
    """The weight of each pixel of a line for each bin [bin, pixel], summed over the bin's samples; and how many those
    are. A sample outside of [-1, size] has none."""
    bin_length = length / bins
    count = fixed if fixed > 0 else max(int(np.ceil(length / bins)), 0)
    weights = np.zeros((bins, size))
    for b in range(bins):
        for i in range(count):
            at = start + b * bin_length + (i + 0.5) * bin_length / count
            if not -1 <= at <= size:
                continue
            at = max(at, 0.0)
            low = min(int(at), size - 1)
            rest = at - low if low < size - 1 else 0.0
            weights[b, low] += 1 - rest
            weights[b, min(low + 1, size - 1)] += rest
    return weights, count


def _roi_align(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    """The mean of bilinear samples in each bin of a region."""
    results, channels, height, width, bins_y, bins_x, fixed, least, sensitive = sizes
    x, region, image = given
    long_x, long_y = region[2] - region[0], region[3] - region[1]
    if least:
        long_x, long_y = max(long_x, 1.0), max(long_y, 1.0)
    along_y, ny = _samples(region[1], long_y, bins_y, fixed, height)
    along_x, nx = _samples(region[0], long_x, bins_x, fixed, width)
    first = int(image[0]) * channels * height * width
    maps = x[first : first + channels * height * width].reshape(channels, height, width)
    count = nx * ny if sensitive else max(nx * ny, 1)
    if sensitive:
        maps = maps.reshape(results, bins_y, bins_x, height, width)
        sums = np.einsum("cpqhw,ph,qw->cpq", maps, along_y, along_x)
    else:
        sums = np.einsum("chw,ph,qw->cpq", maps[:results], along_y, along_x)
    return (sums / count,)


def _roi_pool(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    """The largest pixel of each bin and its place, or the mean of the channel that belongs to the bin."""
    results, channels, height, width, bins_y, bins_x, sensitive = sizes
    x, region, image = given
    extra = 0 if sensitive else 1
    bin_y = max(region[3] - region[1] + extra, 1.0) / bins_y
    bin_x = max(region[2] - region[0] + extra, 1.0) / bins_x
    rows = [_span(b, bin_y, region[1], height - 1 + extra) for b in range(bins_y)]
    columns = [_span(b, bin_x, region[0], width - 1 + extra) for b in range(bins_x)]
    first = int(image[0]) * channels * height * width
    maps = x[first : first + channels * height * width].reshape(channels, height, width)
    values, places = np.zeros((results, bins_y, bins_x)), np.full((results, bins_y, bins_x), -1)
    for c, p, q in np.ndindex(results, bins_y, bins_x):
        channel = (c * bins_y + p) * bins_x + q if sensitive else c
        (top, bottom), (left, right) = rows[p], columns[q]
        pixels = maps[channel, top:bottom, left:right]
        if sensitive:
            places[c, p, q] = channel
        if pixels.size and sensitive:
            values[c, p, q] = pixels.mean()
        elif pixels.size:
            h, w = np.unravel_index(np.argmax(pixels), pixels.shape)
            values[c, p, q], places[c, p, q] = pixels[h, w], (top + h) * width + left + w
    return values, places


def _span(b: int, length: float, start: float, last: int) -> tuple[int, int]:
    ends = np.floor(b * length) + start, np.ceil((b + 1) * length) + start
    low, high = (int(min(max(at, 0), last)) for at in ends)
    return low, max(high, low)


REGIONS = {"nms": _nms, "roi_align": _roi_align, "roi_pool": _roi_pool}

"""Weights out of each layout that they are packed in: of convolutions, and integer ones of products."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..buffers import Operand
from ..layouts import LINE, NCHW_WIDTH, PANEL, PLANES, line_count, line_values, tap_pairs, winograd_sides
from ..structured import WINOGRAD_FORMS, Conv, Quantised
from .memory import Memory
from .numbers import Array, Value


class _Sizes(NamedTuple):
    """Groups, outputs and inputs of each of them, taps."""

    groups: int
    outputs: int
    inputs: int
    kernel: tuple[int, ...]

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)


def integer_weight(memory: Memory, b: Operand, how: Quantised, k: int, n: int) -> Array:
    """What the integers of a product's right operand stand for, [k, n]."""
    depth, column = np.arange(k)[:, None], np.arange(n)[None, :]
    if b.strides:
        return _rows(memory, b, how, depth, column)
    values, run = line_values(how.bits), how.group or k
    lines = line_count(k, how.bits, how.group)
    line = depth // max(run, 1) * -(-run // values) + depth % max(run, 1) // values
    own = depth % max(run, 1) % values
    place = b.offset.evaluate(memory.sizes) + (column // PANEL * lines + line) * LINE + column % PANEL * 4 + own % 4
    found = memory.load(b.buffer, Value(place)).over((k, n))
    found = found.astype(np.int64) % 256  # bytes, whatever the type of their buffer
    if how.bits == 4:
        found = np.where(own >= 4, found // 16, found % 16)
    found = float8_numbers(found ^ 128) if how.float8 else found - 2 ** (how.bits - 1)
    if how.scales is None:
        return found
    at = (column // PANEL * (k // run) + depth // run) * PANEL + column % PANEL
    if how.zeros is not None:
        found = found - memory.load(how.zeros, Value(at)).over((k, n))
    return found * memory.load(how.scales, Value(at)).over((k, n))


def _rows(memory: Memory, b: Operand, how: Quantised, depth: Array, column: Array) -> Array:
    """The same on GPUs."""
    shape = (depth.shape[0], column.shape[1])
    step, row = (s.evaluate(memory.sizes) for s in b.strides)
    place = b.offset.evaluate(memory.sizes) + column * row
    if how.run:
        chunk, plane, word = depth // (PLANES * how.run), depth // how.run % PLANES, depth % how.run
        place = place + (chunk * how.run + word) * 2 + plane // 2
        found = memory.load(b.buffer, Value(place)).over(shape) % 256
        found = np.where(plane % 2 == 1, found // 16, found % 16) - 8
    else:
        found = memory.load(b.buffer, Value(place + depth * step)).over(shape)
        found = float8_numbers(found) if how.float8 else found
    if how.scales is None:
        return np.asarray(found)
    at = depth // how.group * shape[1] + column
    if how.zeros is not None:
        found = found - memory.load(how.zeros, Value(at)).over(shape)
    return np.asarray(found * memory.load(how.scales, Value(at)).over(shape))


def float8_numbers(found: Array) -> Array:
    """What bytes of float8_e4m3fn stand for."""
    bits = np.asarray(found).astype(np.int64) % 256
    exponent, digits = bits >> 3 & 15, bits & 7
    size = np.where(exponent == 0, digits / 512, (1 + digits / 8) * 2.0 ** (exponent - 7))
    size = np.where(bits & 127 == 127, np.nan, size)
    return np.where(bits & 128, -size, size)


def weight_of(node: Conv, memory: Memory, family: str) -> Array:
    """[group, output, input, tap], the taps row-major. family: on GPUs weights lie in their own order."""
    groups = node.window.groups
    sizes = _Sizes(
        groups,
        node.channel.extent.evaluate(memory.sizes) // groups,
        node.in_shape[-1].evaluate(memory.sizes) // groups,
        node.window.kernel,
    )
    first = node.w_offset.evaluate(memory.sizes)
    if node.algorithm in WINOGRAD_FORMS:
        return _winograd(node, memory, first, sizes)
    if node.algorithm == "integer":
        return _words(node, memory, first, sizes)
    return _elements(node, memory, first + _places(node, sizes, family))


def _elements(node: Conv, memory: Memory, places: Array) -> Array:
    return memory.load(node.w, Value(places)).over(places.shape)


def _places(node: Conv, sizes: _Sizes, family: str) -> Array:
    """Where each element lies, without the offset of the weight."""
    g, o, i, t = np.ogrid[: sizes.groups, : sizes.outputs, : sizes.inputs, : sizes.taps]
    panels = -(-sizes.outputs // PANEL)
    if node.algorithm == "pixels":
        return np.asarray((i * sizes.taps + t) * sizes.outputs + o)
    if node.depthwise:
        return np.asarray(t * sizes.groups + g + 0 * (o + i))
    if node.is_nchw and node.algorithm == "nchw":
        width = min(sizes.outputs, NCHW_WIDTH)
        rows, columns = t // sizes.kernel[-1], t % sizes.kernel[-1]
        block = g * -(-sizes.outputs // width) + o // width
        block = block * (sizes.taps // sizes.kernel[-1]) + rows
        return np.asarray(((block * sizes.inputs + i) * sizes.kernel[-1] + columns) * width + o % width)
    if family == "cuda":
        return np.asarray(((g * sizes.outputs + o) * sizes.taps + t) * sizes.inputs + i)
    if node.algorithm == "grouped":
        own = g * sizes.outputs + o
        return np.asarray(((own // PANEL * sizes.taps + t) * sizes.inputs + i) * PANEL + own % PANEL)
    return np.asarray((((g * panels + o // PANEL) * sizes.taps + t) * sizes.inputs + i) * PANEL + o % PANEL)


def _words(node: Conv, memory: Memory, first: int, sizes: _Sizes) -> Array:
    """Taps of a depthwise convolution of integers, two words in each number."""
    made, channel = np.zeros((sizes.groups, 1, 1, sizes.taps)), np.arange(sizes.groups)
    height, width = sizes.kernel
    for number, (lower, upper) in enumerate(tap_pairs(height, width)):
        both = memory.load(node.w, Value(first + number * sizes.groups + channel)).over(channel.shape).astype(np.int64)
        made[:, 0, 0, upper] = both >> 16
        if lower is not None:
            made[:, 0, 0, lower] = (both + 2**15) % 2**16 - 2**15
    return made


def _winograd(node: Conv, memory: Memory, first: int, sizes: _Sizes) -> Array:
    """Taps as they are, or what G made of each three by three of them: G is inverted."""
    form = WINOGRAD_FORMS[node.algorithm]
    *deep, height, width = sizes.kernel
    depth, panels = math.prod(deep), -(-sizes.outputs // PANEL)
    g, o, i, d = np.ogrid[: sizes.groups, : sizes.outputs, : sizes.inputs, :depth]
    if form.taps:
        t = np.arange(9)
        block = ((g * depth + d) * panels + o // PANEL) * sizes.inputs + i
        places = first + (block[..., None] * 9 + t) * PANEL + (o % PANEL)[..., None]
        return _elements(node, memory, places).reshape(*places.shape[:3], -1)
    rows, columns = ([np.array(g_) for g_ in winograd_sides(form.outputs, form.stride, n)] for n in (height, width))
    matrices = sum(len(r) * len(c) for r in rows for c in columns)
    at = np.arange(matrices)
    block = (((g * depth + d)[..., None] * matrices + at) * panels + (o // PANEL)[..., None]) * sizes.inputs
    places = first + (block + i[..., None]) * PANEL + (o % PANEL)[..., None]
    made = _elements(node, memory, places)
    kernel = np.zeros((*made.shape[:4], 3 * len(rows), 3 * len(columns)))
    begin = 0
    for y, r in enumerate(rows):
        for x, c in enumerate(columns):
            part = made[..., begin : begin + len(r) * len(c)].reshape(*made.shape[:4], len(r), len(c))
            begin += len(r) * len(c)
            kernel[..., 3 * y : 3 * y + 3, 3 * x : 3 * x + 3] = np.linalg.pinv(r) @ part @ np.linalg.pinv(c).T
    whole = kernel[..., :height, :width]
    return whole.reshape(*whole.shape[:3], -1)

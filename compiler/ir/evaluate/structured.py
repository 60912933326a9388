"""Matrix products, convolutions and attention, by what they are defined as: no tiles, no transforms, no online sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..buffers import Operand
from ..expr import Acc
from ..index import Index, Var, as_index, of
from ..layouts import PANEL
from ..structured import Attention, AttentionGradient, Conv, ConvChain, Digits, Gemm, Pages, Patches, Rest
from .iterations import Iterations
from .memory import Memory
from .numbers import Array, Value
from .weights import float8_numbers, integer_weight, weight_of


def _operand(memory: Memory, operand: Operand, strides: Sequence[Index], shape: Sequence[int]) -> Value:
    """The elements of an operand, an axis for each stride."""
    place = np.asarray(operand.offset.evaluate(memory.sizes), np.int64)
    for axis, (stride, n) in enumerate(zip(strides, shape, strict=True)):
        along = np.arange(n, dtype=np.int64).reshape([n if a == axis else 1 for a in range(len(shape))])
        place = place + along * stride.evaluate(memory.sizes)
    return memory.load(operand.buffer, Value(place))


def _sizes(memory: Memory, extents: Sequence[Index]) -> list[int]:
    return [max(n.evaluate(memory.sizes), 0) for n in extents]


# products ------------------------------------------------------------------------------------------------------------
def run_gemm(node: Gemm, memory: Memory) -> None:
    left = _left(node, memory)
    accs = {}
    for b, acc in ((node.b, node.acc), *node.also):
        right = _right(node, b, memory)
        with np.errstate(all="ignore"):
            accs[acc] = Value(memory.numbers.computed(left @ right, acc.dtype))
    _finish(node, memory, accs)


def _left(node: Gemm, memory: Memory) -> Array:
    """a[z..., m, k], or what the prologue makes of it."""
    shape = _sizes(memory, [*(v.extent for v in node.dims[:-1]), node.k])
    if node.quantised is not None and node.quantised.patches is not None:
        return _patches(memory, node.a, node.quantised.patches, shape)
    strides = [*node.a.strides, as_index(1)][: len(shape)]
    a = _operand(memory, node.a, strides, shape)
    if node.prologue is None:
        numbers = a.over(shape)
        how = node.quantised
        return float8_numbers(numbers) if how is not None and how.float8 and node.a.buffer.dtype == "u8" else numbers
    made = node.prologue
    iterations = Iterations.over(memory, (*node.dims[:-1], made.depth), {made.acc: a})
    return memory.numbers.held(iterations.value(made.value).over(iterations.shape), made.dtype)


def _patches(memory: Memory, a: Operand, how: Patches, shape: Sequence[int]) -> Array:
    rows, depth = np.arange(shape[0])[:, None], np.arange(shape[1])[None, :]
    place = a.offset.evaluate(memory.sizes) + _placed(memory, how.rows, rows)
    place = place + _placed(memory, how.taps, depth // how.run) + depth % how.run
    return memory.load(a.buffer, Value(place)).over(tuple(shape))


def _placed(memory: Memory, digits: Digits, number: Array) -> Array:
    place = np.zeros_like(number)
    for extent, stride in zip(reversed(digits.extents), reversed(digits.strides), strict=True):
        size = max(extent.evaluate(memory.sizes), 1)
        place = place + number % size * stride.evaluate(memory.sizes)
        number = number // size
    return place


def _right(node: Gemm, b: Operand, memory: Memory) -> Array:
    """b[z..., k, n]"""
    *lead, n = _sizes(memory, [*(v.extent for v in node.dims[:-2]), node.dims[-1].extent])
    k = node.k.evaluate(memory.sizes)
    if node.quantised is not None:
        return integer_weight(memory, b, node.quantised, k, n)
    if not node.packed:
        return _operand(memory, b, b.strides, (*lead, k, n)).over((*lead, k, n))
    batch, panel = [s.evaluate(memory.sizes) for s in b.strides] if len(b.strides) == 2 else (0, k * PANEL)
    if len(b.strides) == 1:
        batch = b.strides[0].evaluate(memory.sizes)
    z = np.arange(int(np.prod(lead))).reshape(*lead, 1, 1)
    depth, column = np.arange(k)[:, None], np.arange(n)[None, :]
    place = b.offset.evaluate(memory.sizes) + z * batch + column // PANEL * panel + depth * PANEL + column % PANEL
    return memory.load(b.buffer, Value(place)).over((*lead, k, n))


def _finish(node: Gemm | Conv, memory: Memory, accs: dict[Acc, Value]) -> None:
    iterations = Iterations.over(memory, node.dims, accs)
    for store in node.stores:
        iterations.store(store)


# convolutions --------------------------------------------------------------------------------------------------------
def run_conv(node: Conv, memory: Memory, family: str) -> None:
    """Tap by tap."""
    weight = weight_of(node, memory, family)
    batch, *inner, channels = _sizes(memory, node.in_shape)
    _, *outer = _sizes(memory, [v.extent for v in node.pixels])
    groups, outputs, inputs, _ = weight.shape
    x = _map_of(node, memory, (batch, *inner, channels))
    total = np.zeros((batch, *outer, groups, outputs))
    with np.errstate(all="ignore"):
        for t, tap in enumerate(np.ndindex(*node.window.kernel)):
            seen = _seen(x, node, tap, outer).reshape(batch, *outer, groups, inputs)
            total = total + np.einsum("...gi,goi->...go", seen, weight[..., t])
    result = total.reshape(batch, *outer, groups * outputs)
    if node.is_nchw:
        result = np.moveaxis(result, -1, 1)
    _finish(node, memory, {node.acc: Value(memory.numbers.computed(result, node.acc.dtype))})


def _map_of(node: Conv, memory: Memory, shape: tuple[int, ...]) -> Array:
    """The input with its channels last."""
    strides = [*node.x.strides, as_index(1)][: len(shape)]
    return _operand(memory, node.x, strides, shape).over(shape)


def _seen(x: Array, node: Conv, tap: Sequence[int], outer: Sequence[int]) -> Array:
    """What a tap reads for each output: the zero of the map where it lies outside."""
    win = node.window
    for d, n in enumerate(outer):
        at = np.arange(n) * win.stride[d] - win.pad[d] + tap[d] * win.dilation[d]
        size = x.shape[d + 1]
        inside = (at >= 0) & (at < size)
        picked = np.take(x, np.clip(at, 0, max(size - 1, 0)), axis=d + 1) if size else _none(x, d + 1, n)
        x = np.where(inside.reshape([n if a == d + 1 else 1 for a in range(x.ndim)]), picked, float(node.zero))
    return x


def _none(x: Array, axis: int, n: int) -> Array:
    return np.zeros((*x.shape[:axis], n, *x.shape[axis + 1 :]))


def run_chain(node: ConvChain, memory: Memory, family: str) -> None:
    """Link after link; what lies between them is as large as if it were in memory."""
    for link in node.links:
        run_conv(link, memory, family)
    for buffer in node.locals:
        memory.cells.pop(buffer.root, None)


# attention -----------------------------------------------------------------------------------------------------------
def run_attention(node: Attention, memory: Memory) -> None:
    """A row of scores that are all -inf, or that has no keys, gives zeros."""
    batch, heads, rows, width = _sizes(memory, [v.extent for v in node.dims])
    groups, keys, depth = _sizes(memory, (node.kv_heads, node.keys, node.head_size))
    dense = as_index(1)
    queries = (batch, heads, rows, depth)
    q = _operand(memory, node.q, (*node.q.strides, dense), queries).over(queries)
    k = _rows_of(node.k, node.k_rest, node.k_pages, memory, (batch, groups, keys, depth))
    v = _rows_of(node.v, node.v_rest, node.v_pages, memory, (batch, groups, keys, width))
    k, v = (np.repeat(t, heads // groups if groups else 1, 1) for t in (k, v))
    with np.errstate(all="ignore"):
        scores, hidden = _scores(node, q, k, memory)
        result = _weighted(scores, v, hidden, _dropout(node, memory))
        high = scores.max(-1, initial=-np.inf)
        shift = np.where(high == -np.inf, 0.0, high)
        log = np.where(high == -np.inf, node.empty, np.log(np.exp(scores - shift[..., None]).sum(-1)))
        log = log if node.top is not None else log + shift
        if node.sink is not None:
            sink = _operand(memory, node.sink, node.sink.strides, (batch, heads, rows)).over((batch, heads, rows))
            whole = log if node.top is None else log + shift
            result = np.where(high == -np.inf, 0.0, 1 / (1 + np.exp(sink - whole)))[..., None] * result
    _put(memory, node.out, node.dims, result)
    if node.logsumexp is not None:
        _put(memory, node.logsumexp, node.dims[:3], log)
    if node.top is not None:
        _put(memory, node.top, node.dims[:3], shift)


def run_attention_gradient(node: AttentionGradient, memory: Memory) -> None:
    """A row whose scores are all -inf gives zeros, as do keys that `causal` hides."""
    batch, heads, rows, width = _sizes(memory, [v.extent for v in node.dims])
    groups, keys, depth = _sizes(memory, (node.kv_heads, node.keys, node.head_size))
    shared = heads // groups if groups else 1

    def read(operand: Operand, *shape: int) -> Array:
        return _operand(memory, operand, [*operand.strides, as_index(1)][: len(shape)], shape).over(shape)

    q, grad = read(node.q, batch, heads, rows, depth), read(node.grad, batch, heads, rows, width)
    k, v = read(node.k, batch, groups, keys, depth), read(node.v, batch, groups, keys, width)
    k, v = (np.repeat(t, shared, 1) for t in (k, v))
    log, inner = (read(o, batch, heads, rows)[..., None] for o in (node.logsumexp, node.inner))
    top = 0.0 if node.top is None else read(node.top, batch, heads, rows)[..., None]
    with np.errstate(all="ignore"):
        scores, hidden = _scores(node, q, k, memory)
        dropout = _dropout(node, memory)
        weights = np.where(hidden, 0.0, np.exp(scores - top - log))
        of_scores = np.where(hidden, 0.0, weights * (dropout * (grad @ v.swapaxes(-1, -2)) - inner)) * node.scale
        of_k, of_v = of_scores.swapaxes(-1, -2) @ q, (weights * dropout).swapaxes(-1, -2) @ grad
        of_k, of_v = (t.reshape(batch, groups, shared, keys, t.shape[-1]).sum(2) for t in (of_k, of_v))
    _put(memory, node.of_q, (*node.dims[:3], Var("q", node.head_size)), of_scores @ k)
    shape = (node.dims[0], Var("group", node.kv_heads), Var("key", node.keys))
    _put(memory, node.of_k, (*shape, Var("q", node.head_size)), of_k)
    _put(memory, node.of_v, (*shape, node.dims[3]), of_v)


def _scores(node: Attention | AttentionGradient, q: Array, k: Array, memory: Memory) -> tuple[Array, Array]:
    """The scores [b, h, m, key], -inf where a key is hidden; where one is [m, key]."""
    scores = memory.numbers.computed(q @ k.swapaxes(-1, -2) * node.scale, "f32")
    if node.score is not None:
        iterations = Iterations.over(memory, (*node.dims[:3], node.key), {Acc("score", "f32"): Value(scores)})
        scores = iterations.value(node.score).over(iterations.shape)
    rows, keys = scores.shape[-2:]
    hidden = np.zeros((rows, keys), bool)
    if node.causal:
        hidden = np.arange(keys)[None, :] > np.arange(rows)[:, None]
    return np.where(hidden, -np.inf, scores), hidden


def _dropout(node: Attention | AttentionGradient, memory: Memory) -> Array | float:
    """What weights are multiplied with, [b, h, m, key]."""
    if node.dropout is None:
        return 1.0
    iterations = Iterations.over(memory, (*node.dims[:3], node.key))
    return iterations.value(node.dropout).over(iterations.shape)


def _put(memory: Memory, operand: Operand, loops: Sequence[Var], values: Array) -> None:
    """Stores an element for each turn of the loops; an operand without a stride for the last one is dense there."""
    strides = [*operand.strides, as_index(1)][: len(loops)]
    place = sum((of(loop) * stride for loop, stride in zip(loops, strides, strict=True)), operand.offset)
    Iterations.over(memory, tuple(loops)).put(operand.buffer, place, Value(values))


def _weighted(scores: Array, v: Array, hidden: Array, dropout: Array | float) -> Array:
    """(softmax(scores) * dropout) v; the keys that are hidden from a query are not read for it."""
    high = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(high == -np.inf, 0.0, high))
    total = weights.sum(-1, keepdims=True)
    weights = weights * dropout
    if np.isfinite(v).all():
        sums = weights @ v
    else:
        terms = np.where(hidden[..., None], 0.0, weights[..., None] * v[:, :, None])
        sums = terms.sum(-2)
    return np.where(high == -np.inf, 0.0, sums / total)


def _rows_of(operand: Operand, rest: Rest | None, pages: Pages | None, memory: Memory, shape: tuple[int, ...]) -> Array:
    """Keys or values [b, g, key, d], the last of which may lie elsewhere, or all in blocks."""
    strides = (*operand.strides, as_index(1))
    if pages is not None:
        return _rows_in_blocks(operand, pages, memory, shape)
    if rest is None:
        return _operand(memory, operand, strides, shape).over(shape)
    first = min(rest.first.evaluate(memory.sizes), shape[2])
    here, there = (*shape[:2], first, shape[3]), (*shape[:2], shape[2] - first, shape[3])
    others = (*rest.operand.strides, as_index(1))
    parts = [_operand(memory, operand, strides, here).over(here)]
    parts.append(_operand(memory, rest.operand, others, there).over(there))
    return np.concatenate(parts, 2)


def _rows_in_blocks(operand: Operand, pages: Pages, memory: Memory, shape: tuple[int, ...]) -> Array:
    texts, groups, keys, width = shape
    used = (texts, -(-keys // pages.rows))
    table = _operand(memory, pages.table, pages.table.strides, used).over(used).astype(np.int64)
    blocks = (int(table.max(initial=-1)) + 1, groups, pages.rows, width)
    strides = (pages.step, *operand.strides[1:], as_index(1))
    rows = _operand(memory, operand, strides, blocks).over(blocks)[table]  # [texts, blocks, groups, rows, width]
    return rows.swapaxes(1, 2).reshape(texts, groups, -1, width)[:, :, :keys]

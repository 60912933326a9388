"""Structured nodes of the loop IR: what is computed by kernels written for it, with stores as epilogues.

    h0 = gemm[m:s0, n:3072; k:768] acc = x @ packed w1 -> h0[m*3072 + n] = gelu(acc + b1[n])

Operands lie in memory by strides (buffers.py); weights are packed as each node says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from .buffers import Buffer, Operand
from .expr import Acc, Expr
from .index import ONE, Index, Var
from .nodes import Node, kept


@dataclass(frozen=True)
class Prologue:
    """What a product multiplies instead of its left operand as it lies in memory: `value` at (z, m, depth), rounded to
    `dtype`. In it `acc` is the operand's element."""

    depth: Var
    acc: Acc
    value: Expr
    dtype: str


class Digits(NamedTuple):
    """A number as digits, the last one first to change: how many values each has, and elements from one to the next."""

    extents: tuple[Index, ...]
    strides: tuple[Index, ...]


@dataclass(frozen=True)
class Patches:
    """The left operand of a convolution that is a product: row m and the run of values that k is in begin at

    a.offset + the strides of the digits of m (image, line, pixel) + those of the digits of k // run (line, pixel)

    Maps of three dimensions have planes as well, between images and lines.
    """

    rows: Digits
    taps: Digits
    run: int


@dataclass(frozen=True)
class Quantised:
    """How a product reads the integers of its right operand: each stands for (value - zero) * scale.

    bits: of a value, 8 or 4. group: values of k that share a scale; 0: there are none, and the caller scales. scales,
    zeros: of the groups; no zeros are 0. patches: how the left operand lies where it is no matrix.

    On CPUs weights lie in lines (layouts.line_values), scales and zeros in panels [ceil(n/16)][k / group][16]. On GPUs
    weights of 8 bits are rows [n][k], those of 4 bits planes (layouts.PLANES) of `run` words; scales and zeros are
    [k / group][n]. float8: operands of bytes are float8_e4m3fn, the left one where it is of bytes too;
    fast: their sums may have the digits of tensor cores alone.
    """

    bits: int
    group: int = 0
    scales: Buffer | None = None
    zeros: Buffer | None = None
    patches: Patches | None = None
    run: int = 0
    float8: bool = False
    fast: bool = False

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Those of its scales and zeros."""
        return tuple(b for b in (self.scales, self.zeros) if b is not None)

    def __str__(self) -> str:
        group = f" by {self.group}" if self.group else ""
        group += f", runs of {self.run}" if self.run else ""
        patches = f", patches of {self.patches.run}" if self.patches is not None else ""
        kind = "float8" if self.float8 else f"{self.bits} bit"
        return f"{kind}{group}{patches}{''.join(f', {b}' for b in self.buffers)}"


@dataclass(frozen=True, eq=False)
class Gemm(Node):
    """acc[z, m, n] = sum over k of a[z, m, k] * b[z, k, n]; then stores. dims = (z..., m, n).

    a.strides = (z..., m, k) with k dense, on GPUs one of m and k. b: panels [ceil(n/16)][k][16] when `packed`, the same
    for all z, or parts of them with strides (z, panel); else strides (z..., k, n).
    also: more products of a, each with its sum, whose operands lie like b: a gate beside its value. Packed ones come
    right behind b, whose columns are whole panels.
    prologue: what becomes of a before it is multiplied.
    rounded: "bf16" where a, which is float32 in memory, is multiplied as values of that dtype; "": as it is.
    quantised: of a b whose values are integers, or float8; of a packed one () are the strides. The sum is an int32
    where a is int8 and there are no groups; an int8 a has exact sums of each group.
    """

    k: Index
    a: Operand
    b: Operand
    packed: bool
    acc: Acc
    also: tuple[tuple[Operand, Acc], ...] = ()
    prologue: Prologue | None = None
    quantised: Quantised | None = None
    rounded: str = ""

    @property
    def a_dtype(self) -> str:
        """The type in which the left operand is multiplied."""
        return self.a.buffer.dtype if self.prologue is None else self.prologue.dtype

    @property
    def unit_strides(self) -> tuple[Index, Index]:
        """Strides of b along k and n; a dimension of size 1 counts as dense."""
        b_k, b_n = self.b.strides[-2:]
        if ONE in (b_k, b_n):
            return b_k, b_n
        return (ONE, b_n) if self.k == ONE else (b_k, ONE)

    @property
    def row_strides(self) -> tuple[Index, Index]:
        """Strides of a along m and k; a k of size 1 counts as dense."""
        a_m, a_k = self.a.strides[-2:]
        return (a_m, ONE) if self.k == ONE else (a_m, a_k)

    def expressions(self) -> Iterator[Expr]:
        if self.prologue is not None:
            yield self.prologue.value
        yield from super().expressions()

    @kept
    def reads(self) -> tuple[Buffer, ...]:
        """The buffers that it reads, each once."""
        others = (b.buffer for b, _ in self.also)
        scales = self.quantised.buffers if self.quantised is not None else ()
        return tuple(dict.fromkeys((self.a.buffer, self.b.buffer, *others, *scales, *super().reads())))


@dataclass(frozen=True)
class Window:
    """Geometry of a convolution of 2 or 3 dimensions, all in elements of the map.

    pad: zeros in front; those behind follow from the sizes. Below 0 where the first window starts inside the input.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def grouped(self) -> bool:
        """Whether the channels have groups."""
        return self.groups > 1

    def moved(self, zeros: Sequence[int]) -> Window:
        """The window with so many more zeros in front."""
        return replace(self, pad=tuple(p + z for p, z in zip(self.pad, zeros, strict=True)))

    def lifted(self) -> Window:
        """With one more dimension, of size 1, in front."""
        sides = {"kernel": 1, "stride": 1, "pad": 0, "dilation": 1}
        changed: dict[str, Any] = {name: (first, *getattr(self, name)) for name, first in sides.items()}
        return replace(self, **changed)


#: how a convolution is computed; grouped: for groups of few channels; nchw: for few channels; transposing:
#: a direct one, whose blocks are transposed; integer: a depthwise one of int8, with an int32 sum; pixels: the gradient
#: of a weight, whose window are all pixels of a sample
Algorithm: TypeAlias = Literal[
    "direct",
    "winograd2",
    "winograd3",
    "winograd3taps",
    "winograd4",
    "winograd2s2",
    "grouped",
    "nchw",
    "transposing",
    "integer",
    "pixels",
]
NCHW: tuple[Algorithm, ...] = ("nchw", "transposing")


class WinogradForm(NamedTuple):
    """One of Winograd's convolutions of 3x3 taps or more: outputs of a tile along each dimension, and the stride.

    taps: the weights are stored as they are, and transformed in each run.
    """

    outputs: int
    stride: int = 1
    taps: bool = False

    def saved(self, kernel: Sequence[int]) -> float:
        """How many times fewer products than a plain convolution a kernel [h, w] takes, three taps of it at a time.
        Those of one or two taps have a point less, as the third is zero."""
        points = (self.outputs - 1) * self.stride + 3
        products = math.prod(points * -(-taps // 3) - (taps % 3 > 0) for taps in kernel)
        return math.prod(kernel) * self.outputs ** len(kernel) / products


WINOGRAD_FORMS: Mapping[Algorithm, WinogradForm] = {
    "winograd2": WinogradForm(2),
    "winograd3": WinogradForm(3),
    "winograd3taps": WinogradForm(3, taps=True),
    "winograd4": WinogradForm(4),
    "winograd2s2": WinogradForm(2, 2),
}


@dataclass(frozen=True, eq=False)
class Conv(Node):
    """Convolution in channels-last: dims = (n, h, w, c of the output); x.strides = (n, h, w) with dense channels, or
    (n, h, w, c). In planes: dims = (n, c, h, w), and all four strides.

    In 3 dimensions there is a depth in front of h. in_shape = (batch, height, width, channels). w is packed: depthwise
    [taps][channels], else [groups][ceil(out/groups/16)][taps][in/groups][16], for Winograd
    [groups][d][weights][ceil(out/groups/16)][in/groups][16] or, as taps,
    [groups][d][ceil(out/groups/16)][in/groups][9][16], in NCHW
    [groups][ceil(out/groups/4)][d][h][in/groups][w][4], of integers [pairs of taps][channels] (layouts.tap_pairs), for
    GPUs [out][taps][in/groups], by pixels [in][taps][out]. zero: what lies outside of a map of integers.

    By pixels, on a GPU, it is the gradient of a convolution's weight, with the samples as its channels: x are the maps
    of the input, w those of the output's gradient, both with their channels last, a tap of the window is a pixel of
    the output, and an output a tap of the weight: dims = (channel of the input, h, w of the taps, channel of the
    output).
    """

    x: Operand
    w: Buffer
    w_offset: Index
    in_shape: tuple[Index, ...]
    window: Window
    acc: Acc
    algorithm: Algorithm = "direct"
    zero: int = 0

    @property
    def is_nchw(self) -> bool:
        """Whether its tensors are NCHW in memory; else NHWC."""
        return self.algorithm in NCHW

    @property
    def channel(self) -> Var:
        """The loop over the output's channels."""
        return self.dims[1 if self.is_nchw else -1]

    @property
    def pixels(self) -> tuple[Var, ...]:
        """The other loops: (n, h, w)."""
        return tuple(v for v in self.dims if v is not self.channel)

    @property
    def depthwise(self) -> bool:
        """Whether each channel has a window of its own and NHWC tensors."""
        groups, flat = self.window.groups, len(self.dims) == 4 and not self.is_nchw
        return flat and groups > 1 and self.in_shape[3] == groups == self.channel.extent

    @kept
    def reads(self) -> tuple[Buffer, ...]:
        """The buffers that it reads, each once."""
        return tuple(dict.fromkeys((self.x.buffer, self.w, *super().reads())))


@dataclass(frozen=True, eq=False)
class ConvChain(Node):
    """Convolutions one after the other, in bands of rows: expand (1x1), depthwise, project (1x1); one of the 1x1 may be
    missing, and the first may have a window on few channels instead. dims and stores are those of the last.

    links: in their order. locals: what each of them but the last makes for the next one; it never leaves the cache.
    """

    links: tuple[Conv, ...]
    locals: tuple[Buffer, ...]

    def expressions(self) -> Iterator[Expr]:
        for link in self.links:
            yield from link.expressions()

    @kept
    def reads(self) -> tuple[Buffer, ...]:
        """The buffers that it reads, each once."""
        return tuple(dict.fromkeys(b for link in self.links for b in link.reads() if b not in self.locals))


@dataclass(frozen=True)
class Rest:
    """The rows of an operand from row `first` on, which lie elsewhere: what a call adds to a cache."""

    first: Index
    operand: Operand


@dataclass(frozen=True)
class Pages:
    """Where rows of an operand lie that are in blocks: row n of text b is row n % rows of block table[b, n // rows].

    table: of i64, each a block that there is; its strides are those of (text, block). rows: of a block, a power of two.
    step: elements from a block to the next one of the memory.
    """

    table: Operand
    rows: int
    step: Index

    def __str__(self) -> str:
        return f"blocks of {self.rows} by {self.table.buffer}"


@dataclass(frozen=True, eq=False)
class Attention(Node):
    """softmax(scale * q k^T + score) v, never writing the scores. dims = (b, h, m, d of the output).

    q.strides = (b, h, m), k, v the same over keys; the last dimension is dense. `score` changes a scaled score
    (an Acc named "score") at (b, h, m, key). The output is stored dense in its last dimension. Of k and v the last keys
    may lie elsewhere, or all of them in blocks: the strides over keys are those within a block then, and those of b 0.
    sink, strides (b, h, m), of f32: one more score of each row, which takes weight and has no value. logsumexp, strides
    (b, h, m): where the logarithm of each row's sum of exponentials is stored, the sink's not among them; `empty` of a
    row that sees no key. top, strides (b, h, m): where the largest score of each row is stored, which the logarithms do
    not hold then; 0 of a row that sees no key. dropout, at (b, h, m, key): what a weight of the softmax is multiplied
    with, 0 for one that is dropped.
    """

    q: Operand
    k: Operand
    v: Operand
    out: Operand
    kv_heads: Index
    keys: Index
    head_size: Index
    scale: float
    causal: bool
    key: Var
    score: Expr | None
    k_rest: Rest | None = None
    v_rest: Rest | None = None
    k_pages: Pages | None = None
    v_pages: Pages | None = None
    logsumexp: Operand | None = None
    sink: Operand | None = None
    empty: float = 0.0
    top: Operand | None = None
    dropout: Expr | None = None

    @property
    def tables(self) -> tuple[Operand, ...]:
        """Those of blocks."""
        return tuple(pages.table for pages in (self.k_pages, self.v_pages) if pages is not None)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All that is read, the rests and the sink behind q, k and v."""
        rests = tuple(rest.operand for rest in (self.k_rest, self.v_rest) if rest is not None)
        return (self.q, self.k, self.v, *rests, *(() if self.sink is None else (self.sink,)))

    def expressions(self) -> Iterator[Expr]:
        yield from (e for e in (self.score, self.dropout) if e is not None)
        yield from super().expressions()

    @kept
    def reads(self) -> tuple[Buffer, ...]:
        """The buffers that it reads, each once."""
        return tuple(dict.fromkeys((*(o.buffer for o in (*self.operands, *self.tables)), *super().reads())))

    @kept
    def writes(self) -> tuple[Buffer, ...]:
        """The buffers that it writes."""
        return (self.out.buffer, *(o.buffer for o in (self.logsumexp, self.top) if o is not None))


@dataclass(frozen=True, eq=False)
class AttentionGradient(Node):
    """The gradients of attention to q, k and v, never writing the scores. dims = (b, h, m, d of the output).

        p = exp(scale * q k^T + score - top - logsumexp),  s = p * (dropout * grad v^T - inner)
        of_q = scale * s k,  of_k = scale * s^T q,  of_v = (p * dropout)^T grad

    Operands, score and dropout as those of Attention. grad: the output's gradient; logsumexp, top and inner, strides
    (b, h, m): of each row what the attention has stored, and the sum of grad times the output.
    """

    q: Operand
    k: Operand
    v: Operand
    grad: Operand
    logsumexp: Operand
    inner: Operand
    of_q: Operand
    of_k: Operand
    of_v: Operand
    kv_heads: Index
    keys: Index
    head_size: Index
    scale: float
    causal: bool
    key: Var
    score: Expr | None
    dropout: Expr | None = None
    top: Operand | None = None

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What it reads: q, k, v, the gradient of the output, the logsumexp of the scores, the rows' sums of
        grad * out, and the largest scores."""
        of_rows = (self.logsumexp, self.inner, *(() if self.top is None else (self.top,)))
        return (self.q, self.k, self.v, self.grad, *of_rows)

    @property
    def results(self) -> tuple[Operand, ...]:
        """What it writes: the gradients of q, k and v."""
        return (self.of_q, self.of_k, self.of_v)

    def expressions(self) -> Iterator[Expr]:
        yield from (e for e in (self.score, self.dropout) if e is not None)
        yield from super().expressions()

    @kept
    def reads(self) -> tuple[Buffer, ...]:
        """The buffers that it reads, each once."""
        return tuple(dict.fromkeys((*(o.buffer for o in self.operands), *super().reads())))

    @kept
    def writes(self) -> tuple[Buffer, ...]:
        """The buffers that it writes."""
        return tuple(o.buffer for o in self.results)

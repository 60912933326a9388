"""What products, convolutions and attention of CPUs are chosen and cut by, which all levels share.

The numbers did best on the machines that cpu.py names; the decisions that a row names say what they are for. Those that
follow from a cache are written in its size. Register tiles are in cpu.py: each level has its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from .cpu import L1, L2, PANEL

FLOAT = 4  # bytes


@dataclass(frozen=True)
class BlockingFacts:
    """Blocks of products, convolutions and attention (docs/decisions/0049, 0077); kernels/ has the same.

    depth, together, group_bytes, block_bytes: of products: half of the first cache holds a panel's block of k, and
    three quarters a group of them, beside rows of the left operand; three quarters of the second cache hold the rows of
    a block. Up to `together` blocks of k are one pass. conv_depth, conv_bytes, pixels: of convolutions: five eighths of
    the second cache hold weights, beside the pixels that they meet. keys: of a block of attention: the scores of a
    tile's rows stay in the first cache. queries: elements of the queries of a task, about.
    """

    depth: int = L1 // 2 // (PANEL * FLOAT)
    together: int = 4
    group_bytes: int = L1 * 3 // 4
    block_bytes: int = L2 * 3 // 4
    conv_depth: int = 384
    conv_bytes: int = L2 * 5 // 8
    pixels: int = 256
    keys: int = 384
    queries: int = 96 << 10


@dataclass(frozen=True)
class WinogradFacts:
    """From how many channels, and pixels of the output, one of Winograd's convolutions pays.

    Measured: docs/decisions/0011, 0078.

    unknown: whether it is taken for maps whose size the run finds. Tiles of 3x3 outputs have weights 2.8 times as large
    as the plain ones. They pay from 144 pixels on, but maps of so few come with many channels: their weights are stored
    as taps, and transformed in each run.
    """

    channels: int
    pixels: int
    unknown: bool = True


#: by the algorithm (ir.structured.WINOGRAD_FORMS)
WINOGRAD = {
    "winograd2": WinogradFacts(32, 36),
    "winograd2s2": WinogradFacts(64, 36),
    "winograd3taps": WinogradFacts(32, 144, unknown=False),
    "winograd3": WinogradFacts(32, 400, unknown=False),
    "winograd4": WinogradFacts(32, 144),
}


@dataclass(frozen=True)
class ConvFacts:
    """Which algorithm a convolution takes (docs/decisions/0064, 0065, 0066, 0069, 0089).

    nchw_inputs, nchw_outputs: of a convolution in NCHW, at most: half a panel of outputs. stride: of one with more
    outputs in two dimensions, at most. transposed_taps: of one whose operand lies channels last, at least.
    deep_products: products of a row of a group, at least, in three dimensions. overlap: strides that a window of a
    group of several channels is wide, at least. strided_columns: outputs times the pixels of which a stride keeps one,
    of the columns of a panel that are multiplied for it. many: inputs from which a transposed convolution is a product.
    pixels: of a 1x1 in NCHW, which are packed as they come. product_bytes: of products that take more memory than the
    operand. group: channels of a group of a norm whose sums are added up for each of its channels again. unrolled_taps:
    of a depthwise convolution of integers, in the loop over channels. integer_planes: channels of a map of integers in
    planes that stays there, at most: vectors along so few channels are nearly empty. integer_kernels: windows of
    depthwise convolutions of integers with tiles of their own, integer_windows of them side by side.
    """

    nchw_inputs: int = 16
    nchw_outputs: int = PANEL // 2
    stride: int = 2
    transposed_taps: int = 25
    deep_products: int = 10
    overlap: int = 3
    strided_columns: int = 6
    many: int = 16
    pixels: int = 256
    product_bytes: int = 32 << 20
    group: int = 256
    unrolled_taps: int = 64
    integer_planes: int = 4
    integer_kernels: tuple[tuple[int, int], ...] = ((3, 3), (5, 5))
    integer_windows: int = 4


@dataclass(frozen=True)
class MatrixTileFacts:
    """Tiles of sums that instructions multiply whole (docs/decisions/0131; Intel's Software Developer's Manual,
    volume 1, chapter 18).

    level: that has them. rows, columns: of four tiles of 16 rows by 16 int32 or float32, beside two of each operand.
    from_rows: of a result; with fewer most of a tile would be empty, and weights are read once for all rows anyway.
    floats: their type. from_float_rows: their weights come in pairs of k for tiles, which each run shuffles.
    """

    level: str = "x86-64-v4+amx"
    rows: int = 32
    columns: int = 32
    from_rows: int = 5
    floats: str = "bf16"
    from_float_rows: int = 8


MATRIX_TILES = MatrixTileFacts()
BLOCKING, CONVOLUTIONS = BlockingFacts(), ConvFacts()

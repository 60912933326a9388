"""The plans of matrix kernels: the tile first (tiles.py, measured.py), then what follows from it."""

from __future__ import annotations

import itertools
from dataclasses import replace

from ...ir.dtypes import DTYPES
from ...ir.index import ONE, Index, as_index, exact_div, of, product
from ...ir.plans.gpu import AttentionPlan, Dequantise, ProductPlan, SeenKeys, SizeRange
from ...ir.plans.tiles import GemmTile, Tile
from ...ir.structured import Attention, AttentionGradient, Conv, Gemm
from ...machine.gpu import ACCESS, TENSOR_CORE_TILE, Device
from ..cost.estimates import number
from ..matrix.seen_keys import only_hides, seen_keys
from .axes import as_product
from .blocks import blocks, power_of_two
from .pixel_tiles import pixels_form, pixels_tile
from .quantised_tiles import quantised_tile
from .tiles import Shape, attention_tile, conv_tile, gemm_shape, gemm_tile


def chosen_tile(node: Gemm | Conv | Attention, device: Device) -> Tile:
    """The tile of a node on a device: measured, or by the model."""
    return attention_tile(node, device) if isinstance(node, Attention) else product_tile(node, device)


def product_tile(node: Gemm | Conv, device: Device, shape: Shape | None = None) -> GemmTile:
    """The tile of a product or a convolution. shape: of a range of a product's sizes; None: the tile is for all."""
    node = as_product(node)
    if isinstance(node, Gemm) and node.quantised is not None:
        return quantised_tile(node, node.quantised, device, shape)
    if isinstance(node, Conv) and node.algorithm == "pixels":
        return pixels_tile(node, device)
    return gemm_tile(node, device, shape) if isinstance(node, Gemm) else conv_tile(node, device)


def product_ranges(node: Gemm | Conv, device: Device) -> tuple[tuple[SizeRange, Shape], ...]:
    """The ranges of a dynamic number of rows that may have tiles of their own, and a shape that stands for each.

    1 to 2048 rows      ->      256 to 1023 (as 512), 1024 and more (as 2048)
    """
    if not isinstance(node, Gemm):
        return ()
    *batch, rows, columns = (v.extent for v in node.dims)
    if rows.constant is not None or any(size.constant is None for size in (*batch, columns, node.k)):
        return ()
    top = gemm_shape(node, 1.0)
    starts = [(least, chosen) for least, chosen in device.products.ranges if top.m >= least]
    ends = [least for least, _ in starts[1:]]
    return tuple(
        (SizeRange(rows, least, below), replace(top, m=min(chosen, top.m)))
        for (least, chosen), below in itertools.zip_longest(starts, ends)
    )


def product_variants(
    node: Gemm | Conv, plan: ProductPlan, made: Dequantise | None, device: Device
) -> tuple[tuple[SizeRange, GemmTile], ...]:
    """The ranges of rows for which another tile than the plan's is chosen, with these tiles, up to the most rows;
    neighbours of one tile are one range. Tiles are those of dequantised weights (`made`) where there are such."""
    found: list[tuple[SizeRange, GemmTile]] = []
    for own, shape in product_ranges(node, device):
        # the scratch memory that programs of one tile would share holds the weights
        tile = product_tile(node, device, shape) if made is None else _whole(gemm_tile(made.product, device, shape))
        if found and found[-1][1] == tile:
            found[-1] = replace(found[-1][0], below=own.below), tile
        elif found or made is not None or tile != plan.cut:
            found.append((own, tile))
    return tuple(found)


def _whole(tile: GemmTile) -> GemmTile:
    return replace(tile, split=1)


def product_form(node: Gemm | Conv, plan: ProductPlan) -> str:
    """See ProductPlan."""
    tile = plan.cut
    if isinstance(node, Gemm) and node.quantised is not None and node.quantised.group:
        return "planes"
    if isinstance(node, Gemm):
        return "persistent" if tile.descriptors else "vector" if tile.vector else "tile"
    if node.algorithm == "pixels":
        return pixels_form(node, tile)
    if node.depthwise:
        return "depthwise"
    channels = _channels(node)
    flat = channels < TENSOR_CORE_TILE or (channels % tile.k != 0 and channels < tile.k)
    return "flat" if flat else "taps"


def product_walkers(plan: ProductPlan, device: Device) -> int:
    """Programs that walk over tiles at most: as many as the multiprocessors hold."""
    return device.sms * plan.cut.together if plan.form == "persistent" else 0


def product_order(node: Gemm | Conv, plan: ProductPlan, device: Device) -> str:
    """The order of tiles: row by row where there are few rows of them, else in groups of rows."""
    m_tiles, n_tiles = _tiles(node, plan.cut)
    if ONE in (m_tiles, n_tiles):
        return "row" if m_tiles == ONE else "column"
    return "rows" if m_tiles.constant is not None and m_tiles.constant <= device.products.few_rows else "groups"


def product_prefetch(node: Gemm | Conv, plan: ProductPlan, device: Device) -> bool:
    """Whether weights are worth asking for early: all programs start at once, and few ask for the same."""
    m_tiles, n_tiles = _tiles(node, plan.cut)
    facts = device.products
    quantised = isinstance(node, Gemm) and node.quantised is not None
    m, tiles = m_tiles.constant, (m_tiles * n_tiles * (plan.cut.split if quantised else 1)).constant
    few = m is not None and m <= facts.early_rows and tiles is not None and tiles <= facts.early_tiles * device.sms
    if not plan.pdl or not few:
        return False
    if isinstance(node, Gemm):
        return node.b.buffer.kind == "const" and (node.quantised is not None or node.unit_strides[0] == ONE)
    runs = plan.form == "flat" or (plan.form == "taps" and _channels(node) % plan.cut.k == 0)
    return node.w.kind == "const" and runs  # the steps of a run are one run of the weight


def product_stored(node: Gemm | Conv) -> int:
    """Columns to store where all results have the same padded rows, so that whole vectors are stored; else 0."""
    if not isinstance(node, Gemm) or len(node.dims) != 2:
        return 0
    row, column = node.dims
    place, *others = {s.index - of(column) for s in node.stores}
    step = place.coefficient(row)
    width, count = step.constant if step is not None else None, column.extent.constant
    loads = [ld for s in node.stores for ld in s.value.loads]
    temporary = all(s.buffer.kind == "temp" for s in node.stores) and not any(column in ld.vars() for ld in loads)
    if others or width is None or count is None or not temporary or place != of(row) * width:
        return 0
    unit = ACCESS // min(DTYPES[s.buffer.dtype].size for s in node.stores)
    return width if count < width == -(-count // unit) * unit else 0


def product_ahead(node: Gemm | Conv, plan: ProductPlan) -> int:
    """Steps of one row whose loads are under way: weights of bytes are too few to wait for each step of them."""
    quantised = isinstance(node, Gemm) and node.quantised is not None
    return plan.stages if plan.form == "vector" and quantised else 0


def product_promotion(node: Gemm | Conv, plan: ProductPlan) -> int:
    """Steps of k between two additions to the sum, where both operands are float8."""
    how = node.quantised if isinstance(node, Gemm) else None
    both = isinstance(node, Gemm) and how is not None and how.float8 and node.a_dtype == "u8"
    return plan.cut.k if both and how is not None and not how.fast else 0


def _tiles(node: Gemm | Conv, tile: GemmTile) -> tuple[Index, Index]:
    """Rows and columns of tiles; of a convolution, in one group; by pixels, channels of the output and taps."""
    *rows, n = node.dims
    if isinstance(node, Gemm):
        return blocks(rows[-1].extent, tile.m), blocks(n.extent, tile.n)
    if node.algorithm == "pixels":
        return blocks(n.extent, tile.m), blocks(product(v.extent for v in rows), tile.n)
    groups = 1 if node.depthwise else node.window.groups
    return blocks(product(v.extent for v in rows), tile.m), blocks(n.extent // as_index(groups), tile.n)


def _channels(node: Conv) -> int:
    """Channels that one output reads."""
    channels = node.in_shape[-1].constant
    assert channels is not None
    return channels // (1 if node.depthwise else node.window.groups)


# attention -----------------------------------------------------------------------------------------------------------
def attention_form(node: Attention, plan: AttentionPlan) -> str:
    """packed where there are few queries, else heads: see AttentionPlan."""
    queries = node.dims[2].extent.constant
    return "packed" if key_group(node) > 1 and queries is not None and queries * 2 <= plan.cut.m else "heads"


def attention_head(node: Attention, plan: AttentionPlan, device: Device) -> int:
    """Elements of a row of keys that a tile has; tensor cores want some at least. Of a long row with a remainder that
    is a block of its own (512 + 64), those of the first block; descriptors take a row as one."""
    size = node.head_size.constant
    assert size is not None
    whole = block_of(node.head_size)
    in_one = size <= device.attention.padded_head or plan.cut.descriptors
    first = whole // 2
    return whole if in_one or first + _block(size - first) >= whole else first


def attention_rest(node: Attention, plan: AttentionPlan) -> int:
    """Elements of the second block of a row of keys; 0: there is none."""
    size = node.head_size.constant
    assert size is not None
    return 0 if size <= plan.head else _block(size - plan.head)


def attention_latent(node: Attention, plan: AttentionPlan) -> bool:
    """Whether values are the first elements of keys, as those of a latent space are: a block of keys is their block."""
    k, v = node.k, node.v
    alike = (k.buffer, k.offset, k.strides, node.k_pages) == (v.buffer, v.offset, v.strides, node.v_pages)
    return alike and plan.head == plan.value == node.dims[3].extent.constant and not plan.cut.descriptors


def attention_value(node: Attention) -> int:
    """Elements of a row of values that a tile has."""
    return block_of(node.dims[3].extent)


def block_of(size: Index) -> int:
    """The elements of a tile that hold a row of so many."""
    assert size.constant is not None
    return _block(size.constant)


def _block(size: int) -> int:
    return max(TENSOR_CORE_TILE, power_of_two(size))


def attention_order(node: Attention, plan: AttentionPlan) -> str:
    """Rows that see the most keys first: see AttentionPlan."""
    growing = node.causal or (plan.seen is not None and bool(plan.seen.ends) and not plan.seen.begins)
    return "late first" if growing and plan.form == "heads" else ""


def attention_queries(plan: AttentionPlan) -> bool:
    """Whether queries come through a tensor descriptor: those of one head are rows of a matrix."""
    return plan.cut.descriptors and plan.form == "heads"


def attention_single(node: Attention, plan: AttentionPlan) -> bool:
    """Whether the keys are one step of one program."""
    keys = node.keys.constant
    return keys is not None and keys <= plan.cut.n and plan.cut.split == 1


def attention_seen(node: Attention, plan: AttentionPlan) -> SeenKeys | None:
    """Where the keys lie that a tile reads; one of a single step reads all. Few rows wait for memory, not for
    comparisons."""
    found = None if plan.single else seen_keys(node)
    few = plan.cut.shared or plan.form == "packed"
    return replace(found, shown=None) if found is not None and few else found


def attention_folded(node: Attention | AttentionGradient) -> bool:
    """Whether the scale may be a factor of the exponents: the largest score is that of the largest product, and has no
    place of its own. A scale that is not above 0 would make NaN or infinity of the score of a hidden key."""
    if node.top is not None or node.scale <= 0:
        return False
    return node.score is None or only_hides(node)


def attention_room(node: Attention, plan: AttentionPlan, device: Device) -> bool:
    """Whether the programs leave room for those of the next kernel."""
    b, h, m, _ = node.dims
    packed = plan.form == "packed"
    rows, heads = (m.extent * key_group(node), node.kv_heads) if packed else (m.extent, h.extent)
    return device.leaves_room(number(blocks(rows, plan.cut.m) * (b.extent * heads)) * plan.cut.split)


def key_group(node: Attention | AttentionGradient) -> int:
    """Query heads that share a key head, 1 where that is not known."""
    group = exact_div(node.dims[1].extent, node.kv_heads)
    return group.constant if group is not None and group.constant is not None else 1

"""Which tiles a matrix node can be cut into."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.buffers import Operand
from ...ir.dtypes import DTYPES
from ...ir.index import ONE, Index
from ...ir.nodes import Node
from ...ir.plans.tiles import AttentionTile, GemmTile, Tile
from ...ir.program import AnyNode
from ...ir.structured import Attention, Conv, Gemm, Quantised
from ...machine.gpu import ACCESS, SPECIALIZED_ROWS, SPECIALIZED_WARPS
from .axes import as_product
from .width import is_wide


def tile_misfit(node: AnyNode, tile: Tile) -> str:
    """Why a tile cannot cut a matrix node; empty when it can."""
    found = as_product(node) if isinstance(node, Conv) else node
    match found, tile:
        case Attention(), AttentionTile():
            return attention_misfit(found, tile)
        case Gemm(), GemmTile():
            return misfit(found, tile)
        case Conv(), GemmTile():
            plain = len(tile.parts) == 1 and not tile.descriptors and not tile.vector
            return "" if plain else "convolutions have tiles of one accumulator, without descriptors"
    return "it is of another kind of kernel"


def misfit(node: Gemm, tile: GemmTile) -> str:
    """Why a tile cannot cut a node; empty when it can."""
    if node.also and (tile.split > 1 or tile.vector or tile.halves or len(tile.parts) > 1):
        return "several products have one accumulator each, of an unsplit tile"
    if tile.split > 1 and node.k.constant is None:
        return "a split needs a fixed k"
    if tile.vector and node.dims[-2].extent != ONE:
        return "the form for vectors has one row"
    if node.quantised is not None and (reason := _quantised_misfit(node, node.quantised, tile)):
        return reason
    if not tile.descriptors:
        return "only programs that walk over tiles have specialized warps" if tile.specialize else ""
    shares = tile.m >= SPECIALIZED_ROWS and tile.warps == SPECIALIZED_WARPS
    if tile.specialize and (tile.split > 1 or tile.flatten or tile.halves or not shares):
        return f"specialized warps share {SPECIALIZED_ROWS} rows of a tile that one program computes"
    (a_m, a_k), (b_k, b_n) = node.row_strides, node.unit_strides
    deep = a_k == b_k == ONE
    if tile.specialize and (len(tile.parts) > 1 or node.also or node.prologue or not deep):
        return "specialized warps have one accumulator, of operands as they lie in memory"
    if len(node.dims) > 2 and (node.prologue or not deep or not _slices(node, tile)):
        return "descriptors are for one product, or for parts of k as they lie in memory"
    if dynamic_and_wide(node, (*(v.extent for v in node.dims), node.k)):
        return "descriptors of memory that may pass 2^31 elements need fixed sizes"
    halves = DTYPES[node.b.buffer.dtype].size == 2
    if node.a_dtype != node.b.buffer.dtype or not (deep or halves):
        return "descriptors need a weight of the dtype of the rows, with dense k but for 16 bits"
    if not all(
        _aligned(o, row) for o, row in ((node.a, a_m if a_k == ONE else a_k), (node.b, b_n if b_k == ONE else b_k))
    ):
        return "descriptors need rows that start at multiples of 16 bytes"
    return "" if not tile.halves or (len(tile.parts) == 1 and tile.split == 1) else "halves are of one accumulator"


def _quantised_misfit(node: Gemm, how: Quantised, tile: GemmTile) -> str:
    """Why a tile cannot cut a product of quantised weights; empty when it can."""
    if tile.vector and (how.group or node.a_dtype not in ("f32", "f16", "bf16")):
        return "the form for vectors multiplies floats with weights whose scales are not in groups"
    if not how.group:
        return ""
    if tile.descriptors or len(tile.parts) > 1:
        return "products of weights by groups have one accumulator, of operands as they lie in memory"
    return "" if (how.run or how.group) % tile.k == 0 else "steps are parts of a run, or of a group"


def _slices(node: Gemm, tile: GemmTile) -> bool:
    """Whether the batch runs over parts of k of the same rows, which the steps divide."""
    k = node.k
    return len(node.dims) == 3 and node.a.strides[0] == node.b.strides[0] == k and divides(tile.k, k)


def _aligned(operand: Operand, row: Index) -> bool:
    elements = ACCESS // DTYPES[operand.buffer.dtype].size
    return divides(elements, row) and divides(elements, operand.offset)


def attention_misfit(node: Attention, tile: AttentionTile) -> str:
    """Why a tile cannot cut a node; empty when it can."""
    if not tile.descriptors:
        return ""
    if node.tables:
        return "descriptors need keys and values that lie one behind the other"
    if dynamic_and_wide(node, (*(v.extent for v in node.dims), node.keys)):
        return "descriptors of memory that may pass 2^31 elements need fixed sizes"
    elements = ACCESS // DTYPES[node.k.buffer.dtype].size
    indices = [i for o in (node.q, node.k, node.v) for i in (o.offset, *o.strides)]
    if not all(divides(elements, i) for i in indices):
        return "descriptors need rows that start at multiples of 16 bytes"
    return ""


def divides(number: int, index: Index) -> bool:
    """Whether number divides the index at all sizes."""
    return all(c % number == 0 for c in index.terms.values())


def dynamic_and_wide(node: Node, sizes: Sequence[Index]) -> bool:
    """Whether sizes are 64-bit numbers at run time, which coordinates of descriptors cannot be."""
    return any(size.constant is None for size in sizes) and is_wide(node)

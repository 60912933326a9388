"""The plan of the gradient of attention: one kernel for all three gradients, or one for each side of the scores.

    whole      for each key head, whose keys are one block:    of_q, of_k, of_v
    queries    for each block of queries:                      of_q          += s k           over blocks of keys
    keys       for each block of keys:                         of_k, of_v    += s^T q, p^T g  over blocks of queries

No sum is shared by programs, so that the bits are the same in every run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ...ir.dtypes import DTYPES
from ...ir.index import Index
from ...ir.plans.gpu import GradientPart, GradientPlan
from ...ir.plans.tiles import AttentionTile
from ...ir.structured import AttentionGradient
from ...machine.gpu import GROUP_ROWS, GROUP_WARPS, TENSOR_CORE_TILE, Device
from ...machine.gpu_programs import HeadTiles
from ..cost.estimates import number
from .blocks import blocks
from .product_plans import block_of, key_group
from .tiles import typical


def gradient_head(node: AttentionGradient) -> int:
    """Elements of a row of queries or keys that a tile has."""
    return block_of(node.head_size)


def gradient_value(node: AttentionGradient) -> int:
    """Elements of a row of values that a tile has."""
    return block_of(node.dims[3].extent)


def gradient_parts(node: AttentionGradient, plan: GradientPlan, device: Device) -> tuple[GradientPart, ...]:
    """The plans of the launches."""
    facts, floats = device.gradients, node.q.buffer.dtype == "f32"
    b, h, m, _ = node.dims
    whole = _whole_tile(node, plan, device)
    if whole is not None:
        return (_part(node, plan, "whole", whole, b.extent * node.kv_heads, device),)
    queries = _tile(facts.float_queries if floats else facts.half_queries, "m", node, plan, device)
    of_keys = facts.plain_keys if _is_plain(node) else facts.half_keys
    keys = _tile(facts.float_keys if floats else of_keys, "n", node, plan, device)
    return (
        _part(node, plan, "queries", queries, blocks(m.extent, queries.m) * (b.extent * h.extent), device),
        _part(node, plan, "keys", keys, blocks(node.keys, keys.n) * (b.extent * node.kv_heads), device),
    )


def _is_plain(node: AttentionGradient) -> bool:
    """Whether sizes are fixed, and nothing but causality changes scores and weights."""
    fixed = all(size.constant is not None for size in (*(v.extent for v in node.dims), node.keys))
    return fixed and node.score is None and node.dropout is None


def gradient_form(plan: GradientPlan) -> str:
    """See GradientPlan."""
    return "whole" if plan.parts[0].form == "whole" else "apart"


def _whole_tile(node: AttentionGradient, plan: GradientPlan, device: Device) -> AttentionTile | None:
    """The tile of one kernel for all gradients; None where the keys are more than a block, or its steps too many."""
    facts, keys, queries = device.gradients, node.keys.constant, node.dims[2].extent.constant
    rows = facts.float_whole if node.q.buffer.dtype == "f32" else facts.half_whole
    if keys is None or queries is None or max(plan.head, plan.value) > max(head for head, _ in rows):
        return None
    tile = _tile(rows, "n", node, plan, device)
    steps = -(-queries // tile.m) * key_group(node)
    return tile if keys <= tile.n and steps <= facts.whole_steps else None


def _tile(
    rows: HeadTiles, side: Literal["m", "n"], node: AttentionGradient, plan: GradientPlan, device: Device
) -> AttentionTile:
    """The row for the head, no larger than queries and keys, and with the operands of all stages in shared memory.
    side: of the tile that has the rows of products."""
    head = max(plan.head, plan.value)
    tile = next(tile for most, tile in rows if head <= most)
    m, n = _at_most(tile.m, node.dims[2].extent), _at_most(tile.n, node.keys)
    tile = replace(tile, m=m, n=n)
    tile = replace(tile, warps=min(tile.warps, _most_warps(tile, side, plan)))
    while _operands(tile, node, plan) > device.operands_room:
        if tile.stages > 1:
            tile = replace(tile, stages=tile.stages - 1)
        elif max(tile.m, tile.n) == TENSOR_CORE_TILE:
            break
        else:
            tile = replace(tile, m=tile.m // 2) if tile.m >= tile.n else replace(tile, n=tile.n // 2)
    return tile


def _most_warps(tile: AttentionTile, side: Literal["m", "n"], plan: GradientPlan) -> int:
    """Warps that may share the rows of a tile. Warpgroups that share 64 rows take a part of the columns each: of 16
    columns in float32 the code of Triton 3.6 reads past the end of shared memory (seen on an H200)."""
    rows, columns = (tile.m, tile.n) if side == "m" else (tile.n, tile.m)
    narrow = min(columns, plan.head, plan.value) <= TENSOR_CORE_TILE
    return tile.warps if not narrow or rows < GROUP_ROWS else GROUP_WARPS * (rows // GROUP_ROWS)


def _at_most(block: int, size: Index) -> int:
    """The block, or a smaller one that holds all of a size."""
    top = typical(size, 1)
    while block > TENSOR_CORE_TILE and block >= 2 * top:
        block //= 2
    return block


def _operands(tile: AttentionTile, node: AttentionGradient, plan: GradientPlan) -> int:
    """Bytes of operands of tensor cores: rows of one side, rows of all stages of the other, weights and scores."""
    size, row = DTYPES[node.q.buffer.dtype].size, plan.head + plan.value
    return size * (tile.n * row + tile.stages * tile.m * row + 2 * tile.m * tile.n)


def _part(
    node: AttentionGradient, plan: GradientPlan, form: str, tile: AttentionTile, programs: Index, device: Device
) -> GradientPart:
    growing = node.causal or (plan.seen is not None and bool(plan.seen.ends) and not plan.seen.begins)
    return GradientPart(
        form=form, warps=tile.warps, stages=tile.stages, pdl=plan.pdl, room=device.leaves_room(number(programs)),
        wide=plan.wide, flush=plan.flush, fuses=plan.fuses, tile=tile, seen=plan.seen,
        order="late first" if growing and form == "queries" else "",
    )  # fmt: skip

"""Attention as one Triton kernel: a tile of query rows for each program, or for several that share its keys."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.index import ONE, as_index
from ...ir.plans.gpu import AttentionPlan
from ...ir.plans.tiles import AttentionTile
from ...ir.structured import Attention
from ...schedule.gpu.blocks import blocks
from .attention_rows import QueryRows
from .attention_runs import RunView, dropout_lines, ranges_of, runs_of, score_lines
from .kernel import TL_DTYPE, Launch
from .matrix import Shared, divides, launch, mask_text, parameters, precision_text, scalar
from .scope import TritonScope

LOG2E = math.log2(math.e)
#: a float32 that is finite times LOG2E; scores below it are as good as it
LOWEST = -2.0e38


@dataclass(frozen=True)
class AttentionView:
    """Of attention.py.j2: numbers, and finished texts."""

    params: str
    block_m: int
    block_n: int
    block_d: int
    block_e: int
    block_r: int  # of the second block of a row of keys; 0: there is none
    latent: bool  # values are the first elements of keys
    q_rest_mask: str
    k_rest_mask: tuple[str, str]
    locate: tuple[str, ...]
    row_lines: tuple[str, ...]
    q_base: str
    q_row: str
    q_rows: str
    q_mask: str
    q_tiles: bool  # queries come through a descriptor too
    k_head: str
    k_row: str
    k_rows: str
    page_lines: tuple[str, ...]  # which blocks of the cache the keys of a step lie in
    k_mask: tuple[str, str]  # of a block, and of one with keys past the end
    v_head: str
    v_row: str
    v_rows: str
    v_mask: tuple[str, str]
    out_base: str
    out_rows: str
    out_mask: str
    out_dtype: str
    dtype: str
    queries: str
    keys: str
    head_size: str
    value_size: str
    tile: AttentionTile
    range_lines: tuple[str, ...]
    runs: tuple[RunView, ...]
    end: str  # of the keys that a program reads
    single: bool
    causal: bool
    clamp_n: bool
    guard: bool
    sink: str  # the place of a row's sink, "" of none
    sums: tuple[str, str]  # place of the logarithm of a row's sum, and the mask of the store; "" where it is not stored
    top: str  # the place of a row's largest score, "" where it is not stored
    empty: str  # the logarithm of a row without a key
    log2: str  # of numbers whose powers of two are weights, and back
    log2e: str
    scale: str
    log2_scale: str  # what makes a score an exponent of two
    scaled: bool  # the score is the scaled product
    lowest: str  # score whose exponent of two is finite
    largest: str  # of a block of scores, in the unit of `top`
    exponent: str  # of a score, that of the largest at hand being 0
    decay: str  # the exponent of what was summed before
    score: tuple[str, ...]  # of the only block
    dropout: tuple[str, ...]  # lines that compute `dropout`, what weights are multiplied with
    precision: str
    pdl: bool
    wide: bool
    shared: bool
    split: int
    part: int  # floats that one of the programs that share a tile leaves: maximum, sum and values of each row


def attention_launch(name: str, node: Attention, plan: AttentionPlan) -> Launch:
    """The launch of an attention, cut by the tile of its plan."""
    tile = plan.cut
    scope = TritonScope.of(node, plan)
    rows = QueryRows(node, plan, scope)
    keys, tiles = node.keys, blocks(rows.count, tile.m) * rows.products
    block_d, block_e = plan.head, plan.value
    part = tile.m * (block_e + 2)
    shared = Shared(tiles * (tile.split * part * 4), tiles * 4) if tile.shared else None
    head = {"d": node.head_size, "e": node.dims[3].extent}
    masks = {
        n: "" if head[n] == size else f"({n} < {scalar(scope, head[n])})"
        for n, size in (("d", block_d + plan.rest), ("e", block_e))
    }
    rest = masks["d"].replace("d", "r")  # the first of two blocks is whole
    masks["d"] = "" if plan.rest else masks["d"]
    dtype = node.v.buffer.dtype
    ranges = ranges_of(node, plan, scope, rows)
    q, out = rows.texts(node.q), rows.texts(node.out)
    score = score_lines(node.score, scope, rows)
    runs, range_lines = runs_of(node, plan, ranges, score, lambda shown: score_lines(shown, scope, rows))
    # the one block may reach past the keys, whatever the rows see of them
    end = scalar(scope, keys) if plan.single else runs[-1].end
    factor, apart = repr(node.scale * LOG2E if plan.folded else LOG2E), node.top is not None
    row_mask = [] if divides(tile.m, rows.count) else [f"(rows < {scalar(scope, rows.count)})[:, None]"]
    out_mask = " & ".join([*row_mask, *([f"{masks['e']}[None, :]"] if masks["e"] else [])])
    view = AttentionView(
        block_m=tile.m,
        block_n=tile.n,
        block_d=block_d,
        block_e=block_e,
        block_r=plan.rest,
        latent=plan.latent,
        q_rest_mask=mask_text([*row_mask, f"{rest}[None, :]" if rest else ""]),
        k_rest_mask=both_masks(rest, "[:, None]", "[None, :]"),
        locate=rows.locate(),
        row_lines=rows.lines(),
        q_base=q[0],
        q_row=scalar(scope, node.q.strides[2]),
        q_rows=q[1],
        q_tiles=plan.queries,
        q_mask=mask_text([*row_mask, f"{masks['d']}[None, :]" if masks["d"] else ""]),
        tile=tile,
        queries=scalar(scope, node.dims[2].extent),
        head_size=scalar(scope, head["d"]),
        value_size=scalar(scope, head["e"]),
        k_head=rows.head(node.k),
        k_row=scalar(scope, node.k.strides[2]),
        k_rows=rows.keys("k", node.k, node.k_pages, "[None, :]"),
        page_lines=rows.pages(),
        k_mask=both_masks(masks["d"], "[:, None]", "[None, :]"),
        v_head=rows.head(node.v),
        v_row=scalar(scope, node.v.strides[2]),
        v_rows=rows.keys("v", node.v, node.v_pages, "[:, None]"),
        v_mask=both_masks(masks["e"], "[None, :]", "[:, None]"),
        out_base=out[0],
        out_rows=out[1],
        out_mask=f", mask={out_mask}" if out_mask else "",
        out_dtype=TL_DTYPE[node.out.buffer.dtype],
        dtype=TL_DTYPE[dtype],
        keys=scalar(scope, keys),
        range_lines=range_lines,
        runs=runs,
        end=end,
        single=plan.single,
        causal=node.causal,
        clamp_n=not divides(tile.n, keys),
        guard=node.score is not None or tile.shared,
        sink=rows.each(node.sink),
        sums=(rows.each(node.logsumexp), f", mask=rows < {scalar(scope, rows.count)}" if row_mask else ""),
        top=rows.each(node.top),
        empty='float("-inf")' if node.empty else "0.0",
        log2=repr(math.log(2)),
        log2e=repr(LOG2E),
        scale=repr(node.scale),
        log2_scale=factor,
        largest="tl.max(score, 1)" if apart else f"tl.max(score, 1) * {factor}",
        exponent=f"(score - shift[:, None]) * {factor}" if apart else f"score * {factor} - shift[:, None]",
        decay=f"(top - shift) * {factor}" if apart else "top - shift",
        scaled=not plan.folded,
        lowest=repr(LOWEST),
        score=score,
        dropout=dropout_lines(node, scope, rows),
        precision=precision_text(plan.precision, {dtype}),
        pdl=plan.pdl,
        wide=scope.wide,
        shared=tile.shared,
        split=tile.split,
        part=part,
        params=", ".join(p.name for p in parameters(scope, shared)),
    )
    suffix = f"{tile.m}x{tile.n}" + tile.shares
    grid = (tiles, as_index(tile.split), ONE)
    return launch(f"{name}_{suffix}", "attention.py.j2", view, scope, node, grid, plan, shared)


def both_masks(mask: str, axes: str, keys: str) -> tuple[str, str]:
    """The mask of a load of a block of keys, and with `valid` keys only."""
    own = f"{mask}{axes}" if mask else ""
    return mask_text([own]), mask_text([own, f"valid{keys}"])

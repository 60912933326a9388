"""The planning passes of GPU kernels: a row makes a field of the plan of one kind of kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...ir.index import ZERO, product
from ...ir.nodes import Map, Nest, Reduce, Scan, Scatter
from ...ir.plans.gpu import (
    AttentionPlan,
    Dequantise,
    GpuPlan,
    GradientPlan,
    MapPlan,
    ProductPlan,
    RoutinePlan,
    RowsPlan,
    ScanPlan,
    ScatterPlan,
    SizeRange,
)
from ...ir.plans.kernel import Kernel
from ...ir.program import AnyNode, Assert
from ...ir.routines import Custom, Routine
from ...ir.structured import Attention, AttentionGradient, Conv, Gemm
from ..loops.collapse import collapse, collapse_fill, filling
from ..matrix.seen_keys import seen_keys
from ..passes import Context
from ..planning_pass import PlanningPass, run_planning
from .arithmetic import may_fuse
from .axes import as_product
from .dequantised import dequantised
from .gradient_plans import gradient_form, gradient_head, gradient_parts, gradient_value
from .lane_plans import (
    scan_block,
    scan_combination,
    scan_form,
    scan_room,
    scan_rows,
    scan_warps,
    scatter_ahead,
    scatter_block,
    scatter_form,
    scatter_room,
    scatter_rows,
    scatter_warps,
)
from .map_plans import map_axes, map_block, map_form, map_fours, map_room, map_together, map_warps
from .pixel_tiles import pixels_summed
from .product_plans import (
    attention_folded,
    attention_form,
    attention_head,
    attention_latent,
    attention_order,
    attention_queries,
    attention_rest,
    attention_room,
    attention_seen,
    attention_single,
    attention_value,
    product_ahead,
    product_form,
    product_order,
    product_prefetch,
    product_promotion,
    product_stored,
    product_tile,
    product_variants,
    product_walkers,
)
from .routine_plans import refusal, routine_parts
from .row_plans import (
    rows_at_once,
    rows_blocks,
    rows_early,
    rows_flush,
    rows_form,
    rows_in_flight,
    rows_nest,
    rows_pieces,
    rows_places,
    rows_registers,
    rows_room,
    rows_unrolled,
    rows_warps,
    rows_widen,
)
from .tiles import attention_tile
from .width import is_wide


def _row(
    name: str, plan: type[GpuPlan], field: str, value: Callable[[Any, Context], Any], needs: str = ""
) -> PlanningPass:
    """value: of the field, from a kernel of this kind of plan (its node and its plan are of the kinds that belong
    together, see empty_gpu_plan)."""

    def run(kernel: Kernel, context: Context) -> Kernel:
        assert isinstance(kernel.plan, plan)
        return replace(kernel, plan=replace(kernel.plan, **{field: value(kernel, context)}))

    return PlanningPass(name, plan, field, run, frozenset(needs.split()))


def _rewrite(name: str, plan: type[GpuPlan], node: Callable[[Any], AnyNode]) -> PlanningPass:
    """A row that gives kernels of a kind of plan another node."""
    return PlanningPass(name, plan, "node", lambda kernel, context: replace(kernel, node=node(kernel.node)))


def _fill(kernel: Kernel, context: Context) -> GpuPlan | None:
    """The plan of the kernel that fills the result of a scatter; in place there is nothing to fill."""
    node = kernel.node
    assert isinstance(node, Scatter)
    if not node.stores:
        return None
    plan = run_planning(GPU_PLANNING, Kernel(filling(node), MapPlan()), context).plan
    assert isinstance(plan, MapPlan)
    return plan


def _variants(kernel: Kernel, context: Context) -> tuple[ProductPlan, ...]:
    """The whole plans of ranges of sizes that have tiles of their own."""
    assert isinstance(kernel.node, Gemm | Conv)
    assert isinstance(kernel.plan, ProductPlan)
    found = []
    made = _planned(dequantised(kernel.node), context) if isinstance(kernel.node, Gemm) else None
    node = kernel.node if made is None else made.product
    for own, tile in product_variants(kernel.node, kernel.plan, made, context.gpu):
        chosen = {"tile": tile, "range": own, "variants": ()}
        plan = run_planning(GPU_PLANNING, Kernel(node, ProductPlan()), context, chosen).plan
        assert isinstance(plan, ProductPlan)
        found.append(replace(plan, dequantise=made))
    return tuple(found)


def _planned(made: Dequantise | None, context: Context) -> Dequantise | None:
    """The weights that become floats, with the plan of the map that makes them."""
    if made is None:
        return None
    kernel = run_planning(GPU_PLANNING, Kernel(made.node, MapPlan()), context)
    assert isinstance(kernel.node, Map)
    assert isinstance(kernel.plan, MapPlan)
    return replace(made, node=kernel.node, plan=kernel.plan)


def _below_variants(plan: ProductPlan) -> SizeRange | None:
    """The sizes of the plan itself: those below its variants'."""
    first = plan.variants[0].range if plan.variants else None
    return None if first is None else SizeRange(first.size, below=first.least)


GPU_PLANNING: tuple[PlanningPass, ...] = (
    _rewrite("collapse", MapPlan, collapse),
    _rewrite("collapse-fill", ScatterPlan, collapse_fill),
    _rewrite("convolution-as-product", ProductPlan, as_product),
    _row("early-launch", GpuPlan, "pdl", lambda k, c: c.gpu.pdl),
    _row("wide-indices", GpuPlan, "wide", lambda k, c: is_wide(k.node)),
    _row("fma", GpuPlan, "fuses", lambda k, c: may_fuse(k.node)),
    _row("map-form", MapPlan, "form", lambda k, c: map_form(k.node, c.gpu)),
    _row("map-axes", MapPlan, "axes", lambda k, c: map_axes(k.node, k.plan, c.gpu), "form"),
    _row("map-together", MapPlan, "together", lambda k, c: map_together(k.node, k.plan), "form"),
    _row("map-block", MapPlan, "block", lambda k, c: map_block(k.node, k.plan, c.gpu), "axes together"),
    _row("map-fours", MapPlan, "fours", lambda k, c: map_fours(k.node, k.plan), "block"),
    _row("map-warps", MapPlan, "warps", lambda k, c: map_warps(k.node, k.plan, c.gpu), "block"),
    _row("map-room", MapPlan, "room", lambda k, c: map_room(k.node, k.plan, c.gpu), "block"),
    _row("rows-nest", RowsPlan, "nest", lambda k, c: rows_nest(k.node, c.gpu)),
    _row("rows", RowsPlan, "rows", lambda k, c: rows_at_once(k.node, k.plan, c.gpu), "nest"),
    _row("rows-form", RowsPlan, "form", lambda k, c: rows_form(k.node, k.plan, c.gpu), "rows"),
    _row("rows-blocks", RowsPlan, "blocks", lambda k, c: rows_blocks(k.plan, c.gpu), "rows form"),
    _row("rows-places", RowsPlan, "places", lambda k, c: rows_places(k.plan, c.gpu), "blocks"),
    _row("rows-pipeline", RowsPlan, "ahead", lambda k, c: rows_in_flight(k.plan, c.gpu), "blocks"),
    _row("rows-unroll", RowsPlan, "unrolled", lambda k, c: rows_unrolled(k.plan, c.gpu), "blocks"),
    _row("rows-pieces", RowsPlan, "pieces", lambda k, c: rows_pieces(k.plan, c.gpu), "form"),
    _row("rows-warps", RowsPlan, "warps", lambda k, c: rows_warps(k.plan, c.gpu), "blocks pieces"),
    _row("rows-early", RowsPlan, "early", lambda k, c: rows_early(k.plan), "form pdl"),
    _row("rows-flush", RowsPlan, "flush", lambda k, c: rows_flush(k.plan), "nest"),
    _row("rows-widen", RowsPlan, "widens", lambda k, c: rows_widen(k.plan), "pieces"),
    _row("rows-registers", RowsPlan, "registers", lambda k, c: rows_registers(k.plan, c.gpu), "pieces"),
    _row("rows-room", RowsPlan, "room", lambda k, c: rows_room(k.plan, c.gpu), "rows"),
    _row("product-tile", ProductPlan, "tile", lambda k, c: product_tile(k.node, c.gpu)),
    _row("product-form", ProductPlan, "form", lambda k, c: product_form(k.node, k.plan), "tile"),
    _row("product-walk", ProductPlan, "walkers", lambda k, c: product_walkers(k.plan, c.gpu), "tile form"),
    _row("product-order", ProductPlan, "order", lambda k, c: product_order(k.node, k.plan, c.gpu), "tile"),
    _row(
        "product-prefetch", ProductPlan, "prefetch", lambda k, c: product_prefetch(k.node, k.plan, c.gpu), "tile form"
    ),
    _row("product-warps", ProductPlan, "warps", lambda k, c: k.plan.cut.warps, "tile"),
    _row("product-stages", ProductPlan, "stages", lambda k, c: k.plan.cut.stages, "tile"),
    _row("product-ahead", ProductPlan, "ahead", lambda k, c: product_ahead(k.node, k.plan), "form stages"),
    _row("product-promotion", ProductPlan, "promoted", lambda k, c: product_promotion(k.node, k.plan), "tile"),
    _row("product-precision", ProductPlan, "precision", lambda k, c: c.gpu.float32),
    _row("product-stored", ProductPlan, "stored", lambda k, c: product_stored(k.node)),
    _row("product-sums", ProductPlan, "summed", lambda k, c: pixels_summed(k.node, k.plan, c.gpu), "tile form"),
    _row("product-variants", ProductPlan, "variants", _variants, "tile"),
    _row("product-range", ProductPlan, "range", lambda k, c: _below_variants(k.plan), "variants"),
    _row("attention-tile", AttentionPlan, "tile", lambda k, c: attention_tile(k.node, c.gpu)),
    _row("attention-form", AttentionPlan, "form", lambda k, c: attention_form(k.node, k.plan), "tile"),
    _row("attention-head", AttentionPlan, "head", lambda k, c: attention_head(k.node, k.plan, c.gpu), "tile"),
    _row("attention-rest", AttentionPlan, "rest", lambda k, c: attention_rest(k.node, k.plan), "head"),
    _row("attention-value", AttentionPlan, "value", lambda k, c: attention_value(k.node)),
    _row("attention-latent", AttentionPlan, "latent", lambda k, c: attention_latent(k.node, k.plan), "head value tile"),
    _row("attention-queries", AttentionPlan, "queries", lambda k, c: attention_queries(k.plan), "tile form"),
    # a weight below 2^-126 is none
    _row("attention-flush", AttentionPlan, "flush", lambda k, c: True),
    _row("attention-single", AttentionPlan, "single", lambda k, c: attention_single(k.node, k.plan), "tile"),
    _row("attention-seen", AttentionPlan, "seen", lambda k, c: attention_seen(k.node, k.plan), "single form"),
    _row("attention-order", AttentionPlan, "order", lambda k, c: attention_order(k.node, k.plan), "form seen"),
    _row("attention-folded", AttentionPlan, "folded", lambda k, c: attention_folded(k.node)),
    _row("attention-warps", AttentionPlan, "warps", lambda k, c: k.plan.cut.warps, "tile"),
    _row("attention-stages", AttentionPlan, "stages", lambda k, c: k.plan.cut.stages, "tile"),
    _row("attention-precision", AttentionPlan, "precision", lambda k, c: c.gpu.float32),
    _row("attention-room", AttentionPlan, "room", lambda k, c: attention_room(k.node, k.plan, c.gpu), "tile form"),
    _row("gradient-head", GradientPlan, "head", lambda k, c: gradient_head(k.node)),
    _row("gradient-value", GradientPlan, "value", lambda k, c: gradient_value(k.node)),
    _row("gradient-flush", GradientPlan, "flush", lambda k, c: True),
    _row("gradient-seen", GradientPlan, "seen", lambda k, c: seen_keys(k.node)),
    _row("gradient-folded", GradientPlan, "folded", lambda k, c: attention_folded(k.node)),
    _row("gradient-precision", GradientPlan, "precision", lambda k, c: c.gpu.float32),
    _row(
        "gradient-parts", GradientPlan, "parts", lambda k, c: gradient_parts(k.node, k.plan, c.gpu), "head value seen"
    ),
    _row("gradient-form", GradientPlan, "form", lambda k, c: gradient_form(k.plan), "parts"),
    _row("routine-refused", RoutinePlan, "refused", lambda k, c: refusal(k.node)),
    _row("routine-parts", RoutinePlan, "parts", lambda k, c: routine_parts(k.node, k.plan, c.gpu), "refused"),
    _row("scan-combination", ScanPlan, "combination", lambda k, c: scan_combination(k.node, c.gpu)),
    _row("scan-form", ScanPlan, "form", lambda k, c: scan_form(k.plan), "combination"),
    _row("scan-block", ScanPlan, "block", lambda k, c: scan_block(k.node, k.plan, c.gpu), "form"),
    _row("scan-rows", ScanPlan, "rows", lambda k, c: scan_rows(k.node, k.plan, c.gpu), "block"),
    _row("scan-warps", ScanPlan, "warps", lambda k, c: scan_warps(k.plan), "rows"),
    _row("scan-room", ScanPlan, "room", lambda k, c: scan_room(k.node, k.plan, c.gpu), "rows"),
    _row("scatter-fill", ScatterPlan, "fill", _fill),
    _row("scatter-form", ScatterPlan, "form", lambda k, c: scatter_form(k.node, c.gpu)),
    _row("scatter-block", ScatterPlan, "block", lambda k, c: scatter_block(k.node, k.plan, c.gpu), "form"),
    _row("scatter-ahead", ScatterPlan, "ahead", lambda k, c: scatter_ahead(k.node, k.plan, c.gpu), "form"),
    _row("scatter-rows", ScatterPlan, "rows", lambda k, c: scatter_rows(k.node, k.plan, c.gpu), "form"),
    _row("scatter-many", ScatterPlan, "many", lambda k, c: c.gpu.lanes.many if k.plan.rows else 0, "rows"),
    _row("scatter-warps", ScatterPlan, "warps", lambda k, c: scatter_warps(k.plan), "block"),
    _row("scatter-room", ScatterPlan, "room", lambda k, c: scatter_room(k.node, k.plan, c.gpu), "block"),
)


def empty_gpu_plan(node: AnyNode) -> GpuPlan | None:
    """A plan of a node's kind without decisions; None where there is nothing to decide, and for a kernel without
    elements, which is never run."""
    routine = isinstance(node, Routine)
    if all(b.size == ZERO for b in node.writes()) if routine else product(v.extent for v in node.dims) == ZERO:
        return None
    match node:
        case Custom():
            return None
        case Routine() | Assert():
            return RoutinePlan()
        case Map():
            return MapPlan()
        case Reduce() | Nest():
            return RowsPlan()
        case Scan():
            return ScanPlan()
        case Scatter():
            return ScatterPlan()
        case Gemm() | Conv():
            return ProductPlan()
        case Attention():
            return AttentionPlan()
        case AttentionGradient():
            return GradientPlan()
    return None

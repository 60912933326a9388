"""The planning passes, behind the rewrites of passes.py: each decides one field of the plan of a kernel.

A list for CPUs and one for GPUs, a row a pass; the driver runs those of a kernel's kind of plan in order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from ..ir.nodes import Map, Nest, Reduce, Scan, Scatter
from ..ir.plans.kernel import Kernel, Plan
from ..ir.plans.loop import LoopPlan, UpdatesPlan
from ..ir.plans.matrix import MatrixPlan
from ..ir.plans.tiles import Tile
from ..ir.program import AnyNode
from ..ir.structured import Attention, AttentionGradient, Conv, ConvChain, Gemm
from ..machine.gpu import Device
from .gpu.fit import tile_misfit
from .gpu.planning import GPU_PLANNING, empty_gpu_plan
from .loops import loop_plan, updates_plan
from .loops.collapse import collapse_fill
from .matrix import matrix_plan
from .passes import Context
from .planning_pass import PlanningPass, run_planning
from .remarks import Remarks

#: passes for CPUs that can be switched off by name: the field keeps its default, the node its loops
OPTIONAL = frozenset(
    (
        *("transpose-rows", "sliding-window", "share-rows", "interleave", "join-short-rows", "store-policy"),
        *("write-combining", "row-prefetch", "alignment-peel", "prefetch", "skip-hidden-keys"),
    )
)


def _rewrite(name: str, field: str, run: Callable[[Kernel], Kernel], needs: str = "") -> PlanningPass:
    return PlanningPass(name, LoopPlan, field, lambda k, c: run(k), frozenset(needs.split()))


def _field(kind: type[Plan], name: str, field: str, value: Callable[[Kernel], Any], needs: str = "") -> PlanningPass:
    """A row that makes a field of a kind of plan."""

    def run(kernel: Kernel, context: Context) -> Kernel:
        assert isinstance(kernel.plan, kind)
        return replace(kernel, plan=replace(kernel.plan, **{field: value(kernel)}))

    return PlanningPass(name, kind, field, run, frozenset(needs.split()))


_loops = partial(_field, LoopPlan)
_updates = partial(_field, UpdatesPlan)
_matrix = partial(_field, MatrixPlan)


def _fused(kernel: Kernel) -> Kernel:
    """The kernel of a scatter with the loops of its fill merged."""
    assert isinstance(kernel.node, Scatter)
    return replace(kernel, node=collapse_fill(kernel.node))


CPU_PLANNING: tuple[PlanningPass, ...] = (
    PlanningPass("base-offsets", None, "base_offsets", lambda k, c: loop_plan.hoist_base_offsets(k)),
    PlanningPass("fma-contraction", None, "node", lambda k, c: loop_plan.contract_products(k)),
    _loops("transpose-rows", "transposed", loop_plan.transposed),
    _rewrite("collapse", "node", loop_plan.collapse_loops, "transposed"),
    _loops("sliding-window", "windows", loop_plan.windows, "transposed"),
    _rewrite("share-rows", "node", loop_plan.share_rows, "transposed windows"),
    _rewrite("interleave", "interleaved", loop_plan.interleave),
    _rewrite("join-short-rows", "node", loop_plan.join_short_rows, "interleaved"),
    _loops("form", "form", loop_plan.form, "transposed windows interleaved"),
    _loops("vector-axis", "vector", loop_plan.vector, "form interleaved"),
    _loops("reductions", "reduction", loop_plan.reduction_kinds, "vector"),
    _loops("tiles", "tile", loop_plan.tile, "form vector"),
    _loops("store-policy", "nontemporal", loop_plan.nontemporal, "form"),
    _loops("window-walks", "window_walk", loop_plan.walk_windows, "form windows nontemporal"),
    _loops("pipeline-blocks", "pipeline", loop_plan.pipeline_blocks, "form"),
    _loops("aligned-lines", "aligned_lines", loop_plan.whole_lines_alone),
    _loops("parallel-loops", "parallel", loop_plan.parallel, "form vector tile nontemporal window_walk"),
    _loops("write-combining", "combined", loop_plan.combined, "form vector parallel nontemporal"),
    _loops("row-prefetch", "row_prefetch", loop_plan.prefetched_rows, "form vector parallel combined reduction"),
    _loops("alignment-peel", "peel", loop_plan.peel, "vector nontemporal aligned_lines combined"),
    _loops("prefetch", "prefetch", loop_plan.prefetch, "form vector parallel combined row_prefetch reduction"),
    _loops("vertical-reductions", "vertical", loop_plan.vertical, "vector reduction transposed"),
    _loops("horizontal-reductions", "horizontal", loop_plan.horizontal, "form vector parallel reduction"),
    _loops("column-walks", "walk", loop_plan.walk, "form vector reduction prefetch"),
    PlanningPass("collapse-fill", UpdatesPlan, "node", lambda k, c: _fused(k)),
    _updates("fill-lanes", "fill", updates_plan.fill_lanes),
    _updates("update-columns", "columns", updates_plan.update_columns),
    _updates("update-lanes", "lanes", updates_plan.update_lanes, "columns"),
    _updates("update-prefetch", "prefetch", updates_plan.update_prefetch, "columns lanes"),
    _matrix("matrix-algorithm", "algorithm", matrix_plan.algorithm),
    _matrix("matrix-packing", "packing", matrix_plan.packing),
    _matrix("register-tiles", "tiles", matrix_plan.tiles, "algorithm"),
    _matrix("matrix-blocking", "blocking", matrix_plan.blocking, "algorithm"),
    _matrix("streamed-weights", "streamed", matrix_plan.streamed, "packing"),
    _matrix("epilogue", "epilogue", matrix_plan.epilogue, "algorithm"),
    _matrix("tasks", "tasks", matrix_plan.tasks, "algorithm"),
    _matrix("skip-hidden-keys", "skips_hidden", matrix_plan.skips_hidden),
    _matrix("chain-links", "links", matrix_plan.links, "algorithm"),
)


def planning_for(context: Context) -> tuple[PlanningPass, ...]:
    """The list for a context's GPU, or for CPUs."""
    return CPU_PLANNING if context.device is None else GPU_PLANNING


def empty_plan(node: AnyNode, context: Context) -> Plan | None:
    """A plan of a node's kind without decisions; None where there is nothing to decide."""
    if context.device is not None:
        return empty_gpu_plan(node)
    match node:
        case Map() | Reduce() | Nest() | Scan():
            return LoopPlan()
        case Scatter():
            return UpdatesPlan()
        case Gemm() | Conv() | ConvChain() | Attention() | AttentionGradient():
            return MatrixPlan()
    return None


def plan_with_tile(node: AnyNode, device: Device, tile: Tile) -> Kernel:
    """The kernel of a matrix node of a GPU that is cut by a tile of one's own: measured, or a lock's.

    Raises:
        ValueError: the tile does not fit the node.
    """
    reason = tile_misfit(node, tile)
    if reason:
        raise ValueError(f"{tile}: {reason}")
    return plan_kernel(node, Context(Remarks(), device), {"tile": tile})


def plan_kernel(
    node: AnyNode,
    context: Context | None = None,
    chosen: Mapping[str, Any] = MappingProxyType({}),
    off: Collection[str] = (),
) -> Kernel:
    """The kernel of a scheduled node: its plan is made by the passes of its kind, a field each.

    context: of the schedule; None: of one for a CPU. chosen: as of run_planning(). off: names of optional
    passes to leave out.
    """
    context = context or Context(Remarks())
    rows = [row for row in planning_for(context) if row.name not in OPTIONAL or row.name not in off]
    return run_planning(rows, Kernel(node, empty_plan(node, context)), context, chosen)

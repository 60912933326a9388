"""The planning passes, behind the rewrites of passes.py: each decides one field of the plan of a kernel.

A list for CPUs and one for GPUs, a row a pass; the driver runs those of a kernel's kind of plan in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from ..ir.nodes import Map, Nest, Reduce, Scan, Scatter
from ..ir.plans.gpu import GpuPlan
from ..ir.plans.kernel import Kernel, Plan
from ..ir.plans.loop import LoopPlan
from ..ir.plans.matrix import MatrixPlan
from ..ir.program import AnyNode
from ..ir.structured import Attention, Conv, ConvChain, Gemm
from .loops import loop_plan
from .passes import Context
from .remarks import Remarks


@dataclass(frozen=True)
class PlanningPass:
    """A pass: its name, the kind of plan of its kernels (None: all kernels), the field that it makes, and its function.

    field: of the plan; "node" or "starts": of the kernel. run: gives the kernel with that field; a rewrite of the node
    may leave a fact of it in the plan. needs: fields of the plan that are made before.
    """

    name: str
    plan: type[Plan] | None
    field: str
    run: Callable[[Kernel, Context], Kernel]
    needs: frozenset[str] = frozenset()


def _rewrite(name: str, field: str, run: Callable[[Kernel], Kernel], needs: str = "") -> PlanningPass:
    return PlanningPass(name, LoopPlan, field, lambda k, c: run(k), frozenset(needs.split()))


def _loops(name: str, field: str, value: Callable[[Kernel], Any], needs: str = "") -> PlanningPass:
    """A row that makes a field of a LoopPlan."""

    def run(kernel: Kernel, context: Context) -> Kernel:
        assert isinstance(kernel.plan, LoopPlan)
        return replace(kernel, plan=replace(kernel.plan, **{field: value(kernel)}))

    return PlanningPass(name, LoopPlan, field, run, frozenset(needs.split()))


CPU_PLANNING: tuple[PlanningPass, ...] = (
    PlanningPass("base-offsets", None, "starts", lambda k, c: loop_plan.hoist_base_offsets(k)),
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
    _loops("aligned-lines", "aligned_lines", loop_plan.whole_lines_alone),
    _loops("parallel-loops", "parallel", loop_plan.parallel, "form vector tile nontemporal"),
    _loops("write-combining", "combined", loop_plan.combined, "form vector parallel nontemporal"),
    _loops("row-prefetch", "row_prefetch", loop_plan.prefetched_rows, "form vector parallel combined reduction"),
    _loops("alignment-peel", "peel", loop_plan.peel, "vector nontemporal aligned_lines combined"),
    _loops("prefetch", "prefetch", loop_plan.prefetch, "form vector parallel combined row_prefetch reduction"),
    _loops("vertical-reductions", "vertical", loop_plan.vertical, "vector reduction transposed"),
    _loops("column-walks", "walk", loop_plan.walk, "form vector reduction prefetch"),
)

GPU_PLANNING: tuple[PlanningPass, ...] = ()


def planning_for(context: Context) -> tuple[PlanningPass, ...]:
    """The list for a context's GPU, or for CPUs."""
    return CPU_PLANNING if context.device is None else GPU_PLANNING


def check_planning(passes: Iterable[PlanningPass]) -> None:
    """Raises AssertionError when a pass makes no field of its plan, makes one again, or needs one that is not made."""
    made: dict[type | None, set[str]] = {}
    for row in passes:
        own = made.setdefault(row.plan, set())
        if row.field not in {f.name for kind in (Kernel, row.plan) if kind is not None for f in fields(kind)}:
            raise AssertionError(f"pass {row.name} makes {row.field}, which is no field of its plan")
        if row.field in own and row.field != "node":
            raise AssertionError(f"pass {row.name} makes {row.field} again")
        if missing := row.needs - own:
            raise AssertionError(f"pass {row.name} needs {', '.join(sorted(missing))}, which no pass before it makes")
        own.add(row.field)


def empty_plan(node: AnyNode, context: Context) -> Plan | None:
    """A plan of a node's kind without decisions; None where there is nothing to decide."""
    match node:
        case Map() | Reduce() | Nest() | Scan():
            return LoopPlan() if context.device is None else GpuPlan()
        case Gemm() | Conv() | ConvChain() | Attention():
            return MatrixPlan() if context.device is None else GpuPlan()
        case Scatter():
            return None if context.device is None else GpuPlan()
    return None


def plan_kernel(node: AnyNode, context: Context | None = None) -> Kernel:
    """The kernel of a scheduled node: its plan is made by the passes of its kind, a field each.

    context: of the schedule; None: of one for a CPU.
    """
    context = context or Context(Remarks())
    kernel = Kernel(node, empty_plan(node, context))
    for row in planning_for(context):
        if row.plan is not None and not isinstance(kernel.plan, row.plan):
            continue
        try:
            kernel = row.run(kernel, context)
        except Exception as error:
            error.add_note(f"in planning pass {row.name}")
            raise
    return kernel

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
from .loops.store_policy import nontemporal_results
from .passes import Context
from .remarks import Remarks


@dataclass(frozen=True)
class PlanningPass:
    """A pass: its name, the field of which kind of plan it makes, and the function that gives the field's value.

    needs: fields that are made before. The function sees the kernel with these.
    """

    name: str
    plan: type[Plan]
    field: str
    run: Callable[[Kernel, Context], Any]
    needs: frozenset[str] = frozenset()


def _row(
    name: str, plan: type[Plan], field: str, run: Callable[[Kernel, Context], Any], needs: str = ""
) -> PlanningPass:
    return PlanningPass(name, plan, field, run, frozenset(needs.split()))


def _loops(kernel: Kernel) -> Map | Reduce | Nest | Scan:
    assert isinstance(kernel.node, Map | Reduce | Nest | Scan)
    return kernel.node


CPU_PLANNING: tuple[PlanningPass, ...] = (
    _row("store-policy", LoopPlan, "nontemporal", lambda k, c: nontemporal_results(_loops(k))),
)

GPU_PLANNING: tuple[PlanningPass, ...] = ()


def planning_for(context: Context) -> tuple[PlanningPass, ...]:
    """The list for a context's GPU, or for CPUs."""
    return CPU_PLANNING if context.device is None else GPU_PLANNING


def check_planning(passes: Iterable[PlanningPass]) -> None:
    """Raises AssertionError when a pass makes no field of its plan, makes one again, or needs one that is not made."""
    made: dict[type, set[str]] = {}
    for row in passes:
        own = made.setdefault(row.plan, set())
        if row.field not in {f.name for f in fields(row.plan)}:
            raise AssertionError(f"pass {row.name} makes {row.field}, which is no field of {row.plan.__name__}")
        if row.field in own:
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
        if kernel.plan is None or not isinstance(kernel.plan, row.plan):
            continue
        try:
            value = row.run(kernel, context)
        except Exception as error:
            error.add_note(f"in planning pass {row.name}")
            raise
        kernel = replace(kernel, plan=replace(kernel.plan, **{row.field: value}))
    return kernel

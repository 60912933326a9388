"""What a planning pass is, the check of a list of them, and the driver that runs one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from ..ir.plans.kernel import Kernel, Plan
from .passes import Context


@dataclass(frozen=True)
class PlanningPass:
    """A pass: its name, the kind of plan of its kernels (None: all kernels), the field that it makes, and its function.

    field: of the plan; "node" or "base_offsets": of the kernel. run: gives the kernel with that field; a rewrite of the
    node may leave a fact of it in the plan. needs: fields of the plan that are made before.
    """

    name: str
    plan: type[Plan] | None
    field: str
    run: Callable[[Kernel, Context], Kernel]
    needs: frozenset[str] = frozenset()


def check_planning(passes: Iterable[PlanningPass]) -> None:
    """Raises AssertionError when a pass makes no field of its plan, makes one again, or needs one that is not made."""
    made: dict[type | None, set[str]] = {}
    for row in passes:
        own = made.setdefault(row.plan, set())
        if row.field not in {f.name for kind in (Kernel, row.plan) if kind is not None for f in fields(kind)}:
            raise AssertionError(f"pass {row.name} makes {row.field}, which is no field of its plan")
        if row.field in own and row.field != "node":
            raise AssertionError(f"pass {row.name} makes {row.field} again")
        kinds = (kind for kind in made if kind is not None and row.plan is not None and issubclass(row.plan, kind))
        if missing := row.needs - own.union(*(made[kind] for kind in kinds)):
            raise AssertionError(f"pass {row.name} needs {', '.join(sorted(missing))}, which no pass before it makes")
        own.add(row.field)


def run_planning(
    passes: Iterable[PlanningPass], kernel: Kernel, context: Context, chosen: Mapping[str, Any] = MappingProxyType({})
) -> Kernel:
    """The kernel with the plan that the passes of its kind make.

    chosen: fields by name that are decided already (a tile that was measured): their passes do not run.
    """
    for row in passes:
        if row.plan is not None and not isinstance(kernel.plan, row.plan):
            continue
        if row.field in chosen and kernel.plan is not None:
            kernel = replace(kernel, plan=replace(kernel.plan, **{row.field: chosen[row.field]}))
            continue
        try:
            kernel = row.run(kernel, context)
        except Exception as error:
            error.add_note(f"in planning pass {row.name}")
            raise
    return kernel

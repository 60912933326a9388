"""The blocking of a matrix kernel's plan as the struct of its C++ function, of which only what differs is set.

Values are arguments of the kernel: products that are cut otherwise share the function.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from ...ir.plans.matrix import AttentionBlocking, Blocking, ConvBlocking, GemmBlocking, MatrixPlan
from ...tune.choices.choices import Choice
from .scope import Param
from .views.kernel import TunedKernel, Tuning

#: the C++ struct of a blocking, and the values that its fields have by themselves (kernels/)
STRUCTS: dict[type[Blocking], tuple[str, Blocking]] = {
    GemmBlocking: ("GemmTuning", GemmBlocking(depth=256, together=4, group_bytes=24 << 10, block_bytes=192 << 10)),
    ConvBlocking: ("ConvTuning", ConvBlocking(depth=384, panel_bytes=160 << 10, pixels=256)),
    AttentionBlocking: ("AttentionTuning", AttentionBlocking(key_block=384, chunk_floats=96 << 10)),
}


def with_chosen_blocking(plan: MatrixPlan, choice: Choice) -> MatrixPlan:
    """The plan with the blocking that was measured to be better (compiler/tune)."""
    if plan.blocking is None or not choice.values:
        return plan
    changed: dict[str, Any] = dict(choice.values)
    return replace(plan, blocking=replace(plan.blocking, **changed))


def with_blocking(view: TunedKernel, plan: MatrixPlan) -> TunedKernel:
    """The view with the fields of the plan's blocking that the C++ function would take otherwise."""
    if plan.blocking is None:
        return view
    struct, own = STRUCTS[type(plan.blocking)]
    set_ = [(name, value) for name, value in asdict(plan.blocking).items() if value != getattr(own, name)]
    if not set_:
        return view
    params = tuple(Param(f"tuning_{name}", "int64_t", None, str(value)) for name, value in set_)
    fields = tuple((name, f"tuning_{name}") for name, _ in set_)
    return replace(view, params=(*view.params, *params), tuning=Tuning(struct, fields))

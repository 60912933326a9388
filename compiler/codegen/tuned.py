"""A kernel's view with what was chosen for it (compiler/tune), as arguments: other choices share the function."""

from __future__ import annotations

from dataclasses import replace

from ..ir.nodes import AnyNode
from ..tune.choices import Choice
from ..tune.space import family_of, split
from .scope import Param
from .views import AttentionKernel, FlatKernel, GemmKernel, KernelView, LoopKernel, Tuning


def with_choice(view: KernelView, node: AnyNode, choice: Choice) -> KernelView:
    """The view with the parameters of a choice that code generation reads; the view itself when there are none."""
    own, family = split(choice, "codegen"), family_of(node)
    if not own or family is None or not isinstance(view, (GemmKernel, AttentionKernel, LoopKernel, FlatKernel)):
        return view
    params = tuple(Param(f"tuning_{name}", "int64_t", None, str(value)) for name, value in own.values)
    fields = tuple((name, f"tuning_{name}") for name, _ in own.values)
    return replace(view, params=(*view.params, *params), tuning=Tuning(family.struct, fields))

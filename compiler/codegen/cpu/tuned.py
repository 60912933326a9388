"""A loop kernel's view with what was chosen for it (compiler/tune), as arguments: other choices share the function."""

from __future__ import annotations

from dataclasses import replace

from ...tune.choices.choices import Choice
from ...tune.choices.space import split
from .scope import Param
from .views.kernel import KernelView, TunedKernel, Tuning

#: templates whose kernels take choices
TUNED = ("rows.cpp.j2", "pipelined_rows.cpp.j2", "row_streams.cpp.j2", "pipelined_columns.cpp.j2", "map_flat.cpp.j2")


def with_choice(view: KernelView, choice: Choice) -> KernelView:
    """The view with the parameters of a choice that code generation reads; the view itself when there are none."""
    own = split(choice, "codegen")
    if not own or not isinstance(view, TunedKernel) or view.template not in TUNED:
        return view
    params = tuple(Param(f"tuning_{name}", "int64_t", None, str(value)) for name, value in own.values)
    fields = tuple((name, f"tuning_{name}") for name, _ in own.values)
    return replace(view, params=(*view.params, *params), tuning=Tuning("", fields))

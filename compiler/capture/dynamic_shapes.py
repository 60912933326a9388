"""What the user says of dynamic sizes, in each of torch.export's forms, and what of it a package cannot have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch

from ...runtime.errors import CompileError
from ..model.graph import ModelGraph
from ..model.leaves import Dims, bind, leaves_of
from ..model.sizes import NO_MAX

__all__ = ["check_additional", "limit_notes", "plain_shapes"]


def plain_shapes(shapes: Any, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """dynamic_shapes nested like the arguments, of a ShapesCollection or AdditionalInputs too."""
    if not isinstance(shapes, (torch.export.ShapesCollection, torch.export.AdditionalInputs)):
        return shapes
    try:
        return shapes.dynamic_shapes(model, tuple(args), dict(kwargs))
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        what = type(shapes).__name__
        hint = (
            "Its keys are the very tensors of args and kwargs."
            if what == "ShapesCollection"
            else ("Each of its inputs has the structure and the types of the example inputs; sizes alone differ.")
        )
        raise CompileError(f"cannot read the {what} in dynamic_shapes: {reason}", hint=hint) from None


def check_additional(shapes: Any, forward: Any, graph: ModelGraph) -> None:
    """Refuses AdditionalInputs of which one has sizes that the graph does not take."""
    if not isinstance(shapes, torch.export.AdditionalInputs):
        return
    for args, kwargs in shapes._examples:
        leaves = leaves_of(bind(forward, args, kwargs or {}))
        tensors = [leaf.value for leaf in leaves if leaf.is_tensor]
        values = {s.symbol: sympy.Rational(tensors[s.input].shape[s.dim] - s.offset, s.scale) for s in graph.symbols}
        for s in graph.symbols:
            if not s.min <= values[s.symbol] <= s.max:
                where = f"'{graph.inputs[s.input].name}', dimension {s.dim}"
                raise CompileError(f"AdditionalInputs: {where}, is outside of the sizes that work: {s.min}..{s.max}")
        for spec, tensor in zip(graph.inputs, tensors, strict=False):
            for axis, size in enumerate(spec.shape):
                wanted = size.xreplace(values) if isinstance(size, sympy.Expr) else size
                if wanted != tensor.shape[axis]:
                    raise CompileError(
                        f"AdditionalInputs: dimension {axis} of '{spec.name}' is {tensor.shape[axis]} in one of them, "
                        f"where the model takes {size}, which is {wanted} there"
                    )


def limit_notes(dims: Sequence[Dims]) -> tuple[str, ...]:
    """A warning for each named size whose range is larger than that of a package."""
    roots: list[Any] = [getattr(dim, "root", dim) for by_axis in dims for dim in by_axis.values()]
    named = {root.__name__: root.max for root in roots if hasattr(root, "__name__")}
    return tuple(
        f"the size '{name}' may be up to {most}, but the package takes at most {NO_MAX}"
        for name, most in named.items()
        if isinstance(most, int) and most > NO_MAX
    )

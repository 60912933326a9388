"""Definitions that follow from an operator's schema: of lists of tensors, and of overloads that take a number.

_foreach_add.List([a, b], [c, d])    ->    [add(a, c), add(b, d)]
xlogy.Scalar_Other(x, 2.0)           ->    xlogy.Tensor(x, scalar_tensor(2.0))
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

__all__ = ["derived_definition"]

Definition = Callable[..., Any]


@cache
def derived_definition(target: OpOverload) -> Definition | None:
    """What an overload computes by others of aten; None when its schema does not say it."""
    if target._opname.startswith("_foreach_"):
        return _of_each(target)
    form = _tensor_form(target)
    return None if form is None else _with_tensors(target, form)


# lists of tensors ----------------------------------------------------------------------------------------------------
def _of_each(target: OpOverload) -> Definition | None:
    """torch's own definition, which calls the operator of one tensor for each. It is the kernel of every device."""
    if not target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeExplicitAutograd):
        return None
    cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    return lambda *args, **kwargs: target.redispatch(cpu, *args, **kwargs)


# numbers -------------------------------------------------------------------------------------------------------------
def _tensor_form(target: OpOverload) -> OpOverload | None:
    """The overload that takes tensors where `target` takes tensors and numbers, and else the same."""
    wanted = [(a.name, "Tensor" if str(a.type) == "number" else str(a.type)) for a in target._schema.arguments]
    packet = getattr(getattr(torch.ops, target.namespace), target._opname)
    for name in packet.overloads():
        form: OpOverload = getattr(packet, name)
        if form is not target and [(a.name, str(a.type)) for a in form._schema.arguments] == wanted:
            return form
    return None


def _with_tensors(target: OpOverload, form: OpOverload) -> Definition:
    """Numbers as tensors of no dimension, in the type that torch computes in: one of half precision rounds them."""
    numbers = {i for i, a in enumerate(target._schema.arguments) if str(a.type) == "number"}

    def definition(*args: Any) -> Any:
        tensors = [a for a in args if isinstance(a, Tensor)]
        values = [a for i, a in enumerate(args) if i in numbers]
        dtype = torch.result_type(tensors[0], values[0])
        return form(*(torch.scalar_tensor(a, dtype=dtype) if i in numbers else a for i, a in enumerate(args)))

    return definition

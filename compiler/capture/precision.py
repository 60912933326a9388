"""The model in another floating-point type, as `model.to(dtype)` would have it; the user's own model stays as it is."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from ...runtime.errors import CompileError
from ..ir.dtypes import to_torch
from .export import CaptureRequest

__all__ = ["in_dtype"]


def in_dtype(requests: Sequence[CaptureRequest], dtype: str | None) -> list[CaptureRequest]:
    """The requests with floating parameters, buffers and example inputs in `dtype` ("bf16"); None changes nothing.

    What several entry points share they share afterwards too.

    Raises:
        CompileError: the model cannot be converted: an exported program, or a function that holds modules.
    """
    if dtype is None:
        return list(requests)
    wanted = to_torch(dtype)
    memo: dict[int, Any] = {}
    return [_converted(request, wanted, dtype, memo) for request in requests]


def _converted(request: CaptureRequest, wanted: torch.dtype, name: str, memo: dict[int, Any]) -> CaptureRequest:
    model = request.model
    if isinstance(model, ExportedProgram):
        tensors = [*model.state_dict.values(), *model.constants.values()]
        if any(isinstance(t, torch.Tensor) and t.is_floating_point() and t.dtype != wanted for t in tensors):
            raise CompileError(
                f"an exported program cannot be converted to {name}",
                hint=f"Export the model itself after model.to(torch.{str(wanted).removeprefix('torch.')}).",
            )
    elif isinstance(model, torch.nn.Module):
        model = _module(model, wanted, memo)
    elif _holds_tensors(model):
        raise CompileError(
            f"a function that uses modules of its own cannot be converted to {name}",
            hint="Give the nn.Module, or convert it yourself and leave dtype out.",
        )
    args, kwargs = pytree.tree_map(lambda leaf: _cast(leaf, wanted), (request.args, dict(request.kwargs)))
    return replace(request, model=model, args=args, kwargs=kwargs)


def _module(model: torch.nn.Module, wanted: torch.dtype, memo: dict[int, Any]) -> torch.nn.Module:
    """A copy of the module whose tensors are converted one by one, never all of them twice; ties stay ties."""
    changed = False
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) in memo:
            changed = True
        elif tensor.is_floating_point() and tensor.dtype != wanted:
            value = tensor.detach().to(wanted)
            memo[id(tensor)] = torch.nn.Parameter(value, False) if isinstance(tensor, torch.nn.Parameter) else value
            changed = True
        else:
            memo[id(tensor)] = tensor
    return copy.deepcopy(model, memo) if changed else model


def _cast(leaf: Any, wanted: torch.dtype) -> Any:
    return leaf.to(wanted) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def _holds_tensors(model: Any) -> bool:
    from .export import _modules_of

    return any(True for module in _modules_of(model) for _ in (*module.parameters(), *module.buffers()))

"""The model on the CPU, and in another floating-point type as `model.to(dtype)` would have it; the user's own model
stays as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree
from torch.utils.dlpack import from_dlpack

from ...runtime.errors import CompileError
from ..ir.dtypes import to_torch
from .export import CaptureRequest
from .tensor_formats import check_packed, is_packed, unpacked

__all__ = ["in_dtype"]


def in_dtype(requests: Sequence[CaptureRequest], dtype: str | None) -> list[CaptureRequest]:
    """The requests with floating parameters, buffers and example inputs in `dtype` ("bf16"; None: their own), all of
    them on the CPU, where models are captured.

    What several entry points share they share afterwards too.

    Raises:
        CompileError: the model cannot be converted: an exported program, or a function that holds modules.
    """
    memo: dict[int, Any] = {}
    moved = [_moved(request, memo) for request in requests]
    if dtype is None:
        return moved
    wanted = to_torch(dtype)
    return [_converted(request, wanted, dtype, memo) for request in moved]


def _moved(request: CaptureRequest, memo: dict[int, Any]) -> CaptureRequest:
    """The request with everything on the CPU that is on a GPU, weights in forms that torch exports there, and ordinary
    tensors where torch.inference_mode made some, on which torch.export fails."""
    model = request.model
    for name, tensor in model.named_parameters() if isinstance(model, torch.nn.Module) else ():
        if is_packed(tensor):
            check_packed(tensor, name)
    if isinstance(model, torch.nn.Module) and any(_moves(t) for t in (*model.parameters(), *model.buffers())):
        model = _module(model, _here, memo)
    leaves = pytree.tree_leaves((request.args, dict(request.kwargs)))
    if model is request.model and not any(_moves(leaf) for leaf in leaves):
        return request
    args, kwargs = pytree.tree_map(_here, (request.args, dict(request.kwargs)))
    return replace(request, model=model, args=args, kwargs=kwargs)


def _moves(leaf: Any) -> bool:
    if not isinstance(leaf, torch.Tensor) or is_lazy(leaf):
        return False
    return leaf.device.type == "cuda" or leaf.is_inference() or is_packed(leaf)


def _here(leaf: Any) -> Any:
    if not _moves(leaf):
        return leaf
    if leaf.device.type == "cuda":
        return _here(leaf.cpu())
    if is_packed(leaf):
        return unpacked(leaf)
    try:
        return from_dlpack(leaf.detach())  # the same memory
    except (BufferError, RuntimeError):
        return leaf.clone()


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
        model = _module(model, lambda t: _cast(t, wanted), memo)
    elif _holds_tensors(model):
        raise CompileError(
            f"a function that uses modules of its own cannot be converted to {name}",
            hint="Give the nn.Module, or convert it yourself and leave dtype out.",
        )
    args, kwargs = pytree.tree_map(lambda leaf: _cast(leaf, wanted), (request.args, dict(request.kwargs)))
    return replace(request, model=model, args=args, kwargs=kwargs)


def _module(
    model: torch.nn.Module, convert: Callable[[torch.Tensor], torch.Tensor], memo: dict[int, Any]
) -> torch.nn.Module:
    """A copy of the module whose tensors are converted one by one, never all of them twice; ties stay ties."""
    changed = False
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) not in memo:
            value = convert(own := tensor.detach())
            if value is own:
                memo[id(tensor)] = tensor
            else:
                memo[id(tensor)] = torch.nn.Parameter(value, False) if isinstance(tensor, torch.nn.Parameter) else value
            memo[id(memo[id(tensor)])] = memo[id(tensor)]
        changed |= memo[id(tensor)] is not tensor
    return copy.deepcopy(model, memo) if changed else model


def _cast(leaf: Any, wanted: torch.dtype) -> Any:
    return leaf.to(wanted) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def _holds_tensors(model: Any) -> bool:
    from .export import _modules_of

    return any(True for module in _modules_of(model) for _ in (*module.parameters(), *module.buffers()))

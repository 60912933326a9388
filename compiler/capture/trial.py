"""A run of the model as it is, when no export of it works: whether it raises by itself, and what it replaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...runtime.errors import CompileError
from ..model.graph import dtype_name
from ..model.source_lines import frames_of_exception, is_torch_file, pick
from .failures import place

__all__ = ["called", "run_once", "sizes_of"]


def run_once(call: torch.nn.Module, examples: Sequence[torch.Tensor], sizes: str) -> None:
    """Calls the model on copies of its tensor inputs; buffers get their values back.

    Args:
        sizes: of the inputs, for the message; "" where they are those of the user's example.

    Raises:
        CompileError: the model raises on them.
    """
    kept = [(tensor, tensor._version, tensor.detach().clone()) for tensor in call.buffers()]
    try:
        with torch.random.fork_rng(devices=[]):
            called(call, examples)
    except Exception as error:
        raise _raised(error, sizes, examples) from error
    finally:
        for tensor, version, value in kept:
            if tensor._version != version:
                tensor.detach().copy_(value)


def called(model: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
    """What a call on copies gives, without derivatives but for a model that takes them itself."""
    try:
        with torch.no_grad():
            return model(*(tensor.detach().clone() for tensor in tensors))
    except RuntimeError as error:
        if "does not require grad" not in str(error):
            raise
    with torch.enable_grad():
        return model(*(tensor.detach().clone() for tensor in tensors))


def _raised(error: Exception, sizes: str, examples: Sequence[torch.Tensor]) -> CompileError:
    frames = frames_of_exception(error)
    found = pick([f for f in frames if not is_torch_file(f.file)] or frames)
    if any(f.file.endswith("torch/cuda/jiterator.py") for f in frames):
        return CompileError(
            "the model calls a function of torch.cuda.jiterator, whose CUDA text torch compiles in the call: "
            "a package cannot hold it",
            details=[place(frame) for frame in dict.fromkeys(found or ())],
            hint="Write it with torch's operators, or as a Triton kernel (docs/custom-operators.md).",
        )
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
    what = f"for {sizes}, which its dynamic sizes include" if sizes else "on its example inputs"
    given = ", ".join(f"{dtype_name(x.dtype)}{list(x.shape)}" for x in examples)
    places = list(dict.fromkeys(place(frame) for frame in found)) if found else []
    return CompileError(
        f"the model raises {what}: {reason}",
        details=[*places, *([f"the example inputs are {given}"] if given and not sizes else [])],
    )


def sizes_of(names: Sequence[str], tensors: Sequence[Any]) -> str:
    """`x of [2, 4]`."""
    return ", ".join(f"{name} of {list(tensor.shape)}" for name, tensor in zip(names, tensors, strict=True))

"""The float64 reference of an architecture, also where its code asks for float32 by name.

Experts of a mixture go through a grouped product that torch has for 32 bits at most: in the reference they are loops,
transformers' own other way to say the same. Where the code still refuses float64, all that it makes in float32 is
made in float64 instead.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["in_float64", "wide_inputs", "wide_model"]

R = TypeVar("R")


def in_float64(run: Callable[[], R], is_near: Callable[[R], bool] = lambda _: True) -> R | None:
    """What a run of a wide model gives; None where the code insists on float32 even so.

    is_near: whether float32 gives about the same. The least float64 is an infinity in float32: a mask of it that the
    code makes in float32 turns results to NaN.
    """
    for scope in (nullcontext, _nothing_narrow):
        with suppress(RuntimeError), scope():
            found = run()
            if is_near(found):
                return found
    return None


def wide_model(model: torch.nn.Module) -> torch.nn.Module:
    """A copy of a model in float64."""
    wide = copy.deepcopy(model).double()
    for config in _configs(wide):
        if getattr(config, "_experts_implementation", None) is not None:
            config._experts_implementation = "eager"
    return wide


def wide_inputs(inputs: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [x.double() if x.is_floating_point() else x for x in inputs]


def _configs(model: torch.nn.Module) -> Iterator[Any]:
    for part in model.modules():
        config = getattr(part, "config", None)
        if config is not None:
            yield config


@contextmanager
def _nothing_narrow() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Wide():
            yield
    finally:
        torch.set_default_dtype(before)


class _Wide(TorchDispatchMode):
    """Operators that are asked for float32 give float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*map(_wider, args), **{name: _wider(value) for name, value in (kwargs or {}).items()})


def _wider(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value

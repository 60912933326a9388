"""Computing on fake tensors: operators run for the shapes, strides and dtypes of their results alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher


@contextmanager
def recording_fake(mode: Any) -> Iterator[None]:
    """Computes on the fake tensors of `mode`, or on those that carry their own mode when it is None. What operators ask
    about sizes is recorded, as in an export: two that have to be equal become one symbol.

    torch's dispatcher in Python expands tensors to sizes that are symbols; the one in C++ raises "expected to contain
    only concrete integers" (aten.lerp.Scalar of operands that broadcast).
    """
    with torch.no_grad(), mode or nullcontext(), enable_python_dispatcher():
        yield


@contextmanager
def computing_fake(mode: Any) -> Iterator[None]:
    """`recording_fake` without ever fixing a size symbol: torch may ask whether two sizes are equal only to choose a
    memory format, and would take them for equal from then on.
    """
    shape_env = getattr(mode, "shape_env", None)
    with recording_fake(mode), shape_env.suppress_guards() if shape_env else nullcontext():
        yield

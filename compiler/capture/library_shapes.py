"""Shapes of what operators of libraries give, where neither torch nor the library tells them.

torch.export runs such an operator on zeros of the example's sizes, or its definition, which may go through them one by
one; dynamic sizes are fixed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._library.simple_registry import singleton

__all__ = ["library_shapes"]


def _filtered(x: Any, coefficients: Any, result: Any) -> Any:
    """It writes into its last argument, which some versions of torchaudio give too."""
    return result if torch.ops.torchaudio._lfilter_core_loop.default._schema.returns else None


#: what an operator gives, from fake tensors
_FAKES: dict[str, Callable[..., Any]] = {"torchaudio::_lfilter_core_loop": _filtered}


@contextmanager
def library_shapes() -> Iterator[None]:
    """While it lasts, torch knows the shapes of these operators."""
    with contextlib.ExitStack() as stack:
        for name, fake in _FAKES.items():
            if _lacks_shapes(name):
                library = stack.enter_context(torch.library._scoped_library(name.partition("::")[0], "FRAGMENT"))
                torch.library.register_fake(name, fake, lib=library)
        yield


def _lacks_shapes(name: str) -> bool:
    """Whether an operator is there and nobody has said what it gives."""
    there = torch._C._dispatch_has_kernel(name)  # the list of all names takes milliseconds
    keys = ("Meta", "CompositeImplicitAutograd")
    known = singleton.find(name).fake_impl.kernel is not None
    return there and not known and not any(torch._C._dispatch_has_kernel_for_dispatch_key(name, k) for k in keys)

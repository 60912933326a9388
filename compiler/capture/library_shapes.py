"""Shapes of what operators of libraries give, where neither torch nor the library tells them.

torch.export runs such an operator on zeros of the example's sizes, and dynamic ones are fixed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._library.simple_registry import singleton

__all__ = ["library_shapes"]

#: what an operator gives, from fake tensors
_FAKES: dict[str, Callable[..., Any]] = {
    "torchaudio::_lfilter_core_loop": lambda *_: None,  # it writes into its last argument
}


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
    there = name in torch._C._dispatch_get_all_op_names()
    keys = ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
    known = singleton.find(name).fake_impl.kernel is not None
    return there and not known and not any(torch._C._dispatch_has_kernel_for_dispatch_key(name, k) for k in keys)

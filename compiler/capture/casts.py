"""int() and float() of sizes, len() of tensors, and x.shape.numel().

Python's own int(x.shape[1] * 0.5) makes a number of the example's size, and the dimension is fixed; so do len(x) and
x.shape.numel(). Where a model does that, its code sees an int that leaves sizes symbolic, as torch.sym_int does, a len
that gives the first size, and shapes whose numel() multiplies sizes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.overrides import TorchFunctionMode

from ..model.source_lines import is_torch_file

__all__ = ["noting_casts", "symbolic_casts"]

Namespace = dict[str, Any]
#: what Python calls to make a number of a size
_METHODS = (
    (torch.SymInt, "__int__"), (torch.SymInt, "__index__"), (torch.SymFloat, "__int__"), (torch.SymFloat, "__float__"),
)  # fmt: skip


@contextmanager
def noting_casts() -> Iterator[list[Namespace]]:
    """Collects the globals of functions, torch's aside, that make numbers of sizes."""
    found: list[Namespace] = []
    before = [(owner, name, getattr(owner, name)) for owner, name in _METHODS]
    for owner, name, method in before:
        setattr(owner, name, _noting(method, found))
    try:
        yield found
    finally:
        for owner, name, method in before:
            setattr(owner, name, method)


def _noting(method: Callable[[Any], Any], found: list[Namespace]) -> Callable[[Any], Any]:
    def noting(size: Any) -> Any:
        caller = sys._getframe(1)
        own = not is_torch_file(caller.f_code.co_filename) and not any(caller.f_globals is space for space in found)
        if own and _stays(size):
            found.append(caller.f_globals)
        return method(size)

    return noting


def _stays(size: Any) -> bool:
    """Whether a cast may leave this symbolic: no fraction of a tensor's values, which makes no size."""
    return isinstance(size, torch.SymInt) or (isinstance(size, torch.SymFloat) and not free_unbacked_symbols(size))


@contextmanager
def symbolic_casts(namespaces: Sequence[Namespace]) -> Iterator[None]:
    """While it lasts, these functions of these globals and shapes of tensors leave sizes symbolic."""
    added = [(space, name) for space in namespaces for name in _CASTS if name not in space]
    for space, name in added:
        space[name] = _CASTS[name]
    try:
        with _Shapes():
            yield
    finally:
        for space, name in added:
            del space[name]


class _Cast(type):
    """The type of a stand-in for a class of numbers: a call converts, isinstance() asks the class itself."""

    plain: type
    symbolic: Callable[[Any], Any]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and _stays(args[0]):
            return cls.symbolic(args[0])
        return cls.plain(*args, **kwargs)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.plain)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.plain)

    def __getattr__(cls, name: str) -> Any:  # int.from_bytes, float.fromhex
        return getattr(cls.plain, name)


class _Shape(tuple[Any, ...]):
    """A torch.Size of symbolic sizes, which no class can be made of, with a numel() that keeps them symbolic."""

    def numel(self) -> Any:
        return math.prod(self)

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return _Shape(found) if isinstance(at, slice) else found


class _Shapes(TorchFunctionMode):
    """While it lasts, x.shape and x.size() are a _Shape where a size is symbolic."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Size) and any(isinstance(size, torch.SymInt) for size in found):
            return _Shape(found)
        return found


def _len(x: Any) -> Any:
    return x.shape[0] if isinstance(x, torch.Tensor) and x.dim() else len(x)


_CASTS: dict[str, Callable[..., Any]] = {
    "int": _Cast("int", (), {"plain": int, "symbolic": staticmethod(torch.sym_int)}),
    "float": _Cast("float", (), {"plain": float, "symbolic": staticmethod(torch.sym_float)}),
    "len": _len,
}

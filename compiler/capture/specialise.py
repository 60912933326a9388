"""Variants of an entry point for chosen sizes: `batch=1,8 seq=128` asks for one at (1, 128) and one at (8, 128).

A variant is captured anew with those sizes as constants. It shares the weights of the general entry point, which
hands calls of these sizes over to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...runtime.errors import CompileError
from ..model.leaves import Dims, Leaf
from ..model.sizes import dim_term, resize

if TYPE_CHECKING:
    from ..model.graph import ModelGraph
    from .export import CaptureRequest

__all__ = ["Sizes", "fix_sizes", "variant_requests"]

Sizes = Mapping[str, tuple[int, ...]]  # name of a dynamic size -> the values to compile variants for

MOST = 64  # variants of an entry point


def variant_requests(
    entries: Sequence[CaptureRequest], captured: Sequence[ModelGraph], sizes: Sizes
) -> list[CaptureRequest]:
    """A request for every combination of `sizes`, of every entry point that has such dynamic sizes.

    Raises:
        CompileError: no entry point has a dynamic size of that name, or a value is out of its range.
    """
    known = {symbol.name for graph in captured for symbol in graph.symbols}
    for name in sizes:
        if name not in known:
            named = ", ".join(sorted(known)) or "none"
            raise CompileError(
                f"cannot specialise '{name}': no input has a dynamic size of that name",
                hint=f"Dynamic sizes: {named}. Declare others with --dynamic or dynamic_shapes, with a name.",
            )
    found: list[CaptureRequest] = []
    for entry, graph in zip(entries, captured, strict=True):
        own = {symbol.name: _in_range(symbol, sizes[symbol.name]) for symbol in graph.symbols if symbol.name in sizes}
        combinations = list(itertools.product(*own.values())) if own else []
        if len(combinations) > MOST:
            raise CompileError(f"{len(combinations)} variants of '{graph.name}' are too many; at most {MOST} are built")
        found += [replace(entry, **_named(graph.name, dict(zip(own, values, strict=True)))) for values in combinations]
    return found


def _in_range(symbol: Any, values: tuple[int, ...]) -> tuple[int, ...]:
    for value in values:
        if not symbol.min <= value <= symbol.max:
            raise CompileError(f"cannot specialise {symbol.name}={value}: its range is {symbol.min}..{symbol.max}")
    return values


def _named(general: str, fixed: dict[str, int]) -> dict[str, Any]:
    name = "_".join([general, *(f"{size}{value}" for size, value in fixed.items())])
    return {"name": name, "fixed": fixed, "variant_of": general}


def fix_sizes(
    leaves: Sequence[Leaf], values: Sequence[Any], dims: Sequence[Dims], fixed: Mapping[str, int]
) -> tuple[list[Any], list[Dims]]:
    """The example values at the fixed sizes, and what stays dynamic."""
    fixed_values, left = list(values), [dict(by_axis) for by_axis in dims]
    done: set[str] = set()
    for i, by_axis in enumerate(dims):
        for axis, dim in by_axis.items():
            term = dim_term(dim, leaves[i].value.shape[axis], axis)
            if term.root not in fixed:
                continue
            size = term.scale * fixed[term.root] + term.offset
            fixed_values[i] = resize(fixed_values[i], axis, size, leaves[i].name)
            del left[i][axis]
            done.add(term.root)
    for name in fixed:
        if name not in done:
            raise CompileError(
                f"cannot specialise '{name}': torch named this size itself",
                hint='Give the dimension a name: torch.export.Dim("batch", min=1, max=64), or --dynamic x:0=batch.',
            )
    return fixed_values, left

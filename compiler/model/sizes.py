"""Sizes of the example inputs along dynamic dimensions.

torch.export takes sizes 0 and 1 for constants, and cannot tell two dimensions apart that happen to be equal. So every
dynamic size of the examples is made at least 2, and those of different symbols different.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...runtime.errors import CompileError
from .leaves import Dims, Leaf

__all__ = [
    "DimTerm", "Place", "dim_term", "resize", "resize_examples", "shared_sizes", "traced_dims", "without_hints_of_one",
]  # fmt: skip

#: (input, dimension)
Place = tuple[int, int]
NO_MAX = 2**31 - 1


@dataclass(frozen=True)
class DimTerm:
    """A dynamic dimension as scale * root + offset, root in min..max. Hints (Dim.AUTO) have a root of their own."""

    root: str
    min: int
    max: int
    scale: int = 1
    offset: int = 0

    @property
    def named(self) -> bool:
        return not self.root.startswith("?")


def _bound(value: Any, default: int) -> int:
    """A bound of a torch Dim: None and the infinities of sympy mean none."""
    if value is None:
        return default
    try:
        return min(int(value), NO_MAX)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return default


def dim_term(dim: Any, size: int, axis: int) -> DimTerm:
    """What a torch.export Dim (plain or derived) or hint means; `size` and `axis` tell hints apart."""
    root = getattr(dim, "root", dim)
    if not hasattr(root, "__name__"):  # Dim.AUTO, Dim.DYNAMIC: equal sizes stay equal, those of 1 on the same axis
        name = f"?{size}" if size > 1 else f"?{size}:{axis}"
        return DimTerm(name, _bound(dim.min, 0), _bound(dim.max, NO_MAX))
    lo, hi = _bound(root.min, 0), _bound(root.max, NO_MAX)
    if root is dim:
        return DimTerm(root.__name__, lo, hi)
    at0, at1 = int(dim.fn(0)), int(dim.fn(1))
    return DimTerm(root.__name__, lo, hi, at1 - at0, at0)


def traced_dims(dims: Sequence[Dims]) -> list[Dims]:
    """The dimensions for torch.export, which traces sizes from 2 on: a range that ends there would be the number 2, and
    each dimension would have a name of its own. It ends at 3 in the trace."""
    roots: list[Any] = [getattr(dim, "root", dim) for by_axis in dims for dim in by_axis.values()]
    wider = {
        root.__name__: torch.export.Dim(root.__name__, min=root.min, max=3)
        for root in roots
        if hasattr(root, "__name__") and root.max == 2 and root.min < 2
    }

    def traced(dim: Any) -> Any:
        root = wider.get(getattr(getattr(dim, "root", dim), "__name__", ""))
        if root is None or not hasattr(dim, "root"):
            return root or dim
        term = dim_term(dim, 0, 0)
        return root * term.scale + term.offset if term.offset else root * term.scale

    return [{axis: traced(dim) for axis, dim in by_axis.items()} for by_axis in dims] if wider else list(dims)


def shared_sizes(dims: Sequence[Dims]) -> list[list[Place]]:
    """The places of each size that several have by name: batch, or 2 * batch."""
    places: dict[DimTerm, list[Place]] = {}
    for i, by_axis in enumerate(dims):
        for axis, dim in by_axis.items():
            if (term := dim_term(dim, 0, axis)).named:
                places.setdefault(term, []).append((i, axis))
    return [of for of in places.values() if len(of) > 1]


def without_hints_of_one(leaves: Sequence[Leaf], dims: Sequence[Dims]) -> list[Dims]:
    """The dimensions without Dim.AUTO where the example's size is 1, which torch.export would fix there."""

    def is_auto(dim: Any) -> bool:
        return getattr(getattr(dim, "type", None), "name", "") == "AUTO"

    return [
        {axis: dim for axis, dim in by_axis.items() if not (is_auto(dim) and leaf.value.shape[axis] == 1)}
        for leaf, by_axis in zip(leaves, dims, strict=True)
    ]


def resize_examples(leaves: Sequence[Leaf], dims: Sequence[Dims], larger: bool = False) -> list[Any]:
    """The values of the leaves with every dynamic dimension at least 2 and different symbols of different sizes.

    A size that is fine already is kept. Tensors are repeated or cut, so that integers keep their range. larger: all
    are more than twice as large, where their ranges allow: the model may make a size of 1 of a small one.
    """
    terms = {
        (i, axis): dim_term(dim, leaf.value.shape[axis], axis)
        for i, (leaf, by_axis) in enumerate(zip(leaves, dims, strict=True))
        for axis, dim in by_axis.items()
    }
    roots = _choose(leaves, terms, larger)
    values = [leaf.value for leaf in leaves]
    for (i, axis), term in terms.items():
        size = term.scale * roots[term.root] + term.offset
        values[i] = resize(values[i], axis, size, leaves[i].name)
    return values


def _choose(leaves: Sequence[Leaf], terms: dict[tuple[int, int], DimTerm], larger: bool) -> dict[str, int]:
    chosen: dict[str, int] = {}
    taken: set[int] = set()
    uses: dict[str, list[tuple[DimTerm, int, str]]] = {}
    for (i, axis), term in terms.items():
        uses.setdefault(term.root, []).append((term, leaves[i].value.shape[axis], f"{leaves[i].name} dimension {axis}"))
    for root, places in uses.items():
        wanted = _wanted(root, places)
        wanted = max(wanted, min(2 * wanted + 1, places[0][0].max)) if larger else wanted
        value = _free(wanted, [term for term, _, _ in places], taken)
        chosen[root] = value
        taken |= {term.scale * value + term.offset for term, _, _ in places}
    return chosen


def _wanted(root: str, places: Sequence[tuple[DimTerm, int, str]]) -> int:
    """The symbol's value in the examples as given, which all places must agree on."""
    values: dict[int, str] = {}
    for term, size, where in places:
        value, rest = divmod(size - term.offset, term.scale)
        if rest:
            raise CompileError(f"the example's {where} is {size}, not {term.scale}*{root} + {term.offset}")
        values.setdefault(value, where)
    if len(values) > 1:
        found = ", ".join(f"{value} in {where}" for value, where in values.items())
        raise CompileError(
            f"dynamic size '{root}' has different values in the example inputs: {found}",
            hint="Give the examples the same size there, or name the dimensions differently.",
        )
    value = next(iter(values))
    term, size, where = places[0]
    if value == 0:
        raise CompileError(f"the example's {where} is {size}: give an example with some elements there")
    if not term.min <= value <= term.max and not (value == 1 and term.min <= 2):
        raise CompileError(f"the example's {where} is {size}, outside the range {term.min}..{term.max} of '{root}'")
    return value


def _free(wanted: int, terms: Sequence[DimTerm], taken: set[int]) -> int:
    """The value nearest to `wanted` that gives sizes of at least 2 not taken yet; another one is at least 4 where that
    is possible, so that a size that the model makes smaller by one or two is no 1."""
    low, high = max(terms[0].min, 1), terms[0].max

    def fits(value: int, others: set[int]) -> bool:
        sizes = {term.scale * value + term.offset for term in terms}
        return value >= 2 and min(sizes) >= 2 and not sizes & others

    span = 64
    near = [*range(max(low, wanted - span), min(high, wanted + span) + 1)]
    near.sort(key=lambda value: (value != wanted, value < 4, abs(value - wanted), value))
    alone = next((value for value in near if fits(value, set())), wanted)
    return next((value for value in near if fits(value, taken)), alone)


def resize(value: torch.Tensor, axis: int, size: int, name: str) -> torch.Tensor:
    """An example input cut or repeated along one axis, so that integers keep their range. name: for the message."""
    old = value.shape[axis]
    if old == size:
        return value
    if old == 0:
        raise CompileError(f"the example input '{name}' is empty along dimension {axis}")
    if size < old:
        return value.narrow(axis, 0, size).contiguous()
    index = torch.arange(size, device=value.device) % old
    return value.index_select(axis, index)

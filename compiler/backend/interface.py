"""How the arguments and results of a captured graph are those of its package.

argument w: f32[8, 16], strides (1, 8)   ->   input: w.permute(1, 0), which is dense
argument n: a size                       ->   a dimension of a tensor that has it, else of an empty input [n, 0]
result y: f32[4, 8], strides (1, 4)      ->   output f32[8, 4]; y is its permute(1, 0)
result t(w) of an argument w             ->   no output: a view of the argument
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

__all__ = ["Argument", "Constant", "Interface", "Number", "Output", "Size", "Source", "View", "permutation"]


@dataclass(frozen=True)
class Argument:
    """A tensor input: argument `index`, permuted by `order` when that makes it dense."""

    index: int
    order: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Size:
    """An input without elements, [n, 0], that brings argument `index`, a number n."""

    index: int


Source = Argument | Size


@dataclass(frozen=True)
class Output:
    """A result that is output `index` of the package, permuted by `order`.

    view: sizes, strides and offset of the result in the memory of that output; `copied`: in memory of its own.
    """

    index: int
    order: tuple[int, ...] | None = None
    view: View | None = None
    copied: bool = False


@dataclass(frozen=True)
class View:
    """Sizes, strides and offset, whole numbers or formulas, of a view of argument `index`; of none: the argument."""

    index: int
    size: tuple[Any, ...] = ()
    stride: tuple[Any, ...] = ()
    offset: Any = 0
    whole: bool = False


@dataclass(frozen=True)
class Number:
    """A result that is a formula over sizes."""

    formula: sympy.Expr


@dataclass(frozen=True)
class Constant:
    """A result that is always the same: None, a number."""

    value: Any


Result = Output | View | Number | Constant


@dataclass(frozen=True)
class Interface:
    """What a call does around the package.

    Attributes:
        arguments: how many the caller gives.
        sources: of the package's inputs, in order.
        results: in the order of the graph's.
        symbols: where each size symbol of a formula is found: in argument `index`, or in output `index - arguments`, at
            this dimension; None: the argument itself.
    """

    arguments: int
    sources: tuple[Source, ...]
    results: tuple[Result, ...]
    symbols: Mapping[sympy.Symbol, tuple[int, int | None]] = field(default_factory=dict)


def permutation(shape: Sequence[Any], stride: Sequence[Any], hint: Callable[[Any], int]) -> tuple[int, ...] | None:
    """The order of dimensions in which a tensor is dense, row-major; None when there is none.

    hint: the value that a size has at the moment. An order by present values is always a permutation of the tensor, and
    it is dense in every call whose strides have the same formulas.
    """
    sizes, steps = [hint(s) for s in shape], [hint(s) for s in stride]
    if 0 in sizes:
        return tuple(range(len(sizes)))
    order = sorted(range(len(sizes)), key=lambda d: (-steps[d] if sizes[d] != 1 else 0, d))
    order = _with_ones(sizes, order)
    expected = 1
    for d in reversed(order):
        if sizes[d] != 1 and steps[d] != expected:
            return None
        expected *= sizes[d]
    return tuple(order)


def _with_ones(sizes: Sequence[int], order: Sequence[int]) -> list[int]:
    """Dimensions of one element stand where they are in the shape as far as the others let them: they have no stride
    that counts, and a tensor that is row-major but for them is left as it is."""
    others = [d for d in order if sizes[d] != 1]
    if others == sorted(others):
        return list(range(len(sizes)))
    return [*(d for d in range(len(sizes)) if sizes[d] == 1), *others]


def is_identity(order: Sequence[int] | None) -> bool:
    """Whether a permutation leaves all in place; None is none."""
    return order is None or list(order) == list(range(len(order)))


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes another."""
    back = [0] * len(order)
    for place, d in enumerate(order):
        back[d] = place
    return tuple(back)


def hint(value: int | torch.SymInt) -> int:
    """A size at the moment of the trace."""
    if isinstance(value, int):
        return value
    found = value.node.hint
    return int(found) if found is not None else 2

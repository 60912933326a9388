"""Outputs that are places of elements (of topk, sort, argmax, ...): what counts is which elements lie there.

    places = [3, 0], wanted [0, 3], elements [0.5, 0.1, 0.2, 0.5]      ->      [0.5, 0.5] beside [0.5, 0.5]

Elements that are equal, or nearly equal before rounding, may stand in either order. A place is never outside of the
row, none stands twice where an order of elements is asked for, and a stable sort keeps equal elements in order.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from ..model.graph import ModelGraph
from .ties import bound

__all__ = ["Places", "picked", "place_outputs", "places_of"]

aten = torch.ops.aten

#: operator -> which of its results are places (None: the only one), whether none may stand twice, `stable` by its name
_OPERATORS: Mapping[Any, tuple[int | None, bool, bool]] = {
    aten.topk.default: (1, True, False),
    aten.sort.default: (1, True, False),
    aten.sort.stable: (1, True, True),
    aten.argsort.default: (None, True, False),
    aten.argsort.stable: (None, True, True),
    aten.kthvalue.default: (1, False, False),
    aten.median.dim: (1, False, False),
    aten.nanmedian.dim: (1, False, False),
    aten.mode.default: (1, False, False),
    aten.max.dim: (1, False, False),
    aten.min.dim: (1, False, False),
    aten.argmax.default: (None, False, False),
    aten.argmin.default: (None, False, False),
    aten.cummax.default: (1, False, False),
    aten.cummin.default: (1, False, False),
}


@dataclass(frozen=True)
class Places:
    """An output that is the places of elements.

    Attributes:
        output: its position.
        operand: the name of the graph's node whose elements they are.
        dim: along which; None: of all elements in a row.
        keepdim: whether the output has that dimension.
        distinct: no place stands twice in a row.
        stable: of equal elements the one with the lower place comes first.
    """

    output: int
    operand: str
    dim: int | None
    keepdim: bool
    distinct: bool
    stable: bool


def place_outputs(graph: ModelGraph) -> tuple[Places, ...]:
    """The outputs of the graph that are places, as an operator gives them."""
    results: Any = graph.module.graph.output_node().args[0]
    found = (places_of(i, node) for i, node in enumerate(results) if isinstance(node, Node))
    return tuple(places for places in found if places is not None)


def places_of(output: int, node: Node) -> Places | None:
    """The output's node as places; None: it is none."""
    part: int | None = None
    if node.target is operator.getitem:
        part, node = node.args[1], node.args[0]  # type: ignore[assignment]
    row = _OPERATORS.get(node.target)
    if row is None or row[0] != part:
        return None
    names = [a.name for a in node.target._schema.arguments]  # type: ignore[union-attr]
    arguments = dict(zip(names, bound(node.target, node.args, node.kwargs), strict=True))
    operand = arguments["self"]
    rank = operand.meta["val"].dim()
    if rank == 0:
        return None
    dim = arguments["dim"]
    _, distinct, stable = row
    along = distinct or "keepdim" not in arguments
    return Places(
        output, operand.name, None if dim is None else dim % rank, along or bool(arguments["keepdim"]), distinct,
        bool(stable and arguments["stable"]),
    )  # fmt: skip


def picked(places: Places, found: Tensor, operand: Tensor) -> Tensor:
    """The operand's elements at the places that were found, as float64; NaN at places that cannot be."""
    dim, elements = places.dim, operand
    if dim is None:
        dim, elements, found = 0, operand.reshape(-1), found.reshape(-1)
        if found.numel() != 1:
            return torch.full(found.shape, torch.nan, dtype=torch.float64)
    elif not places.keepdim:
        found = found.unsqueeze(dim)
    size = elements.shape[dim]
    if any(found.shape[d] != elements.shape[d] for d in range(elements.dim()) if d != dim) or not size:
        return torch.full(found.shape, torch.nan, dtype=torch.float64)
    right = (found >= 0) & (found < size)
    values = torch.gather(elements, dim, found.clamp(0, size - 1)).double()
    if places.distinct:
        right = right & ~_repeated(found, dim)
    if places.stable:
        right = right & ~_swapped(values, found, dim)
    values = values.masked_fill(~right, torch.nan)
    return values if places.keepdim or places.dim is None else values.squeeze(dim)


def _repeated(found: Tensor, dim: int) -> Tensor:
    """Rows in which a place stands twice."""
    order = found.sort(dim).values
    twice = (order.diff(dim=dim) == 0).any(dim, keepdim=True)
    return twice.expand(found.shape)


def _swapped(values: Tensor, found: Tensor, dim: int) -> Tensor:
    """Rows in which of two equal elements that stand together the later one comes first."""
    wrong = (values.diff(dim=dim) == 0) & (found.diff(dim=dim) < 0)
    return wrong.any(dim, keepdim=True).expand(found.shape)


def operands(places: Sequence[Places]) -> frozenset[str]:
    """The nodes whose values are needed."""
    return frozenset(p.operand for p in places)

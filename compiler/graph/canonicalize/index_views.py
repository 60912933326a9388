"""Views as substitutions: which index of the source each index of the result stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..node import Node
from ..patterns import arg, rank, shape
from ..sizes import expr, same
from .index_forms import Affine, unit


def number_of(value: Any) -> Any:
    """A Python number or the formula of a size node; None for a tensor."""
    if isinstance(value, Node):
        val = value.meta.get("val")
        return expr(val) if isinstance(val, (int, torch.SymInt)) else None
    return value


def _unsqueeze(node: Node, source: Node) -> list[Affine]:
    n = rank(node)
    new = node.args[1] % n
    return [unit(n, d) for d in range(n) if d != new]


def _select(node: Node, source: Node) -> list[Affine] | None:
    n, dim, index = rank(node), node.args[1] % rank(source), number_of(node.args[2])
    if isinstance(index, int) and index < 0:
        index = expr(index + expr(shape(source)[dim]))
    elif not isinstance(index, int) and not index.is_nonnegative:
        return None  # from the end, or perhaps so
    here = [unit(n, d) for d in range(n)]
    here.insert(dim, Affine((0,) * n, index))
    return here


def _slice(node: Node, source: Node) -> list[Affine] | None:
    n, dim = rank(node), arg(node, 1, default=0) % rank(source)
    start, step = number_of(arg(node, 2, default=0)), arg(node, 4, default=1)
    if start is None:
        start = 0
    if not isinstance(start, int) or not isinstance(step, int):
        return None
    base: Any = start if start >= 0 else expr(start + expr(shape(source)[dim]))
    here = [unit(n, d) for d in range(n)]
    here[dim] = Affine(tuple(s * step for s in here[dim].steps), base)
    return here


def _permute(node: Node, source: Node) -> list[Affine]:
    n = rank(node)
    order = [d % n for d in node.args[1]]
    return [unit(n, order.index(d)) for d in range(n)]


def _expand(node: Node, source: Node) -> list[Affine]:
    n, lead = rank(node), rank(node) - rank(source)
    zero = Affine((0,) * n)
    old, new = shape(source), shape(node)[lead:]
    return [unit(n, lead + d) if same(old[d], new[d]) else zero for d in range(rank(source))]


def _reshape(node: Node, source: Node) -> list[Affine] | None:
    """Only reshapes that insert or drop dimensions of size 1."""
    n = rank(node)
    kept = [d for d, size in enumerate(shape(node)) if expr(size) != 1]
    old = [d for d, size in enumerate(shape(source)) if expr(size) != 1]
    if [expr(shape(node)[d]) for d in kept] != [expr(shape(source)[d]) for d in old]:
        return None
    target = dict(zip(old, kept, strict=True))
    return [unit(n, target[d]) if d in target else Affine((0,) * n) for d in range(rank(source))]


#: view operator -> (node, source) -> an Affine of the result's indices for each dimension of the source
VIEWS: dict[str, Callable[[Node, Node], list[Affine] | None]] = {
    "unsqueeze": _unsqueeze, "select": _select, "slice": _slice, "permute": _permute, "expand": _expand,
    "reshape": _reshape, "squeeze": _reshape,
}  # fmt: skip

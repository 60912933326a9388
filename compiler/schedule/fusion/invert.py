"""The inverse of a store: from an index into a buffer to the loop variables of the iteration that wrote the element."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ...ir.index import ONE, ZERO, Atom, Index, Var, product
from ...ir.nodes import Store


def invert(store: Store, dims: Sequence[Var], place: Index) -> dict[Atom, Index] | None:
    """The loop values at which `store` writes element `place`; None unless the store fills its buffer, once.

    store b[i*12 + j], i:3, j:12        place 12*x + y   ->   {i: x, j: y}   (y < 12)
    """
    values = _inverted(store.index, store.buffer.size, tuple(dims), place)
    return None if values is None else dict(values)


@lru_cache(maxsize=65536)
def _inverted(index: Index, size: Index, dims: tuple[Var, ...], place: Index) -> tuple[tuple[Atom, Index], ...] | None:
    order = _digits(index, size, dims)
    if order is None:
        return None
    values: list[tuple[Atom, Index]] = []
    for position, (var, stride) in enumerate(order):
        quotient = place // stride
        values.append((var, quotient if position == 0 else quotient % var.extent))
    return tuple(values)


def digits(store: Store, dims: Sequence[Var]) -> tuple[tuple[Var, Index], ...] | None:
    """The loops as digits of the flat index, the slowest first, with their strides; None when they are not."""
    return _digits(store.index, store.buffer.size, tuple(dims))


@lru_cache(maxsize=65536)
def _digits(index: Index, size: Index, dims: tuple[Var, ...]) -> tuple[tuple[Var, Index], ...] | None:
    strides: list[tuple[Var, Index]] = []
    rest = index
    for var in dims:
        stride = index.coefficient(var)
        if stride is None or not stride.terms:
            return None
        strides.append((var, stride))
        rest = rest.without(var)
    if rest != ZERO or index.vars() - set(dims):
        return None
    ordered: list[tuple[Var, Index]] = []
    step = ONE
    left = list(strides)
    while left:
        found = next((s for s in left if s[1] == step), None)
        if found is None:
            return None
        left.remove(found)
        ordered.insert(0, found)
        step = step * found[0].extent
    return tuple(ordered) if step == size and product(v.extent for v in dims) == step else None

"""Primitives of the loops over the elements of a map, a reduction or a scan."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from ..expr import IndexValue, Load, substitute
from ..index import ONE, ZERO, Atom, Index, Var, as_index, exact_div, of, product
from ..lanes import direct
from ..nodes import Map, Reduce, Scan, Store
from .expressions import substituted

L = TypeVar("L", bound=Map | Reduce | Scan)
#: kept loops, or those of a reduction
Loops = Literal["dims", "rdims"]


def split(node: L, loop: Var, outer: Var, inner: Var) -> L:
    """A loop becomes two, the inner one of so many iterations.

        for i:12  y[i] = f(x[i])      ->      for o:3  for n:4  y[4*o + n] = f(x[4*o + n])

    Law: outer.extent * inner.extent is the extent of the loop. A reduced loop is split too; the order of a reduction
    over both stays what it was.

    Raises:
        ValueError: the extents do not fit, or the node has no such loop.
    """
    if outer.extent * inner.extent != loop.extent:
        raise ValueError(f"{loop.extent} iterations are not {outer.extent} times {inner.extent}")
    changed = substituted(node, {loop: of(outer) * inner.extent + of(inner)})
    return _with(changed, _field(node, loop), {loop: (outer, inner)})


def fuse(node: L, outer: Var, inner: Var, name: str | None = None) -> L | None:
    """Two adjacent loops become one, where every access walks through both as through one.

        for i:12  for j:64  y[i*64 + j] = f(x[i*64 + j])      ->      for j:768  y[j] = f(x[j])

    Law: in each index the stride of the outer loop is the stride of the inner one times its extent. None where it is
    not; `flatten` takes those, with a division in each access.
    """
    if not all(walks_as_one(index, outer, inner) for index in indices_of(node)):
        return None
    merged = Var(name or inner.name, outer.extent * inner.extent)
    changed = substituted(node, {outer: ZERO, inner: of(merged)})
    return _with(changed, _field(node, outer), {outer: (), inner: (merged,)})


def flatten(node: L, loops: Sequence[Var], flat: Var) -> L:
    """Adjacent loops become one, whatever the accesses are.

        for i:3  for j:5  y[i*8 + j] = f(i, j)      ->      for k:15  y[k // 5 * 8 + k % 5] = f(k // 5, k % 5)

    Law: flat.extent is the product of their extents, and the loops are neighbours in this order.
    """
    if flat.extent != product(v.extent for v in loops):
        raise ValueError(f"{flat.extent} iterations are not those of {len(loops)} loops")
    field = _field(node, loops[0])
    places: dict[Var, tuple[Var, ...]] = dict.fromkeys(loops, ())
    return _with(substituted(node, flattened(loops, flat)), field, {**places, loops[-1]: (flat,)})


def flattened(loops: Sequence[Var], flat: Var | None) -> dict[Atom, Index]:
    """Each loop as a digit of the flat one, the last loop fastest; nothing where there is no flat one."""
    return {} if flat is None else digits(loops, of(flat))


def digits(loops: Sequence[Var], number: Index) -> dict[Atom, Index]:
    """Each loop as a digit of a number below the product of their extents, the last loop fastest."""
    values: dict[Atom, Index] = {}
    step = ONE
    for i, v in reversed(list(enumerate(loops))):
        quotient = number // step
        extent = v.extent if v.extent != ZERO else ONE  # an empty loop never runs
        values[v] = quotient % extent if i else quotient
        step = step * extent
    return values


def reorder(node: L, dims: Sequence[Var]) -> L:
    """The kept loops in another order (loop interchange).

        for i  for j  y[i, j] = f(x[i, j])      ->      for j  for i  y[i, j] = f(x[i, j])

    Law: every element is written once (compiler/ir/injective.py) and no iteration reads what another one writes.

    Raises:
        ValueError: they are not the kept loops of the node.
    """
    if set(dims) != set(node.dims) or len(dims) != len(node.dims):
        raise ValueError("a new order has to have the same loops")
    return replace(node, dims=tuple(dims))


def reverse(node: L, loops: Collection[Var]) -> L:
    """Kept loops run from their ends.

        for i:n  y[n - 1 - i] = x[i]      ->      for i:n  y[i] = x[n - 1 - i]

    Law: that of `reorder`.
    """
    return substituted(node, {v: v.extent - 1 - of(v) for v in loops})


def unroll(node: Map, loop: Var) -> Map:
    """A short kept loop of a map becomes one store for each iteration.

        for c  for e:2  y[c*2 + e] = x[e*S + c]      ->      for c  y[c*2] = x[c], y[c*2 + 1] = x[S + c]

    Law: the extent is a number, and no iteration reads what another one writes.

    Raises:
        ValueError: the extent is not known.
    """
    count = loop.extent.constant
    if count is None:
        raise ValueError(f"a loop of {loop.extent} iterations cannot be unrolled")
    stores = tuple(at_iteration(s, loop, i) for s in node.stores for i in range(count))
    return replace(node, dims=tuple(v for v in node.dims if v is not loop), stores=stores)


def at_iteration(store: Store, loop: Var, iteration: int) -> Store:
    """What a store is in one iteration of a loop."""
    values: dict[Atom, Index] = {loop: as_index(iteration)}
    return Store(store.buffer, store.index.substitute(values), substitute(store.value, values))


def split_evenly(node: L, loop: Var, inner: int, names: tuple[str, str]) -> L | None:
    """`split` by a number; None where it does not divide the loop."""
    extent = exact_div(loop.extent, as_index(inner))
    if extent is None:
        return None
    return split(node, loop, Var(names[0], extent), Var(names[1], as_index(inner)))


def walks_as_one(index: Index, outer: Var, inner: Var) -> bool:
    """Whether the index walks through both loops as through one."""
    a, b = index.coefficient(outer), index.coefficient(inner)
    return a is not None and b is not None and a == b * inner.extent


def indices_of(node: Map | Reduce | Scan) -> Iterator[Index]:
    """The places of all accesses, and the indices that are values."""
    for store in node.stores:
        yield store.index
    for expression in node.expressions():
        for e in expression.walk():
            if isinstance(e, (Load, IndexValue)):
                yield direct(e.index)  # an index inside an indirect one is a load of its own


def _field(node: Map | Reduce | Scan, loop: Var) -> Loops:
    if loop in node.dims:
        return "dims"
    if isinstance(node, Reduce) and loop in node.rdims:
        return "rdims"
    raise ValueError(f"the node has no loop {loop.name}")


def _with(node: L, field: Loops, instead: dict[Var, tuple[Var, ...]]) -> L:
    """The node with other loops in the places of some."""
    loops = tuple(new for v in getattr(node, field) for new in instead.get(v, (v,)))
    if field == "dims":
        return replace(node, dims=loops)
    assert isinstance(node, Reduce)
    return replace(node, rdims=loops)

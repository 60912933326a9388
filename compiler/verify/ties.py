"""What torch leaves unspecified, decided: of equal elements the one at the lowest place comes first, as in packages.

torch sorts equal elements in an order that depends on the machine (of topk, sort without `stable`, kthvalue, median),
and which of several values that go to one place stays is open as well (index_put, scatter, index_copy). The reference
and the plain run take the order of places here, so that both agree with a package to the element; with `reverse` they
take the other order, which tells what of a result hangs on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["REVERSIBLE", "UNSPECIFIED", "bound", "settled", "sorted_indices"]

aten = torch.ops.aten


def sorted_indices(x: Tensor, dim: int, descending: bool, reverse: bool = False) -> tuple[Tensor, Tensor]:
    """Elements in order and their places; of equal ones the lowest place first (with `reverse` the highest)."""
    if not reverse:
        return aten.sort.stable(x, stable=True, dim=dim, descending=descending)
    values, places = aten.sort.stable(x.flip(dim), stable=True, dim=dim, descending=descending)
    return values, x.shape[dim] - 1 - places


def _sort(x: Tensor, dim: int, descending: bool, reverse: bool) -> Any:
    return sorted_indices(x, dim, descending, reverse)


def _argsort(x: Tensor, dim: int, descending: bool, reverse: bool) -> Any:
    return sorted_indices(x, dim, descending, reverse)[1]


def _topk(x: Tensor, k: int, dim: int, largest: bool, _: bool, reverse: bool) -> Any:
    return tuple(t.narrow(dim, 0, k) for t in sorted_indices(x, dim, largest, reverse))


def _kthvalue(x: Tensor, k: int, dim: int, keepdim: bool, reverse: bool) -> Any:
    picked = (t.narrow(dim, k - 1, 1) for t in sorted_indices(x, dim, False, reverse))
    return tuple(t if keepdim else t.squeeze(dim) for t in picked)


def _median(x: Tensor, dim: int, keepdim: bool, reverse: bool) -> Any:
    """The lower of the two in the middle, or the first NaN."""
    nans = _count_nan(x, dim)
    numbers = x.shape[dim] - nans
    at = torch.where(nans > 0, numbers, (x.shape[dim] - 1) // 2)
    return _picked(sorted_indices(x, dim, False, reverse), at, dim, keepdim)


def _nanmedian(x: Tensor, dim: int, keepdim: bool, reverse: bool) -> Any:
    at = ((x.shape[dim] - _count_nan(x, dim) - 1) // 2).clamp(min=0)
    return _picked(sorted_indices(x, dim, False, reverse), at, dim, keepdim)


def _count_nan(x: Tensor, dim: int) -> Tensor:
    return torch.isnan(x).sum(dim, keepdim=True)


def _picked(pair: tuple[Tensor, Tensor], at: Tensor, dim: int, keepdim: bool) -> Any:
    picked = (torch.gather(t, dim, at) for t in pair)
    return tuple(t if keepdim else t.squeeze(dim) for t in picked)


#: operators whose choice among equal elements torch leaves open
UNSPECIFIED: Mapping[Any, Callable[..., Any]] = {
    aten.topk.default: _topk,
    aten.sort.default: _sort,
    aten.argsort.default: _argsort,
    aten.kthvalue.default: _kthvalue,
    aten.median.dim: _median,
    aten.nanmedian.dim: _nanmedian,
}


def _scatter(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    source = source[tuple(slice(n) for n in index.shape)]
    return aten.scatter.src(x, dim, index.flip(dim), source.flip(dim)) if index.dim() else None


def _index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    return aten.index_copy.default(x, dim, index.flip(0), source.flip(dim)) if index.dim() and x.dim() else None


def _index_put(x: Tensor, indices: list[Tensor | None], values: Tensor, accumulate: bool, *_: Any) -> Any:
    given = [d for d, i in enumerate(indices) if i is not None]
    chosen = [i for i in indices if i is not None]
    adjacent = given and given == list(range(given[0], given[-1] + 1))
    if accumulate or not adjacent or any(i.dtype in (torch.bool, torch.uint8) for i in chosen):
        return None
    chosen = list(torch.broadcast_tensors(*chosen))
    rank = chosen[0].dim()
    if rank == 0:
        return None  # one place: there is no other order
    whole = values.expand(*x.shape[: given[0]], *chosen[0].shape, *x.shape[given[-1] + 1 :])
    flipped: list[Any] = [None] * given[0] + [i.flip(*range(rank)) for i in chosen]
    return aten.index_put.default(x, flipped, whole.flip(*range(given[0], given[0] + rank)))


#: writes through an index, in the other order: the first of several values for one place stays
_WRITES: Mapping[Any, Callable[..., Any]] = {
    aten.scatter.src: _scatter,
    aten.index_copy.default: _index_copy,
    aten.index_put.default: _index_put,
}


#: operators that have another result with `reverse`
REVERSIBLE = frozenset((*UNSPECIFIED, *_WRITES))


def bound(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """All arguments of an operator in the order of its schema, defaults included."""
    given = dict(enumerate(args))
    return [given.get(i, kwargs.get(a.name, a.default_value)) for i, a in enumerate(target._schema.arguments)]


def settled(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], reverse: bool = False) -> Any:
    """The operator's result with ties in the order of places, or against it; None: nothing of it is unspecified."""
    choose = UNSPECIFIED.get(target)
    if choose is not None:
        values = bound(target, args, kwargs)
        return choose(*values, reverse=reverse) if values[0].dim() else None
    write = _WRITES.get(target) if reverse else None
    return write(*bound(target, args, kwargs)) if write is not None else None

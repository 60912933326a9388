"""Indices that are tensors of one element, which torch.export would need as numbers.

x[i[0]]                   ->   x.select(0, i[0].item())
y[:, i[0]] = v            ->   y.index_put_([None, i[0]], v)
y[a : a + 2] = v          ->   y.index_put_([a + arange(2)], v), where v says that there are two
y[a : a + 1] = v          ->   y.index_put_([min(a, n - 1)], where(a < n, v, its old row)), where v is of one row
y[a:b] = 1                ->   y.copy_(where(a <= arange(n) < b, 1, y))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .masks import ask_count, is_one

__all__ = ["get_item", "set_item", "sum_of"]

aten = torch.ops.aten


@dataclass(frozen=True)
class _Slice:
    """start:stop of a dimension of n elements, as tensors between 0 and n; `single`: it was written as a : a + 1."""

    start: Any
    stop: Any
    n: Any
    single: bool = False


def sum_of(function: Any, x: Any, other: Any, **kwargs: Any) -> Any:
    """function(x, other), an addition, whose result remembers what it is the sum of if it may be a place."""
    result = function(x, other, **kwargs)
    if type(other) is int and isinstance(x, Tensor) and _is_place(x) and not kwargs:
        result.mycc_sum_of = (x, other, x._version, result._version)
    return result


def get_item(x: Tensor, index: Any) -> Tensor:
    """x[index] with numbers that the run finds in place of tensors, which torch before 2.13 wants to know."""
    items = list(index) if isinstance(index, tuple) else [index]
    if not any(map(_of_tensors, items)) or not all(map(_is_basic, items)):
        return x[index]
    part, _ = _taken(x, [_with_numbers(item) for item in items])
    return part


def _with_numbers(item: Any) -> Any:
    if isinstance(item, slice):
        return slice(_with_numbers(item.start), _with_numbers(item.stop), item.step)
    return item.item() if _is_place(item) else item


def set_item(x: Tensor, index: Any, value: Any) -> None:
    """x[index] = value, without a number from a tensor where that is possible; places out of range are errors of the
    run, and so are masks that do not choose as many elements as there are values."""
    items = list(index) if isinstance(index, tuple) else [index]
    if not any(map(_of_tensors, items)) or not all(map(_is_basic, items)):
        ask_count(x, items, value)
        x[index] = value
        return
    part, places = _taken(x, items)
    new = value.to(x.dtype) if isinstance(value, Tensor) else torch.full((), value, dtype=x.dtype)
    rank = part.dim() - sum(isinstance(p, Tensor) for p in places.values())
    while new.dim() > rank and is_one(new.shape[0]):
        new = new.squeeze(0)
    wide = _extents(part, places, new)
    if wide is None:
        x[index] = value
    elif (row := _single(places)) is not None and all(map(is_one, wide)):
        _put_row(part, row, places[row], new)
    elif all(map(is_one, wide)) and all(isinstance(p, _Slice) for p in places.values()):
        part.copy_(torch.where(_inside(part, places), new, part))
    else:
        _put(part, places, wide, new)


def _of_tensors(item: Any) -> bool:
    if isinstance(item, slice):
        return any(map(_is_place, (item.start, item.stop, item.step)))
    return _is_place(item)


def _is_place(item: Any) -> bool:
    return isinstance(item, Tensor) and item.dim() == 0 and not item.is_floating_point() and item.dtype != torch.bool


def _is_basic(item: Any) -> bool:
    if isinstance(item, slice) and _of_tensors(item):
        return item.step is None or (isinstance(item.step, int) and item.step == 1)
    known = isinstance(item, (int, torch.SymInt, slice)) and not isinstance(item, bool)
    return known or item is None or item is Ellipsis or _is_place(item)


def _taken(x: Tensor, items: Sequence[Any]) -> tuple[Tensor, dict[int, Tensor | _Slice]]:
    """The view that the items without tensors take, and what the others say of its dimensions."""
    used = sum(item is not None and item is not Ellipsis for item in items)
    places: dict[int, Tensor | _Slice] = {}
    part, d = x, 0
    for item in items:
        if item is None:
            part = part.unsqueeze(d)
        elif item is Ellipsis:
            d += x.dim() - used
            continue
        elif isinstance(item, (int, torch.SymInt)):
            part = part.select(d, item)
            continue
        elif _is_place(item):
            places[d] = item.to(torch.int64)
        elif _of_tensors(item):
            n = part.shape[d]
            places[d] = _Slice(_bound(item.start, 0, n), _bound(item.stop, n, n), n, _is_single(item))
        elif item != slice(None):
            part = aten.slice.Tensor(part, d, item.start, item.stop, 1 if item.step is None else item.step)
        d += 1
    return part, places


def _is_single(item: slice) -> bool:
    start, count, *versions = getattr(item.stop, "mycc_sum_of", (None, 0))
    if start is None or start is not item.start or count != 1:
        return False
    return versions == [start._version, item.stop._version]  # neither was written to since


def _bound(bound: Any, default: Any, n: Any) -> Tensor:
    """A bound of a slice as Python means it."""
    if bound is None:
        bound = default
    if not isinstance(bound, Tensor):
        bound = torch.scalar_tensor(bound, dtype=torch.int64)
    bound = bound.to(torch.int64)
    last = torch.scalar_tensor(n, dtype=torch.int64)
    return torch.minimum(torch.where(bound < 0, bound + last, bound).clamp(min=0), last)


def _extents(part: Tensor, places: dict[int, Tensor | _Slice], new: Tensor) -> list[int] | None:
    """How many elements the value has along each slice, 1 where it is repeated; None where its rank does not fit."""
    kept = [d for d in range(part.dim()) if not isinstance(places.get(d), Tensor)]
    if new.dim() > len(kept):
        return None
    sizes = [1] * (len(kept) - new.dim()) + list(new.shape)
    wide = [n for d, n in zip(kept, sizes, strict=True) if d in places]
    some = any(isinstance(p, Tensor) for p in places.values()) or not all(map(is_one, wide))
    return None if some and any(map(is_one, wide)) else wide


def _inside(part: Tensor, places: dict[int, Any]) -> Tensor:
    """Where an element of `part` lies in all slices."""
    inside = torch.ones((), dtype=torch.bool)
    for d, taken in places.items():
        i = torch.arange(taken.n).reshape([-1] + [1] * (part.dim() - 1 - d))
        inside = inside & (i >= taken.start) & (i < taken.stop)
    return inside


def _single(places: dict[int, Any]) -> int | None:
    """The dimension of the only place, where that is a slice of one row."""
    return next((d for d, p in places.items() if isinstance(p, _Slice) and p.single and len(places) == 1), None)


def _put_row(part: Tensor, d: int, taken: Any, new: Tensor) -> None:
    """Writes one row, or what it holds again where the slice is empty: at the end, or from -1 to 0."""
    at = taken.start.clamp(max=taken.n - 1).reshape([1])
    row = torch.where(taken.stop > taken.start, new, part.index_select(d, at))
    aten.index_put_.default(part, [*[None] * d, at], row)


def _put(part: Tensor, places: dict[int, Any], wide: Sequence[int], new: Tensor) -> None:
    """Writes at the places of all dimensions that have some; a slice's follow each other, as many as `new` has."""
    if max(places) - min(places) + 1 > len(places):  # apart from each other: index_put takes their dimensions first
        part, places, new = _places_first(part, places, new)
    slices = [d for d, taken in sorted(places.items()) if isinstance(taken, _Slice)]
    indices: list[Any] = [None] * min(places)
    for d, taken in sorted(places.items()):
        if isinstance(taken, _Slice):
            i = slices.index(d)
            torch._assert_async(
                (taken.stop - taken.start).clamp(min=0) == wide[i],
                f"a slice that is written to has not the size {wide[i]} of its value",
            )
            run = taken.start + torch.arange(wide[i])
            indices.append(run.reshape([-1] + [1] * (len(slices) - 1 - i)))
        else:
            indices.append(taken)
    aten.index_put_.default(part, indices, new)


def _places_first(part: Tensor, places: dict[int, Any], new: Tensor) -> tuple[Tensor, dict[int, Any], Tensor]:
    """The same with the dimensions of places in front."""
    order = sorted(places)
    kept = [d for d in range(part.dim()) if d not in places]
    shown = [d for d in range(part.dim()) if not isinstance(places.get(d), Tensor)]  # the dimensions of the value
    new = new.reshape([1] * (len(shown) - new.dim()) + list(new.shape))
    new = new.permute([shown.index(d) for d in (*order, *kept) if d in shown])
    return part.permute([*order, *kept]), {i: places[d] for i, d in enumerate(order)}, new

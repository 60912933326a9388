"""Special values for the inputs of a program: code does not depend on values, so that one package takes all.

A fill gives every input of a call other values in the same memory form. `mixed` walks the table of special values, each
input at another distance, so that every pair of values meets; `one` puts one of them among the values that were there;
`all` makes every element the same; `ties` leaves few different values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import torch

Fill = Callable[[int, torch.Tensor], torch.Tensor]  # number of the input, the input -> flat values of its dtype


@cache
def table(dtype: torch.dtype, large: bool = False) -> torch.Tensor:
    """The special values of a dtype; `large` ones of a float too, whose sums overflow."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_complex:
        parts = table(dtype.to_real(), large)
        return torch.complex(parts, parts.roll(3))
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        few = [0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1]
        return torch.tensor([*few, *([-1, -2] if info.min < 0 else [info.max // 2 + 1])], dtype=dtype)
    info = torch.finfo(dtype)
    values = [0.0, math.nan, math.inf, 1.0, info.tiny, _subnormal(dtype), 0.5, 1.5, 2.5, 2.0, 3.0]
    if large:
        values[4:4] = [info.max, 1e37 if info.max > 1e37 else 1e4]
    return torch.tensor([v for value in values for v in (value, -value)], dtype=dtype)


def _subnormal(dtype: torch.dtype) -> float:
    """The smallest positive number."""
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    return float(torch.tensor([1], dtype=bits).view(dtype))


def fills(inputs: Sequence[torch.Tensor], elementwise: bool) -> Iterator[tuple[str, Fill]]:
    """The fills for inputs like these, by name; of large numbers beside others only where none are added up."""
    kinds = {x.dtype for x in inputs if x.numel()}
    floats = [d for d in kinds if d.is_floating_point or d.is_complex]
    several = sum(bool(x.numel()) and x.dtype != torch.bool for x in inputs) > 1
    for large in (False, True) if elementwise and floats else (False,) if kinds else ():
        longest = max(len(table(d, large)) for d in kinds)
        for shift in range(longest if several else 4):
            yield f"mixed{' large' * large} {shift}", lambda i, x, n=shift, large=large: _walk(x, (i + 1) * n, large)
    for value in ("nan", "inf", "-inf", "max", "-max", "-0", "0", "subnormal") if floats else ():
        yield f"one {value}", lambda i, x, v=value: _one(x, i, v)
        yield f"all {value}", lambda i, x, v=value: _all(x, v)
    if len(floats) < len(kinds):
        for value in ("min", "max", "0", "-1"):
            yield f"one integer {value}", lambda i, x, v=value: _one_integer(x, i, v)
            yield f"all integers {value}", lambda i, x, v=value: _all_integers(x, v)
    for step in (1, 3) if kinds else ():
        yield f"ties {step}", lambda i, x, step=step: _ties(x, step)


def _walk(x: torch.Tensor, first: int, large: bool) -> torch.Tensor:
    values = table(x.dtype, large)
    return values[(torch.arange(x.numel()) + first) % len(values)]


def _float(dtype: torch.dtype, name: str) -> torch.Tensor:
    real = dtype.to_real() if dtype.is_complex else dtype
    info = torch.finfo(real)
    named = {"max": info.max, "-max": -info.max, "subnormal": _subnormal(real)}
    return torch.tensor(named.get(name, float(name) if name not in named else 0.0), dtype=real).to(dtype)


def _is_float(x: torch.Tensor) -> bool:
    return x.is_floating_point() or x.is_complex()


def _one(x: torch.Tensor, number: int, name: str) -> torch.Tensor:
    values = x.flatten().clone()
    if _is_float(x) and len(values):
        values[(7 * number + len(values) // 2) % len(values)] = _float(x.dtype, name)
    return values


def _all(x: torch.Tensor, name: str) -> torch.Tensor:
    return _float(x.dtype, name).expand(x.numel()) if _is_float(x) else x.flatten()


def _integer(dtype: torch.dtype, name: str) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.tensor(name in ("max", "-1"))
    info = torch.iinfo(dtype)
    number = {"min": info.min, "max": info.max, "-1": -1 if info.min < 0 else info.max // 2}.get(name, 0)
    return torch.tensor(number, dtype=dtype)


def _one_integer(x: torch.Tensor, number: int, name: str) -> torch.Tensor:
    values = x.flatten().clone()
    if not _is_float(x) and len(values):
        values[(7 * number + len(values) // 2) % len(values)] = _integer(x.dtype, name)
    return values


def _all_integers(x: torch.Tensor, name: str) -> torch.Tensor:
    return x.flatten() if _is_float(x) else _integer(x.dtype, name).expand(x.numel())


def _ties(x: torch.Tensor, step: int) -> torch.Tensor:
    """Few different values, all of them small: duplicates, also among indices."""
    return (torch.arange(x.numel()) // step % (2 if x.dtype in (torch.bool, torch.int64) else 3)).to(x.dtype)


def filled(inputs: Sequence[torch.Tensor], fill: Fill) -> tuple[torch.Tensor, ...] | None:
    """Inputs of the same form with a fill's values; None when they are what they were."""
    found = tuple(_filled(x, fill(i, x.detach())) for i, x in enumerate(inputs))
    same = (torch.equal(a.nan_to_num(7.5), b.nan_to_num(7.5)) for a, b in zip(found, inputs, strict=True))
    return None if all(same) else found


def _filled(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    made = duplicate(x)
    if made.is_conj() or made.is_neg() or not made.numel():
        return made
    if overlaps(made):  # the elements of its memory instead
        memory = _memory(made)
        memory.copy_(values.repeat(-(-memory.numel() // values.numel()))[: memory.numel()])
    else:
        made.copy_(values.reshape(made.shape))
    return made


def duplicate(x: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides."""
    if not x.numel() or x.is_conj() or x.is_neg() or x.is_contiguous():
        return x.detach().clone()
    return _memory(x.detach()).clone().as_strided(x.shape, x.stride(), 0)


def _memory(x: torch.Tensor) -> torch.Tensor:
    """From the first of a tensor's elements to the last, as they lie."""
    length = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return x.as_strided((length,), (1,), x.storage_offset())


def overlaps(x: torch.Tensor) -> bool:
    """Whether elements of a tensor share memory (expanded, or windows)."""
    reach = 1
    for stride, size in sorted((s, n) for s, n in zip(x.stride(), x.shape, strict=True) if n > 1):
        if stride < reach:
            return True
        reach = stride * (size - 1) + 1
    return False

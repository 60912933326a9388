"""Guards of torch.export that hold for all sizes, though torch cannot prove them.

Not all values of n = L['x'].size()[1] in the specified range n <= 512 satisfy the generated guard
min(64*L['x'].size()[1], 192*L['x'].size()[1]) == (64*L['x'].size()[1]).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["guards_hold"]

_SIZE = re.compile(r"L\['\w+'\](?:\[(?P<index>\d+)\])?\.size\(\)\[(?P<axis>\d+)\]")
_GUARD = re.compile(r"^\s*- Not all values of .* satisfy the generated guard (?P<guard>.*?)\.?$", re.MULTILINE)
_COMPLAINT = re.compile(r"^\s*- ", re.MULTILINE)
#: what a guard consists of, once its sizes have names
_ARITHMETIC = re.compile(r"(?:\bs\d+\b|\bmin\b|\bmax\b|\band\b|\bor\b|\bnot\b|[\d\s()+*/%,<>=!-])+")
#: sizes, or combinations of several, that are tried
MOST = 1 << 16


def guards_hold(message: str, dims: Sequence[Mapping[int, Any]]) -> bool:
    """Whether all that an error "Constraints violated" complains of are guards that hold for every size in the ranges.

    dims: by tensor input and dimension, torch.export.Dim with its least and largest value.
    """
    guards = [match["guard"] for match in _GUARD.finditer(message)]
    return bool(guards) and len(guards) == len(_COMPLAINT.findall(message)) and all(_holds(g, dims) for g in guards)


def _holds(guard: str, dims: Sequence[Mapping[int, Any]]) -> bool:
    sizes = {match[0]: match for match in _SIZE.finditer(guard)}
    ranges = [_range(dims[int(m["index"] or 0)].get(int(m["axis"]))) for m in sizes.values()]
    for i, size in enumerate(sizes):
        guard = guard.replace(size, f"s{i}")
    if not _ARITHMETIC.fullmatch(guard) or not 0 < math.prod(map(len, ranges)) <= MOST:
        return False
    code = compile(guard, "guard", "eval")
    known = {"__builtins__": {}, "min": min, "max": max}
    try:
        return all(
            eval(code, known | {f"s{i}": value for i, value in enumerate(values)})
            for values in itertools.product(*ranges)
        )
    except ArithmeticError:
        return False


def _range(dim: Any) -> range:
    """The sizes of a dimension; none where they are not bounded."""
    least, most = getattr(dim, "min", None), getattr(dim, "max", None)
    return range(least, most + 1) if isinstance(least, int) and isinstance(most, int) else range(0)

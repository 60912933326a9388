"""view(dtype): the bits of elements as elements of another type, of the same size, of parts, or of several together.

The machines are little endian: the first of the parts of an element are its lowest bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...ir.dtypes import DTYPES, from_torch
from ...ir.expr import Call, Expr, IndexValue, cast
from ...ir.index import Index
from ..core.builder import call, compare, number
from ..core.context import Context
from ..core.registry import row
from ..core.tensor import Tensor

#: types whose elements are not the integers that their bits are: name -> the rows of ir/ops.py, there and back
_FLOATS = {name: (f"bits_of_{name}", f"{name}_of_bits") for name in ("f64", "f32", "f16", "bf16")}


@row("aten.view.dtype")
def view_dtype(ctx: Context, x: Tensor, dtype: torch.dtype) -> Tensor:
    """As elements of a smaller type each element of the last dimension is several, as ones of a larger type fewer."""
    target = from_torch(dtype)
    old, new = DTYPES[x.dtype].size, DTYPES[target].size
    word = "i64" if max(old, new) == 8 else "i32"

    def bits(indices: Sequence[Index]) -> Expr:
        return cast(_bits(x.at(indices), x.dtype), word)

    def element(indices: list[Index]) -> Expr:
        if old == new:
            return _element(bits(indices), target)
        *rows, last = indices
        if old > new:
            parts = old // new
            place = cast(IndexValue((last % parts) * (8 * new)), word)
            return _element(call("shift_right", bits([*rows, last // parts]), place), target)
        return _element(_joined([bits([*rows, last * (new // old) + k]) for k in range(new // old)], old, word), target)

    return ctx.builder.map(ctx.result_shape(), target, element, x.memory_order() if old == new else None)


def _bits(e: Expr, dtype: str) -> Expr:
    """The bits of an element as an integer, whose upper bits are of no matter where it is wider."""
    there, _ = _FLOATS.get(dtype, ("", ""))
    if not there:
        return cast(e, "i32") if dtype == "bool" else e
    return _call_to("i64" if dtype == "f64" else "i32", there, e)


def _element(word: Expr, dtype: str) -> Expr:
    """An element of which the lowest bits of `word` are the bits."""
    _, back = _FLOATS.get(dtype, ("", ""))
    if dtype == "bool":
        return compare("ne", call("bit_and", word, number(255, word.dtype)), number(0, word.dtype))
    if not back:
        return cast(word, dtype)
    return _call_to(DTYPES[dtype].compute, back, cast(word, "i64" if dtype == "f64" else "i32"))


def _joined(words: Sequence[Expr], size: int, word: str) -> Expr:
    """The integer that the low `size` bytes of each are parts of, the first the lowest."""
    mask = number((1 << 8 * size) - 1, "i64") if size < 4 or word == "i64" else None
    parts = [w if mask is None else call("bit_and", w, cast(mask, word)) for w in words]
    whole = parts[0]
    for k, part in enumerate(parts[1:], 1):
        whole = call("bit_or", whole, call("shift_left", part, number(8 * size * k, word)))
    return whole


def _call_to(dtype: str, op: str, e: Expr) -> Expr:
    return Call(op, (e,), dtype)

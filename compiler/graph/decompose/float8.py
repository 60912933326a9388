"""Pass: numbers of 8 bits as the bytes that they are; arithmetic reads them as float32 and rounds its results to them.

Meanings: float8_e4m3fn has 4 bits of exponent (bias 7), 3 of mantissa, no infinity and one NaN of each sign;
float8_e5m2 is the upper half of a float16. Ties go to even. Numbers too large become infinity in the second, in the
first what this torch makes of them: the largest number from 2.13 on, NaN before.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..node import Node
from ..patterns import op
from ..work import Work
from .decompose import insert, trace

aten = torch.ops.aten

#: operators that move elements, whatever these are
_MOVES = frozenset(
    """
    view reshape _unsafe_view permute transpose t expand squeeze unsqueeze slice select split split_with_sizes chunk
    unbind repeat narrow unflatten flatten flip roll cat stack index index_select gather clone alias detach contiguous
    as_strided slice_scatter select_scatter copy tensor_split unfold embedding empty_like empty
    """.split()
)

#: operators whose lowering takes the bytes: model/operators/quantised.py
_OF_BYTES = frozenset({"mycc.float8_mm.default", "mycc.grouped_mm.default"})


@dataclass(frozen=True)
class Format:
    """An element type of 8 bits: bits of its mantissa, bias of its exponent.

    limit: the bits of the float32 from whose magnitude on a number is too large; nan: the byte, without its sign, of
    NaN; infinite: the first byte that is no number.
    """

    mantissa: int
    bias: int
    limit: int
    nan: int
    infinite: int


FORMATS = {
    torch.float8_e4m3fn: Format(3, 7, 0x43E80001, 0x7F, 0x7F),
    torch.float8_e5m2: Format(2, 15, 0x47800000, 0x7F, 0x7C),
}


def float8_as_bytes(work: Work) -> dict[str, int]:
    """y = _to_copy(x, float8)       ->   y = rounded(x) as uint8
       z = permute(y)                ->   the same on bytes
       w = _to_copy(z, bf16)         ->   w = _to_copy(number(z), bf16)
       y = float8_mm(z, w)           ->   the same of bytes

    Inputs and outputs stay what they are. Needs KEPT_ONLY; establishes BYTES: no tensor inside has a type of 8 bits.
    """
    count = 0
    for node in work.nodes():
        if node.op == "call_function" and node.target is not operator.getitem and _touches(node):
            if str(node.target) in _OF_BYTES:
                continue
            count += _rewritten(work, node)
    for node in work.graph.find_nodes(op="get_attr"):
        tensor = work.constants.get(str(node.target))
        if tensor is not None and tensor.dtype in FORMATS:
            work.constants[str(node.target)] = tensor.detach().view(torch.uint8)
            work.origins.pop(str(node.target), None)
            node.meta["val"] = _bytes(node.meta["val"])
    return {"float8 as bytes": count} if count else {}


#: the byte that torch makes of numbers that are too large
_TOO_LARGE = {dtype: int(torch.full([1], torch.inf).to(dtype).view(torch.uint8).item()) for dtype in FORMATS}


def is_float8(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in FORMATS


def _formats(node: Node) -> dict[Node, torch.dtype]:
    """The types of 8 bits that the operands of a node had."""
    found = {n: n.meta.get("mycc_float8") or getattr(n.meta.get("val"), "dtype", None) for n in node.all_input_nodes}
    return {n: dtype for n, dtype in found.items() if dtype in FORMATS and n.op != "placeholder"}


def _touches(node: Node) -> bool:
    made = [v for v in pytree.tree_leaves(node.meta.get("val")) if is_float8(v)]
    return bool(made or _formats(node))


def _rewritten(work: Work, node: Node) -> bool:
    formats = _formats(node)
    made = next((v.dtype for v in pytree.tree_leaves(node.meta["val"]) if is_float8(v)), None)
    if op(node) in _MOVES and node.target is not aten.view.dtype and len({*formats.values(), made}) == 1:
        _on_bytes(node, made)
        return True
    inputs = list(dict.fromkeys(node.all_input_nodes))
    values = [_bytes(n.meta["val"]) if n in formats else n.meta["val"] for n in inputs]

    def run(*given: Tensor) -> Any:
        env = dict(zip(inputs, given, strict=True))
        if node.target is aten.view.dtype:
            (x,) = given
            return x if made in FORMATS and x.dtype == torch.uint8 else x.view(_byte_type(node.args[1]))
        env = {n: number(x, formats[n]) if n in formats else x for n, x in env.items()}
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: env[n])
        args, kwargs = pytree.tree_map(
            lambda v: torch.float32 if v in FORMATS else v, (args, kwargs), is_leaf=_is_dtype
        )
        result = node.target(*args, **kwargs)
        return pytree.tree_map(lambda v: rounded(v, made) if isinstance(v, Tensor) and made else v, result)

    body = trace(work, node, run, values)
    if body is None:
        return False
    result = insert(work, node, body, inputs)
    if made is not None:
        result.meta["mycc_float8"] = made
    work.replace(node, result)
    return True


def _is_dtype(value: Any) -> bool:
    return isinstance(value, torch.dtype)


def _wide_type(value: Any) -> Any:
    return torch.float32 if _is_dtype(value) and value in FORMATS else value


def _byte_type(dtype: torch.dtype) -> torch.dtype:
    return torch.uint8 if dtype in FORMATS else dtype


def _on_bytes(node: Node, dtype: Any) -> None:
    """A node that moves elements, and the parts of its result, as one of bytes."""
    node.meta["val"] = pytree.tree_map(_bytes, node.meta["val"])
    node.meta["mycc_float8"] = dtype
    node.kwargs = {k: _byte_type(v) if _is_dtype(v) else v for k, v in node.kwargs.items()}
    for user in node.users:
        if user.target is operator.getitem:
            user.meta["val"] = _bytes(user.meta["val"])
            user.meta["mycc_float8"] = dtype


def _bytes(value: Any) -> Any:
    """A fake tensor of the same form, of bytes."""
    if not is_float8(value):
        return value
    with value.fake_mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=torch.uint8)


# numbers and bytes ---------------------------------------------------------------------------------------------------
def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The bytes of the numbers of 8 bits next to x."""
    form, too_large = FORMATS[dtype], _TOO_LARGE[dtype]
    cut = 23 - form.mantissa
    bits = x.to(torch.float32).view(torch.int32)
    magnitude = bits & 0x7FFFFFFF
    # the least normal number's exponent; of smaller ones a sum with this power of 2 leaves the digits that count
    least, shifted = (128 - form.bias) << 23, (127 - form.bias + cut + 1) << 23
    small = (magnitude.view(torch.float32) + _power(shifted)).view(torch.int32) - shifted
    odd = (magnitude >> cut) & 1
    normal = (magnitude + (((form.bias - 127) << 23) + (1 << (cut - 1)) - 1) + odd) >> cut
    found = torch.where(magnitude < least, small, normal)
    found = torch.where(magnitude >= form.limit, too_large, found)
    found = torch.where(magnitude > 0x7F800000, form.nan, found)
    return (found | ((bits >> 24) & 0x80)).to(torch.uint8)


def _power(bits: int) -> float:
    """The power of 2 whose float32 has these bits."""
    return float(2.0 ** ((bits >> 23) - 127))


def number(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The float32 values of bytes."""
    form = FORMATS[dtype]
    bits = x.to(torch.int32)
    magnitude, cut = bits & 0x7F, 23 - form.mantissa
    normal = ((magnitude << cut) + ((127 - form.bias) << 23)).view(torch.float32)
    small = magnitude.to(torch.float32) * 2.0 ** (1 - form.bias - form.mantissa)
    value = torch.where(magnitude < (1 << form.mantissa), small, normal)
    odd = torch.where(magnitude == form.infinite, torch.inf if form.infinite < form.nan else torch.nan, torch.nan)
    value = torch.where(magnitude >= form.infinite, odd, value)
    return (value.view(torch.int32) | ((bits & 0x80) << 24)).view(torch.float32)

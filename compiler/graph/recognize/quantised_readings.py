"""How graphs say that integers stand for floats: the operators of torchao, of PT2E and mycc's own, in one form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch

from ..node import Node
from ..patterns import arg, is_constant, is_op, shape


@dataclass(frozen=True)
class Reading:
    """(values - zero) * scale, a scale and a zero point for each block of values.

    Attributes:
        values: integers.
        block: the sizes of a block, a number for each dimension; -1: the whole dimension.
        scale: a number, or a tensor with one for each block.
        zero: likewise; None: 0.
        low, high: the least and the greatest value that may occur.
        written: by the model's own arithmetic, whose scales may be anything.
    """

    values: Node
    block: tuple[int, ...]
    scale: Node | float
    zero: Node | int | None
    low: int
    high: int
    written: bool = False

    @property
    def whole(self) -> bool:
        """Whether one scale holds for all values."""
        sizes = shape(self.values)
        return all(b in (-1, n) for b, n in zip(self.block, sizes, strict=True))

    @property
    def by_rows(self) -> bool:
        """Whether each row (all but the last dimension) has a scale of its own."""
        *lead, last = self.block
        return all(b == 1 for b in lead) and last in (-1, shape(self.values)[-1])


def reading(node: Any) -> Reading | None:
    """What a node reads as floats; None when it does something else."""
    target = str(node.target) if isinstance(node, Node) and node.op == "call_function" else ""
    found = _READERS[target](node) if target in _READERS else None
    return found if found is not None and isinstance(found.values, Node) else None


def _affine(node: Node) -> Reading | None:
    values, block, scale, zero, _, low, high = (arg(node, i, name) for i, name in enumerate(_AFFINE))
    if low is None or high is None:
        bounds = torch.iinfo(values.meta["val"].dtype)
        low, high = bounds.min, bounds.max
    if int(low) != low or int(high) != high:
        return None
    sizes = shape(values)
    whole = tuple(-1 if b == n and n != 1 else int(b) for b, n in zip(block, sizes, strict=True))
    return Reading(values, whole, scale, zero, int(low), int(high))


_AFFINE = ("input", "block_size", "scale", "zero_point", "input_dtype", "quant_min", "quant_max")


def _tensor(node: Node) -> Reading:
    values, scale, zero, low, high = node.args[:5]
    return Reading(values, (-1,) * len(shape(values)), scale, zero, low, high)


def _channels(node: Node) -> Reading:
    values, scales, zeros, axis, low, high = node.args[:6]
    dims = len(shape(values))
    return Reading(values, tuple(1 if d == axis % dims else -1 for d in range(dims)), scales, zeros, low, high)


def _tokens(node: Node) -> Reading:
    values, scales, zeros, low, high = node.args[:5]
    return Reading(values, (*(1 for _ in shape(values)[1:]), -1), scales, zeros, low, high)


def _groups(node: Node) -> Reading:
    values, scales, zeros, low, high = node.args[:5]
    return Reading(values, (1, int(arg(node, 6, "group_size", 128))), scales, zeros, low, high)


def _own(node: Node) -> Reading:
    values, scales, zeros, bits, group = node.args[:5]
    half = 1 << (bits - 1)
    inner = shape(values)[1:]
    block = (1, group) if len(inner) == 1 else (1, *(-1 for _ in inner))
    return Reading(values, block, scales, zeros, -half, half - 1)


def _own_tensor(node: Node) -> Reading:
    values, scale, zero = node.args[:3]
    return Reading(values, (-1,) * len(shape(values)), scale, zero, -128, 127)


def _written(node: Node) -> Reading | None:
    """mul(w as floats, s), written by hand: w a constant of int8, s a number or a constant [n, 1, ..., 1]."""
    values, scale = (node.args[0], node.args[1]) if _is_int8(node.args[0]) else (node.args[1], node.args[0])
    if not _is_int8(values) or not node.meta["val"].dtype.is_floating_point:
        return None
    source = values if is_constant(values) else values.args[0]
    sizes = shape(source)
    if isinstance(scale, Node):
        if not is_constant(scale) or not scale.meta["val"].dtype.is_floating_point or len(sizes) < 2:
            return None
        found = shape(scale)
        if found not in ((), (1,)) and found != (sizes[0], *(1 for _ in sizes[1:])):
            return None
        block = (1 if len(found) > 1 else -1, *(-1 for _ in sizes[1:]))
    elif isinstance(scale, int | float) and not isinstance(scale, bool):
        block = tuple(-1 for _ in sizes)
    else:
        return None
    return Reading(source, block, scale, None, -128, 127, written=True)


def _is_int8(node: Any) -> TypeGuard[Node]:
    """Whether a node is a constant of int8, or one made floats."""
    source = node if is_constant(node) else widened_integers(node)
    return is_constant(source) and source.meta["val"].dtype == torch.int8


_READERS: dict[str, Callable[[Node], Reading | None]] = {
    "torchao.dequantize_affine.default": _affine,
    "quantized_decomposed.dequantize_per_tensor.default": _tensor,
    "quantized_decomposed.dequantize_per_tensor.tensor": _tensor,
    "quantized_decomposed.dequantize_per_channel.default": _channels,
    "quantized_decomposed.dequantize_per_token.default": _tokens,
    "quantized_decomposed.dequantize_per_channel_group.default": _groups,
    "aten.mul.Tensor": _written,
    "mycc.dequantize.default": _own,
    "mycc.dequantize_tensor.default": _own_tensor,
}


def untransposed(node: Any) -> tuple[Any, bool]:
    """The matrix behind transpositions of it, and whether their number is odd."""
    odd = False
    while is_op(node, "t", "permute", "transpose") and len(shape(node)) == 2:
        if not is_op(node, "t") and sorted(d % 2 for d in _dims(node)) != [0, 1]:
            break
        odd ^= is_op(node, "t", "transpose") or [d % 2 for d in _dims(node)] == [1, 0]
        node = node.args[0]
    return node, odd


def _dims(node: Node) -> list[int]:
    return list(node.args[1]) if is_op(node, "permute") else list(node.args[1:3])


def widened_integers(node: Any) -> Node | None:
    """The constant of 8-bit integers that a node converts to floats."""
    if not is_op(node, "_to_copy") or not node.meta["val"].dtype.is_floating_point:
        return None
    source = node.args[0]
    return source if isinstance(source, Node) and source.meta["val"].dtype == torch.int8 else None


def constant_integers(node: Any) -> bool:
    """Whether a node is a constant of integers, or of float8_e4m3fn."""
    dtype = node.meta["val"].dtype
    return is_constant(node) and (not dtype.is_floating_point or dtype == torch.float8_e4m3fn)

"""Pass: convolutions of quantised tensors with quantised weights, in integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ...model.operators import dequantize, quantised  # noqa: F401  # defines the operators
from ..chains import chain_of, value_behind
from ..node import Node
from ..patterns import arg, is_constant, is_op, only_user, rank, shape, zero_padding
from ..work import Work, aten
from .quantised_readings import Reading, reading
from .quantised_weights import LONGEST, QuantisedWeight, quantised_weight

mycc = torch.ops.mycc


@dataclass(frozen=True)
class _Convolution:
    """A convolution's tensors, and a number for each dimension of its windows; padding: before it and behind it."""

    x: Node
    weight: Node
    bias: Any
    stride: list[int]
    padding: list[tuple[int, int]]
    dilation: list[int]
    groups: int


def quantised_convs(work: Work) -> dict[str, int]:
    """conv2d(dequantize(q, t, y), dequantize(w, s), b)   ->   add(mul(int_conv(q, w, y) as f32, s t), b)
       int_conv(quantize(pad(x), t, y), w, y)            ->   int_conv(quantize(x, t, y), w, y), with more padding

    One scale and zero point for all of q, a scale for each output of w, whose zero points are 0. Needs NORMAL.
    """
    count = 0
    for node in work.nodes():
        conv = _convolution(node)
        result = None if conv is None else _in_integers(work, node, conv)
        if result is not None:
            work.replace(node, result)
            count += 1
    return {"quantised convolutions": count} if count else {}


def _convolution(node: Node) -> _Convolution | None:
    if is_op(node, "conv1d", "conv2d", "conv3d"):
        bias, stride, padding, dilation, groups = (arg(node, i, name, value) for i, (name, value) in _ARGUMENTS.items())
    elif is_op(node, "convolution") and not node.args[6]:
        bias, stride, padding, dilation, _, _, groups = node.args[2:9]
    else:
        return None
    dims = rank(node) - 2
    if rank(node.args[0]) != rank(node.args[1]):
        return None
    stride, dilation = (_for_each(n, dims) for n in (stride, dilation))
    if isinstance(padding, str):
        kernel = [int(n) for n in shape(node.args[1])[2:]]
        sides = [_named(padding, d * (k - 1)) for d, k in zip(dilation, kernel, strict=True)]
    else:
        sides = [(n, n) for n in _for_each(padding, dims)]
    return _Convolution(node.args[0], node.args[1], bias, stride, sides, dilation, groups)


def _named(padding: str, lost: int) -> tuple[int, int]:
    """Zeros before and behind a dimension by the name of the padding. lost: what windows take off its size."""
    return (0, 0) if padding == "valid" else (lost // 2, lost - lost // 2)


def _for_each(sizes: Any, dims: int) -> list[int]:
    """A number for each dimension."""
    return [sizes] * dims if isinstance(sizes, int) else list(sizes) * (dims if len(sizes) == 1 else 1)


_ARGUMENTS: dict[int, tuple[str, Any]] = {
    2: ("bias", None), 3: ("stride", 1), 4: ("padding", 0), 5: ("dilation", 1), 6: ("groups", 1),
}  # fmt: skip


def _in_integers(work: Work, node: Node, conv: _Convolution) -> Node | None:
    read = reading(conv.x)
    if read is None or not read.whole or is_constant(read.values) or not _is_8_bits(read):
        return None
    weight = quantised_weight(work, conv.weight)
    if weight is None or weight.scales is None or not weight.by_rows or weight.is_float8 or weight.columns > LONGEST:
        return None
    values, padding = _unpadded(work, node, read, conv)
    args = (values, weight.node(work, node), read.zero or 0, conv.stride, padding, conv.dilation, conv.groups)
    y = work.call(mycc.int_conv.default, args, like=node, covers=[node])
    y = work.call(aten._to_copy.default, (y,), {"dtype": torch.float32}, like=node)
    y = _scaled(work, node, y, weight, read)
    if conv.bias is not None:
        y = work.call(aten.add.Tensor, (y, _channels(work, node, conv.bias)), like=node)
    if node.meta["val"].dtype != torch.float32:
        y = work.call(aten._to_copy.default, (y,), {"dtype": node.meta["val"].dtype}, like=node)
    return y


def _is_8_bits(read: Reading) -> bool:
    """Whether values have 8 bits, as has their zero point, a number: padding is made of it, and sums fit into int32."""
    dtype = read.values.meta["val"].dtype
    if dtype not in (torch.int8, torch.uint8) or isinstance(read.zero, Node):
        return False
    return torch.iinfo(dtype).min <= (read.zero or 0) <= torch.iinfo(dtype).max


#: operators that take each element alone: with numbers beside the tensor, all that activations are rounded by
_ELEMENTWISE = {
    "aten.mul.Tensor", "aten.div.Tensor", "aten.round.default", "aten.add.Tensor", "aten.sub.Tensor",
    "aten.clamp.default", "aten.clamp_min.default", "aten.clamp_max.default", "aten._to_copy.default",
    "quantized_decomposed.quantize_per_tensor.default",
}  # fmt: skip


def _unpadded(work: Work, node: Node, read: Reading, conv: _Convolution) -> tuple[Node, list[int]]:
    """What a convolution reads, and its padding: zeros around floats are the zero point around their integers."""
    chain = _rounding(read.values)
    pad = chain[0].args[0] if chain else None
    sides = zero_padding(pad) if is_op(pad, "pad", "constant_pad_nd") else None
    zero, dims = read.zero if isinstance(read.zero, int) else 0, rank(node) - 2
    if pad is None or sides is None or min(sides, default=0) < 0 or len(sides) > 2 * dims:
        return read.values, _numbers(conv.padding)
    if not only_user(read.values, conv.x) or value_behind(chain, 0.0, pad.meta["val"].dtype) != zero:
        return read.values, _numbers(conv.padding)
    inner = chain_of(work, chain, pad.args[0], pad)
    total = list(conv.padding)
    for d in range(len(sides) // 2):
        before, behind = total[-1 - d]
        total[-1 - d] = (before + sides[2 * d], behind + sides[2 * d + 1])
    return inner, _numbers(total)


def _rounding(values: Node) -> list[Node]:
    """The operators that round floats to these integers, the first one first: all that have no other reader."""
    chain: list[Node] = []
    node: Any = values
    while rounds(node):
        chain.insert(0, node)
        node = node.args[0] if isinstance(node.args[0], Node) and only_user(node.args[0], node) else None
    return chain


def rounds(node: Any) -> bool:
    """Whether an operator may be one of those that round floats to integers: with numbers beside a tensor."""
    if not isinstance(node, Node) or str(node.target) not in _ELEMENTWISE:
        return False
    return not any(isinstance(x, Node) for x in (*node.args[1:], *node.kwargs.values()))


def _numbers(sides: list[tuple[int, int]]) -> list[int]:
    """Padding as the operator has it: a number for each dimension where all sides are even, else two."""
    even = all(before == behind for before, behind in sides)
    return [before for before, _ in sides] if even else [n for both in sides for n in both]


def _scaled(work: Work, node: Node, y: Node, weight: QuantisedWeight, read: Reading) -> Node:
    """y times the scale of each of its channels."""
    assert weight.scales is not None, "asked before"
    scales = weight.scales.double().reshape(-1, *(1 for _ in range(rank(node) - 2)))
    if isinstance(read.scale, Node):
        y = work.call(aten.mul.Tensor, (y, work.constant(f"{node.name}_scales", scales.float(), like=node)), like=node)
        whole = work.call(aten._to_copy.default, (read.scale,), {"dtype": torch.float32}, like=node)
        return work.call(aten.mul.Tensor, (y, work.call(aten.reshape.default, (whole, []), like=node)), like=node)
    both = work.constant(f"{node.name}_scales", (scales * read.scale).float(), like=node)
    return work.call(aten.mul.Tensor, (y, both), like=node)


def _channels(work: Work, node: Node, bias: Node) -> Node:
    ones = [1] * (rank(node) - 2)
    return work.call(aten.reshape.default, (bias, [bias.meta["val"].shape[0], *ones]), like=node)

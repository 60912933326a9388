"""The weights of quantised layers: constants of integers, with what they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from ....runtime.errors import CompileError
from ...model.operators.quantised import packed
from ...model.source_lines import module_of, place_of
from ..fold.constants import constant_value
from ..node import Node
from ..work import Work
from .quantised_readings import Reading, constant_integers, reading, untransposed, widened_integers

#: longer sums of products of two numbers of 8 bits, one of them less its zero point, may not fit into 32 bits
LONGEST = (2**31 - 1) // (255 * 128)


#: types of scales -> the integers of as many bits, and the bits of infinity, which those of NaN are above
_BITS = {
    torch.float16: (torch.int16, 0x7C00),
    torch.bfloat16: (torch.int16, 0x7F80),
    torch.float32: (torch.int32, 0x7F800000),
}


@dataclass(frozen=True)
class QuantisedWeight:
    """Integers [N, K] (of a convolution [N, C, ...]) that stand for (values - zeros) * scales.

    Attributes:
        name: of the constant.
        values: int8, what the model has stored, or that moved to around 0; or float8_e4m3fn.
        source: the constant's node where the values are what it holds.
        scales, zeros: [N, groups of K]; zeros None: all 0. scales None: they are not in the weight.
        bits: 8, or 4 when no value is outside of -8 .. 7 by the model's own word.
        parts: the tensors whose rows the values are, one after another.
    """

    name: str
    values: torch.Tensor
    source: Node | None
    scales: torch.Tensor | None
    zeros: torch.Tensor | None
    bits: int
    parts: tuple[torch.Tensor, ...] = ()

    @property
    def rows(self) -> int:
        return self.values.shape[0]

    @property
    def columns(self) -> int:
        return self.values[0].numel()

    @property
    def group(self) -> int:
        """Numbers of a row that share a scale."""
        return self.columns // (1 if self.scales is None else self.scales.shape[1])

    @property
    def is_float8(self) -> bool:
        """Whether the values are numbers of 8 bits, and no integers."""
        return self.values.is_floating_point()

    @property
    def by_rows(self) -> bool:
        """Whether each row has one scale, and no zero point."""
        return self.zeros is None and self.group == self.columns

    def node(self, work: Work, like: Node) -> Node:
        """A constant of the values, in front of `like`."""
        return self.source or work.constant(self.name, self.values, like=like)

    def halves(self, work: Work, like: Node) -> Node:
        """A constant of values of 4 bits, two in a byte; the same one for all who read them."""
        halves = work.made.once("halves", self.parts or (self.values,), lambda: packed(self.values))
        return work.shared_constant(f"{self.name}_halves", halves, like=like)

    def scale_node(self, work: Work, like: Node) -> Node:
        """A constant of the scales, likewise."""
        assert self.scales is not None, "weights of floats have none"
        return work.shared_constant(f"{self.name}_scales", self.scales.contiguous(), like=like)

    def zero_node(self, work: Work, like: Node) -> Node | None:
        """A constant of the zero points, in 8 bits where they fit, likewise; None: all are 0."""
        return None if self.zeros is None else work.shared_constant(f"{self.name}_zeros", _small(self.zeros), like=like)


def _small(zeros: torch.Tensor) -> torch.Tensor:
    if zeros.is_floating_point():
        return zeros.float().contiguous()
    fits = int(zeros.min()) >= -128 and int(zeros.max()) <= 127
    return zeros.to(torch.int8 if fits else torch.int32).contiguous()


def quantised_weight(work: Work, node: Any, transposed: bool = False) -> QuantisedWeight | None:
    """The weight that a node reads as floats [N, K] ([K, N] when `transposed`); None when it is no such constant.

    Raises:
        CompileError: a scale is zero, NaN or infinite.
    """
    found, odd = untransposed(node)
    inner = widened_integers(found)
    if inner is not None:
        inner, odd_inside = untransposed(inner)
        if (odd ^ odd_inside) != transposed or not constant_integers(inner):
            return None
        return QuantisedWeight(str(inner.target), work.constants[str(inner.target)], inner, None, None, 8)
    read = reading(found) if odd == transposed else None
    if read is None or not constant_integers(read.values):
        return None
    return _of_reading(work, read, node)


def _of_reading(work: Work, read: Reading, node: Node) -> QuantisedWeight | None:
    values = work.constants[str(read.values.target)]
    scales, zeros = (_by_groups(work, part, read.block, values) for part in (read.scale, read.zero))
    if scales is None or values.numel() == 0 or (zeros is None and read.zero is not None):
        return None
    if not work.made.once("scales", (scales,), lambda: _are_scales(scales)):
        if read.written:
            return None
        _refuse(scales, read.values, node)
    if values.is_floating_point():
        return QuantisedWeight(str(read.values.target), values, read.values, scales, zeros, 8)
    numbers = [t for t in (values, scales, zeros) if t is not None]
    moved = work.made.once(("zero", read.low, read.high), numbers, lambda: _around_zero(values, scales, zeros, read))
    if moved is None:
        return None
    own, zeros, bits = moved
    zeros = None if zeros is None or not bool(zeros.any()) else zeros
    source = read.values if own is values else None
    return QuantisedWeight(str(read.values.target), own, source, scales, zeros, bits)


def _by_groups(
    work: Work, part: Node | float | None, block: tuple[int, ...], values: torch.Tensor
) -> torch.Tensor | None:
    """Scales or zero points as [N, groups]; None when they are computed, or lie in another way."""
    rows, *inner = values.shape
    if part is None:
        return None
    sizes = [n if b == -1 else b for b, n in zip(block, values.shape, strict=True)]
    if any(n % b for b, n in zip(sizes, values.shape, strict=True)) or sizes[2:] != inner[1:]:
        return None
    counts = [n // b for b, n in zip(sizes, values.shape, strict=True)]
    if isinstance(part, Node):
        known = constant_value(work, part)
        if known is None:
            return None
        own = known
    else:
        own = torch.tensor([part])
    if own.numel() != counts[0] * counts[1]:
        return None
    own = own.reshape(counts[:2])
    return own if rows == counts[0] else own.repeat_interleave(rows // counts[0], 0)


def _around_zero(
    values: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None, read: Reading
) -> tuple[torch.Tensor, torch.Tensor | None, int] | None:
    """The values as int8, with the zero points that belong to them, and their bits; None: they need more than 8."""
    low, high, bits = read.low, read.high, 4 if read.high - read.low < 16 else 8
    if high - low > 255:
        return None
    half = 1 << (bits - 1)
    move = 0 if -half <= low and high < half else low + half
    if move or values.dtype != torch.int8:
        values = (values.to(torch.int32) - move).to(torch.int8)
    if move:
        zeros = torch.zeros(scales.shape, dtype=torch.int32) if zeros is None else zeros
        zeros = (zeros if zeros.is_floating_point() else zeros.to(torch.int32)) - move
    if bits == 4 and (int(values.min()) < -8 or int(values.max()) > 7):
        bits = 8
    return values, zeros, bits


def _are_scales(scales: torch.Tensor) -> bool:
    bits = _BITS.get(scales.dtype)
    if bits is None or not scales.is_contiguous() or not scales.numel():
        return bool((torch.isfinite(scales) & (scales != 0)).all())
    integer, infinite = bits
    least, most = (scales.detach().view(integer) & torch.iinfo(integer).max).aminmax()
    return int(least) > 0 and int(most) < infinite


def _refuse(scales: torch.Tensor, values: Node, node: Node) -> NoReturn:
    wrong = int((~torch.isfinite(scales) | (scales == 0)).sum())
    where, name = place_of(node), module_of(node) or values.target
    raise CompileError(
        f"the quantised weight '{name}' has {wrong} of {scales.numel()} scales that are zero, NaN or infinite",
        details=[where] if where else [],
        hint="Quantise this layer again: a row of zeros wants a scale of 1.",
    )

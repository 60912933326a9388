"""A quantised weight as every reader of checkpoints gives it, and what the readers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...runtime.errors import CompileError

__all__ = ["PackedWeight", "by_groups", "centred", "nibbles", "refused"]

Activations = Literal["floats", "rows", "tensor"]


@dataclass(frozen=True)
class PackedWeight:
    """A matrix [N, K] of (values - zeros) * scales.

    Attributes:
        values: int8 (bits 8, or 4: -8 .. 7) or float8_e4m3fn, [N, K].
        scales: [N, groups], a float dtype. zeros: the same shape, any dtype; None: all 0.
        group: values of a row that share a scale: K / groups.
        order: the columns of x that the columns of the values belong to, int64 [K]; None: as they are.
        activations: "rows": each row of x becomes int8 when the model runs; "tensor": by one scale that is known.
        range: of "tensor", the scale and the zero point.
    """

    values: Tensor
    scales: Tensor
    zeros: Tensor | None
    bits: int
    group: int
    order: Tensor | None = None
    activations: Activations = "floats"
    range: tuple[float, int] | None = None

    @property
    def format(self) -> str:
        """For a person: "4 bits by groups of 128"."""
        kind = "float8" if self.values.is_floating_point() else f"{self.bits} bits"
        return kind if self.group == self.values.shape[1] else f"{kind} by groups of {self.group}"


def refused(layer: str, reason: str, hint: str | None = None) -> CompileError:
    """The error that says why a layer's weight is not taken."""
    return CompileError(f"the quantised weight of '{layer}' cannot be read: {reason}", hint=hint)


def nibbles(packed: Tensor, bits: int) -> Tensor:
    """The unsigned numbers of `bits` bits (4 or 8) that lie in int32 [..., n], the lowest bits first, as uint8
    [..., n * 32 / bits]."""
    parts = packed.contiguous().view(torch.uint8)
    return parts if bits == 8 else torch.stack((parts & 15, parts >> 4), -1).flatten(-2)


def centred(values: Tensor, bits: int) -> Tensor:
    """uint8 numbers of `bits` bits (4 or 8), less half their range, as int8."""
    return (values ^ 128).view(torch.int8) if bits == 8 else values.view(torch.int8) - 8


def by_groups(layer: str, groups: Tensor, count: int) -> tuple[Tensor | None, int]:
    """The order of columns that puts those of a group side by side, and the group's size.

    Args:
        groups: the group of each column, [K]. count: of groups.

    Raises:
        CompileError: the groups are not of one size.
    """
    columns = groups.numel()
    sizes = torch.bincount(groups.long(), minlength=count) if int(groups.min()) >= 0 else torch.zeros(1)
    if sizes.numel() != count or bool((sizes != columns // count).any()):
        raise refused(layer, f"the {columns} columns do not lie in {count} groups of one size")
    order = torch.argsort(groups.long(), stable=True)
    return (None if bool((order == torch.arange(columns)).all()) else order), columns // count

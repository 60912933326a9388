"""Weights as integers with scales: the nearest that a format has."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..number_formats import NumberFormat

#: float16 holds scales between these with all its bits
_LEAST, _MOST = 2.0**-14, 65504.0


@dataclass(frozen=True)
class IntegerWeight:
    """values * scales.

    Attributes:
        values: int8, [N, K].
        scales: [N, groups], float16 where that holds them, else float32.
    """

    values: Tensor
    scales: Tensor
    bits: int
    group: int

    @property
    def nbytes(self) -> int:
        """In a package."""
        return self.values.numel() * self.bits // 8 + self.scales.nbytes


def to_integers(matrix: Tensor, form: NumberFormat) -> IntegerWeight:
    """The rows of a matrix [N, K] of floats in a format.

    Of 8 bits a row's scale makes its largest element 127. Of 4 bits a group's scale makes its largest element -8, and
    is then fitted twice to the group by least squares, each time with the integers that belong to it.
    """
    if form.bits == 8:
        return _rows(matrix.float())
    return _groups(matrix.float(), form.group)


def _rows(w: Tensor) -> IntegerWeight:
    most = w.abs().amax(1, True)
    scales = torch.where(most == 0, torch.ones_like(most), most / 127)
    values = torch.round(w / scales).clamp_(-127, 127).to(torch.int8)
    return IntegerWeight(values, scales, 8, w.shape[1])


def _groups(w: Tensor, group: int) -> IntegerWeight:
    parts = w.reshape(w.shape[0], -1, group)
    far = parts.gather(-1, parts.abs().argmax(-1, True))
    scales = torch.where(far == 0, torch.ones_like(far), far / -8)
    for _ in range(2):
        values = _nearest(parts, scales)
        norm = (values * values).sum(-1, True)
        fitted = (values * parts).sum(-1, True) / norm
        scales = torch.where((norm > 0) & (fitted != 0), fitted, scales)
    if bool(((scales.abs() >= _LEAST) & (scales.abs() <= _MOST)).all()):
        scales = scales.half()
    values = _nearest(parts, scales.float()).to(torch.int8).reshape(w.shape)
    return IntegerWeight(values, scales.squeeze(-1).contiguous(), 4, group)


def _nearest(parts: Tensor, scales: Tensor) -> Tensor:
    return torch.round(parts / scales).clamp_(-8, 7)

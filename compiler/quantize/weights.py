"""Weights as integers, or numbers of float8, with scales: the nearest that a format has."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..model.pieces import on_pieces
from ..number_formats import NumberFormat

#: float16 holds scales between these with all its bits
_LEAST, _MOST = 2.0**-14, 65504.0
#: the largest float8_e4m3fn
FLOAT8_MOST = 448.0


@dataclass(frozen=True)
class IntegerWeight:
    """values * scales.

    Attributes:
        values: int8 or float8_e4m3fn, [N, K].
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

    Of float8 a row's scale makes its largest element 448, of 8 bits 127. Of 4 bits a group's scale makes its largest
    element -8, and is then fitted twice to the group by least squares, each time with the integers that belong to it.
    """
    if form.float8:
        return _float8(matrix.float())
    if form.bits == 8:
        return _rows(matrix.float())
    return _groups(matrix.float(), form.group)


def _rows(w: Tensor) -> IntegerWeight:
    most = w.abs().amax(1, True)
    scales = torch.where(most == 0, torch.ones_like(most), most / 127)
    values = torch.round(w / scales).clamp_(-127, 127).to(torch.int8)
    return IntegerWeight(values, scales, 8, w.shape[1])


def _float8(w: Tensor) -> IntegerWeight:
    most = w.abs().amax(1, True)
    scales = torch.where(most == 0, torch.ones_like(most), most / FLOAT8_MOST)
    values = (w / scales).clamp_(-FLOAT8_MOST, FLOAT8_MOST).to(torch.float8_e4m3fn)
    return IntegerWeight(values, scales, 8, w.shape[1])


def _groups(w: Tensor, group: int) -> IntegerWeight:
    values = torch.empty(w.shape, dtype=torch.int8)
    scales = torch.empty(w.shape[0], w.shape[1] // group)

    def fit(own: slice) -> None:
        scales[own] = _fitted(w[own].reshape(-1, group)).reshape(-1, scales.shape[1])

    def place(own: slice) -> None:
        nearest = _nearest(w[own].reshape(-1, group), scales[own].float().reshape(-1, 1))
        values[own] = nearest.reshape(-1, w.shape[1])

    on_pieces(w, fit)
    if bool(((scales.abs() >= _LEAST) & (scales.abs() <= _MOST)).all()):
        scales = scales.half()
    on_pieces(w, place)
    return IntegerWeight(values, scales, 4, group)


def _fitted(parts: Tensor) -> Tensor:
    """The scale of each row of parts, [rows, 1]."""
    most, least = parts.amax(1, True), parts.amin(1, True)
    far = torch.where(most > -least, most, least)
    scales = torch.where(far == 0, 1.0, far / -8)
    for _ in range(2):
        values = _nearest(parts, scales)
        product = (values * parts).sum(1, True)
        norm = values.square_().sum(1, True)
        scales = torch.where((norm > 0) & (product != 0), product / norm, scales)
    return scales


def _nearest(parts: Tensor, scales: Tensor) -> Tensor:
    return (parts / scales).round_().clamp_(-8, 7)

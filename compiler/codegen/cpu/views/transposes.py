"""Blocks of rows that kernels transpose when they load and when they store them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TransposeIn:
    """`valid` of `rows` rows of `length` elements at `source` become `length` rows of `tile`.

    followed: whether more of them lie behind.
    """

    rows: int
    tile: str
    source: str
    pitch: str
    length: str
    valid: str
    followed: str
    form: str = "transpose_in"


@dataclass(frozen=True)
class TransposeOut:
    """`length` rows of `tile` become `rows` rows in `flat`; the `valid` first go to `target`."""

    rows: int
    flat: str
    tile: str
    length: str
    target: str
    valid: str
    nontemporal: str  # whether they are written by non-temporal stores
    form: str = "transpose_out"

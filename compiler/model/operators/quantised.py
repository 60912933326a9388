"""Operators of quantised models, in the forms that graph passes write and the lowering takes.

Weights are integers with N rows (outputs) and K columns (inputs). `bits` says how they lie:

    8   int8 [N, K]
    4   uint8 [N, ceil(K / 2)]: value k is in the low half of byte k / 2 where k is even, else in the high half, plus 8
        (so the values are -8 .. 7, and the byte 0x88 is two zeros); or int8 [N, K] of -8 .. 7, which the package
        stores in four bits all the same

A group is `group` values of k side by side; it divides K. scales is [N, K / group] (float32, float16 or bfloat16),
zeros has the same shape (any integer or float dtype; None: 0). A weight stands for (w - zero) * scale.

    aten._int_mm(a, b)           a int8 [M, K], b int8 [K, N] -> int32 [M, N], exact (modulo 2^32) for all values
    mycc.mixed_mm(x, w)          x float [..., K], w int8 [N, K] -> float32 [..., N]: w is widened exactly and sums are
                                 float32; the caller multiplies by the scales of the rows of w
    mycc.grouped_mm(x, w, ...)   x float [..., K] -> float32 [..., N]: x @ ((w - zeros) * scales)^T
    mycc.grouped_int_mm(a, ...)  a int8 [..., K] -> float32 [..., N]: the sum over groups of scales[n, g] times the
                                 exact integer sum of (a - a_zeros) * (w - zeros) over the group; the caller multiplies
                                 by the scales of a. a_zeros: [..., 1] of the rows of a, any integer dtype; None: 0.
                                 zeros that are floats make it float arithmetic from there on
    mycc.int_conv(x, w, x_zero, stride, padding, dilation, groups)
                                 x int8 or uint8 [B, C, ...], w int8 [N, C / groups, ...] -> int32 [B, N, ...]: a
                                 convolution of x - x_zero, exact; outside of x is 0, which stands for x_zero: a value
                                 of the type of x. padding: a number for each dimension, or two (before it, behind it)

    mycc.float8_mm(a, w, fast)   w float8_e4m3fn [N, K]; a of floats or float8_e4m3fn [..., K] -> float32 [..., N]: the
                                 numbers are widened exactly and sums are float32; the caller multiplies by the scales
                                 of the rows of a and of w. fast: where both are float8, tensor cores may sum with the
                                 fewer digits that they have for these, as torch's use_fast_accum. Behind the pass
                                 float8-as-bytes, numbers of 8 bits are the uint8 that they lie in

grouped_mm takes weights of float8_e4m3fn as well, with 8 bits.

Results are float64 where x is (and then so is the arithmetic): the reference of the verification. To be read in panels
the weights and their scales and zeros are constants of the graph; computed ones are taken too, by loops.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .own import own_operator

#: types of zeros that kernels read; others are computed in loops
ZEROS = (torch.int8, torch.uint8, torch.float32, torch.float16, torch.bfloat16)

#: values that are added to weights of 4 bits, for their halves of bytes
NIBBLE_ZERO = 8


def numbers(t: Tensor) -> Tensor:
    """What a tensor of floats, of float8_e4m3fn or of its bytes stands for."""
    return t.view(torch.float8_e4m3fn) if t.dtype == torch.uint8 else t


def unpacked(w: Tensor, bits: int, columns: int) -> Tensor:
    """The weights as int8 [N, columns]; those of float8 as they are."""
    if bits == 8 or w.dtype == torch.int8:
        return numbers(w)
    return raised_halves(w, columns).view(torch.int8) - NIBBLE_ZERO


def raised_halves(w: Tensor, columns: int) -> Tensor:
    """Weights of 4 bits, however they lie, as uint8 [N, columns] of the values plus 8."""
    if w.dtype == torch.int8:
        return (w + NIBBLE_ZERO).view(torch.uint8)
    return torch.stack((w & 15, w >> 4), -1).flatten(-2)[..., :columns].contiguous()


def packed(values: Tensor) -> Tensor:
    """Weights -8 .. 7, [N, K], as uint8 [N, ceil(K / 2)]."""
    shifted = (values.to(torch.int8) + NIBBLE_ZERO).view(torch.uint8)
    if shifted.shape[-1] % 2:
        shifted = torch.nn.functional.pad(shifted, (0, 1), value=NIBBLE_ZERO)
    return shifted[..., 0::2] | (shifted[..., 1::2] << 4)


def dequantised(
    w: Tensor, scales: Tensor, zeros: Tensor | None, bits: int, group: int, columns: int, dtype: torch.dtype
) -> Tensor:
    """The weights that they stand for, [N, columns], computed in `dtype`."""
    values = unpacked(w, bits, columns).to(dtype, copy=True).unflatten(-1, (-1, group))  # one copy: they may be large
    if zeros is not None:
        values -= zeros.to(dtype).unsqueeze(-1)
    values *= scales.to(dtype).unsqueeze(-1)
    return values.flatten(-2)


def _wide(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _sums(x: Tensor, rows: int) -> Tensor:
    return x.new_empty([*x.shape[:-1], rows], dtype=_wide(x))


@own_operator("mixed_mm(Tensor x, Tensor w) -> Tensor", lambda x, w: _sums(x, w.shape[0]))
def mixed_mm(x: Tensor, w: Tensor) -> Tensor:
    """x float [..., K] times w int8 [N, K], [..., N] in float32."""
    return x.to(_wide(x)) @ w.to(_wide(x)).t()


@own_operator(
    "grouped_mm(Tensor x, Tensor w, Tensor scales, Tensor? zeros, int bits, int group) -> Tensor",
    lambda x, w, *_: _sums(x, w.shape[0]),
)
def grouped_mm(x: Tensor, w: Tensor, scales: Tensor, zeros: Tensor | None, bits: int, group: int) -> Tensor:
    """x float [..., K] times what the weights stand for, [..., N] in float32."""
    return x.to(_wide(x)) @ dequantised(w, scales, zeros, bits, group, x.shape[-1], _wide(x)).t()


@own_operator("float8_mm(Tensor a, Tensor w, bool fast=False) -> Tensor", lambda a, w, *_: _sums(a, w.shape[0]))
def float8_mm(a: Tensor, w: Tensor, fast: bool = False) -> Tensor:
    """a [..., K] of floats or float8_e4m3fn times w float8_e4m3fn [N, K], [..., N] in float32. fast: see above."""
    left = numbers(a)
    inner = _wide(a) if left is a and a.element_size() > 1 else torch.float64
    return (left.to(inner) @ numbers(w).to(inner).t()).to(_wide(a))


def _fake_int_sums(a: Tensor, a_zeros: Tensor | None, w: Tensor, scales: Tensor, *_: object) -> Tensor:
    return a.new_empty([*a.shape[:-1], w.shape[0]], dtype=_wide(scales))


@own_operator(
    "grouped_int_mm(Tensor a, Tensor? a_zeros, Tensor w, Tensor scales, Tensor? zeros, int bits, int group) -> Tensor",
    _fake_int_sums,
)
def grouped_int_mm(
    a: Tensor, a_zeros: Tensor | None, w: Tensor, scales: Tensor, zeros: Tensor | None, bits: int, group: int
) -> Tensor:
    """Sums of groups of integer products, scaled, [..., N] in float32 (float64 with such scales)."""
    wide = _wide(scales)
    left = a.double() if a_zeros is None else a.double() - a_zeros.double()
    values = unpacked(w, bits, a.shape[-1]).double().unflatten(-1, (-1, group))
    if zeros is not None:
        values = values - zeros.double().unsqueeze(-1)
    sums = torch.einsum("...gk,ngk->...ng", left.unflatten(-1, (-1, group)), values)  # exact in float64
    return (sums.to(wide) * scales.to(wide)).sum(-1)


def _padded(x: Tensor, padding: list[int], dims: int) -> tuple[Tensor, list[int]]:
    """x with zeros around it where its sides differ, and the padding that is left."""
    if len(padding) == dims:
        return x, padding
    sides = [n for d in reversed(range(dims)) for n in padding[2 * d : 2 * d + 2]]
    return torch.nn.functional.pad(x, sides), [0] * dims


def _fake_conv(
    x: Tensor, w: Tensor, _: int, stride: list[int], padding: list[int], dilation: list[int], groups: int
) -> Tensor:
    dims, zeros = len(stride), [0] * len(stride)
    if any(isinstance(n, torch.SymInt) for n in x.shape[2:]):  # torch's own function would fix them
        each = len(padding) // dims
        around = [padding[d * each] + padding[d * each + each - 1] for d in range(dims)]
        windows = zip(x.shape[2:], w.shape[2:], around, stride, dilation, strict=True)
        sizes = [(n + zeros_of - d * (k - 1) - 1) // s + 1 for n, k, zeros_of, s, d in windows]
        return x.new_empty([x.shape[0], w.shape[0], *sizes], dtype=torch.int32)
    x, padding = _padded(x.float(), padding, dims)
    return torch.convolution(x, w.float(), None, stride, padding, dilation, False, zeros, groups).to(torch.int32)


@own_operator(
    "int_conv(Tensor x, Tensor w, int x_zero, SymInt[] stride, SymInt[] padding, SymInt[] dilation, int groups)"
    " -> Tensor",
    _fake_conv,
)
def int_conv(
    x: Tensor, w: Tensor, x_zero: int, stride: list[int], padding: list[int], dilation: list[int], groups: int
) -> Tensor:
    """The convolution of x - x_zero with w, exact in int32."""
    zeros = [0] * len(stride)
    moved, padding = _padded(x.double() - x_zero, padding, len(stride))
    found = torch.convolution(moved, w.double(), None, stride, padding, dilation, False, zeros, groups)
    return found.round().to(torch.int32)

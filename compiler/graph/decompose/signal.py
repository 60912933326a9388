"""Short-time Fourier transforms in terms of torch.fft, windows and overlapping sums."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .definitions import NoDecomposition, definition

aten = torch.ops.aten

_FORWARD, _ORTHO, _BACKWARD = 0, 1, 2  # how torch's kernels are told to scale
_MOST_SLICES = 16  # windows over one place that are added one after the other


def _window(window: Tensor | None, length: int, n_fft: int, like: Tensor) -> Tensor:
    """The window in the middle of n_fft values, zeros around it."""
    dtype = like.dtype.to_real() if like.dtype.is_complex else like.dtype
    if window is None:
        window = torch.ones([length], dtype=dtype)
    left = (n_fft - length) // 2
    return window if length == n_fft else torch.constant_pad_nd(window, [left, n_fft - length - left])


@definition("aten.stft")
def stft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """Frames of n_fft values, a hop apart, times the window, transformed: [.., frequencies, frames].

    Without a word on the form of the result, complex frames or windows give complex numbers (torch wants it said for
    real ones).
    """
    if align_to_window:
        raise NoDecomposition("frames that are aligned to the window")
    hop, length = hop_length or n_fft // 4, win_length or n_fft
    frames = aten.unfold.default(x, x.dim() - 1, n_fft, hop) * _window(window, length, n_fft, x)
    scale = _ORTHO if normalized else _FORWARD
    window_is_complex = window is not None and window.is_complex()
    is_complex = x.is_complex() or window_is_complex
    half = not is_complex if onesided is None else onesided
    if frames.is_complex():
        result = aten._fft_c2c.default(frames, [frames.dim() - 1], scale, True)
    else:
        result = aten._fft_r2c.default(frames, [frames.dim() - 1], scale, half)
    result = result.transpose(-1, -2)
    as_complex = is_complex if return_complex is None else return_complex
    return result if as_complex else torch.view_as_real(result)


@definition("aten.stft.center")
def centered_stft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    if center:
        sides = [n_fft // 2] * 2
        x = torch.nn.functional.pad(x.reshape([1, -1, x.shape[-1]]), sides, pad_mode).reshape([*x.shape[:-1], -1])
    return stft(x, n_fft, hop_length, win_length, window, normalized, onesided, return_complex, align_to_window)


@definition("aten.istft")
def istft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> Tensor:
    """Frames transformed back, times the window, added where they overlap, over the sum of the squared windows."""
    hop, width = hop_length or n_fft // 4, win_length or n_fft
    frames = x.transpose(-1, -2)
    scale = _ORTHO if normalized else _BACKWARD
    axis = frames.dim() - 1
    if return_complex:
        values = aten._fft_c2c.default(frames, [axis], scale, False)
    else:
        if onesided is False:
            frames = frames.narrow(-1, 0, n_fft // 2 + 1)
        values = aten._fft_c2r.default(frames, [axis], scale, n_fft)
    shape = _window(window, width, n_fft, x)
    count = values.shape[-2]
    total = n_fft + hop * (count - 1)
    summed = _overlapped(values * shape, hop, total)
    weights = _overlapped((shape * shape).expand([count, n_fft]), hop, total)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - start
    have = torch.sym_min(end, total)
    result = summed.narrow(-1, start, have - start) / weights.narrow(0, start, have - start)
    return torch.constant_pad_nd(result, [0, end - have]) if length is not None else result


def _overlapped(frames: Tensor, hop: int, total: Any) -> Tensor:
    """[.., frames, n] at places a hop apart in [.., total], added."""
    *lead, count, n = frames.shape
    slices = -(-n // hop)
    if slices > _MOST_SLICES:
        places = (torch.arange(count).unsqueeze(1) * hop + torch.arange(n)).reshape([-1])
        target = torch.zeros([*lead, total], dtype=frames.dtype)
        return target.index_add(-1, places, frames.reshape([*lead, count * n]))
    pieces = torch.constant_pad_nd(frames, [0, slices * hop - n]).reshape([*lead, count, slices, hop])
    result = None
    for i in range(slices):
        own = torch.constant_pad_nd(pieces.select(-2, i), [0, 0, i, slices - 1 - i])
        result = own if result is None else result + own
    assert result is not None
    return result.reshape([*lead, (count + slices - 1) * hop]).narrow(-1, 0, total)

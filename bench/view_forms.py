"""Operators and the views that they stand behind, for bench/views.py: a row for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Operator = Callable[[Tensor], Any]


@dataclass(frozen=True)
class View:
    """What an operator gets: a view of an operand of this shape."""

    name: str
    shape: tuple[int, ...]
    view: Operator
    dtype: torch.dtype = torch.float32


def _upsampled(mode: str, **how: Any) -> Operator:
    return lambda x: F.interpolate(x, mode=mode, **({"scale_factor": 2.0} | how))


#: a signal [4, 96, 1536]: batch, channels, time
SIGNALS = [
    View("plain", (4, 96, 1536), lambda x: x),
    View("channels last", (4, 1536, 96), lambda x: x.transpose(1, 2)),
    View("backwards", (1536, 96, 4), lambda x: x.permute(2, 1, 0)),
    View("channels first of all", (96, 4, 1536), lambda x: x.transpose(0, 1)),
    View("every second", (4, 96, 3072), lambda x: x[:, :, ::2]),
    View("half", (4, 192, 1536), lambda x: x[:, 96:]),
    View("flipped", (4, 96, 1536), lambda x: x.flip(-1)),
]
#: an image: batch, channels, height, width
IMAGES = [
    View("plain", (2, 64, 56, 56), lambda x: x),
    View("channels last", (2, 56, 56, 64), lambda x: x.permute(0, 3, 1, 2)),
    View("tokens", (2, 3136, 64), lambda x: x.transpose(1, 2).reshape(2, 64, 56, 56)),
    View("cropped", (2, 64, 60, 60), lambda x: x[:, :, 2:-2, 2:-2]),
    View("colours", (8, 3, 224, 224), lambda x: x),
    View("pixels", (8, 224, 224, 3), lambda x: x.permute(0, 3, 1, 2)),
    View("bytes", (8, 224, 224, 3), lambda x: x.permute(0, 3, 1, 2).float() / 255, torch.uint8),
]

_KERNEL, _TAPS = torch.randn(96, 96, 3), torch.randn(96, 1, 5)
#: of signals
OF_SIGNALS: dict[str, Operator] = {
    "gelu": lambda x: F.gelu(x).contiguous(),
    "sum of time": lambda x: x.sum(-1),
    "sum of channels": lambda x: x.sum(1),
    "sum of the batch": lambda x: x.sum(0),
    "argmax of time": lambda x: x.argmax(-1),
    "max of time, places": lambda x: x.max(-1),
    "max of channels, places": lambda x: x.max(1),
    "variance of time": lambda x: x.var(-1),
    "softmax of time": lambda x: x.softmax(-1),
    "softmax of channels": lambda x: x.softmax(1),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[-1],)),
    "layer_norm, transposed": lambda x: F.layer_norm(x, (x.shape[-1],)).transpose(1, 2).contiguous(),
    "group_norm": lambda x: F.group_norm(x, 8),
    "cumsum of time": lambda x: x.cumsum(-1),
    "cumsum of channels": lambda x: x.cumsum(1),
    "padding": lambda x: F.pad(x, (2, 2)),
    "padding, reflect": lambda x: F.pad(x, (2, 2), mode="reflect"),
    "roll": lambda x: x.roll(5, -1),
    "avg_pool": lambda x: F.avg_pool1d(x, 2),
    "max_pool 3 s2": lambda x: F.max_pool1d(x, 3, 2, 1),
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool1d(x, 32),
    "linear twice as long": _upsampled("linear"),
    "nearest twice as long": _upsampled("nearest"),
    "convolution": lambda x: F.conv1d(x, _KERNEL, padding=1),
    "depthwise convolution": lambda x: F.conv1d(x, _TAPS, padding=2, groups=96),
    "gated": lambda x: F.glu(x, 1),
    "windows": lambda x: x.unfold(-1, 16, 8).contiguous(),
    "heads": lambda x: x.reshape(4, 8, 12, 1536).permute(0, 1, 3, 2).contiguous(),
    "normalised": lambda x: F.normalize(x, dim=1),
    "differences": lambda x: x.diff(dim=-1),
}
#: of images
OF_IMAGES: dict[str, Operator] = {
    "padding": lambda x: F.pad(x, (1, 1, 1, 1)),
    "padding, reflect": lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect"),
    "max_pool 2": lambda x: F.max_pool2d(x, 2),
    "max_pool 3 s2": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_pool 5 s1": lambda x: F.max_pool2d(x, 5, 1, 2),
    "avg_pool 3 s1": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "adaptive_avg_pool 7": lambda x: F.adaptive_avg_pool2d(x, 7),
    "mean of maps": lambda x: x.mean((2, 3)),
    "nearest": _upsampled("nearest"),
    "nearest to 70": lambda x: F.interpolate(x, size=(70, 70)),
    "nearest-exact": _upsampled("nearest-exact"),
    "bilinear": _upsampled("bilinear"),
    "bilinear, half": _upsampled("bilinear", scale_factor=0.5),
    "bicubic": _upsampled("bicubic"),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x if x.shape[1] > 3 else x.repeat(1, 4, 1, 1), 2),
    "layer_norm of channels": lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (x.shape[1],)).permute(0, 3, 1, 2),
    "instance_norm": F.instance_norm,
    "softmax of channels": lambda x: x.softmax(1),
    "argmax of channels": lambda x: x.argmax(1),
    "softmax of maps": lambda x: x.flatten(2).softmax(-1),
    "squeeze and excitation": lambda x: x * x.mean((2, 3), keepdim=True).sigmoid(),
    "roll": lambda x: x.roll((3, 3), (2, 3)),
    "rotation": lambda x: x.transpose(2, 3).flip(3).contiguous(),
    "windows of 7": lambda x: x.unflatten(3, (-1, 7)).unflatten(2, (-1, 7)).permute(0, 2, 4, 3, 5, 1).contiguous(),
    "patches of 4": lambda x: x.unflatten(3, (-1, 4)).unflatten(2, (-1, 4)).permute(0, 2, 4, 1, 3, 5).contiguous(),
    "every second": lambda x: x[:, :, ::2, ::2].contiguous(),
    "cumsum of rows": lambda x: x.cumsum(3),
    "cumsum of columns": lambda x: x.cumsum(2),
    "normalised": lambda x: ((x - 0.5) / 0.25).clamp(0, 1),
}

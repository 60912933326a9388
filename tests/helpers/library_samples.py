"""Calls of torchvision's and torchaudio's operators and of the CTC loss, for CPUs and GPUs alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from .vision_operators import register_library_operators

register_library_operators()
vision: Any = torch.ops.torchvision
audio: Any = torch.ops.torchaudio

Sample = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]
_random = torch.Generator().manual_seed(11)


def _rand(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=_random)


_CORNERS = _rand(40, 2) * 30
BOXES = torch.cat([_CORNERS, _CORNERS + 4 + _rand(40, 2) * 8], 1)
SCORES = (_rand(40) * 20).floor() / 20  # with ties
IMAGES = torch.randn(2, 12, 9, 11, generator=_random)
_FIRST = _rand(6, 2) * 60 - 15
#: regions inside of the image, across its border, outside, and empty ones
REGIONS = torch.cat(
    [
        torch.tensor([[0.0], [1], [1], [0], [1], [0]]),
        _FIRST,
        _FIRST + torch.tensor([[40.0], [9], [90], [0], [-5], [3]]),
    ],
    1,
)


def lfilter(x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(x.shape[0], x.shape[1], x.shape[2] + a.shape[1] - 1, dtype=x.dtype)
    audio._lfilter_core_loop(x, a, y)
    return y[:, :, a.shape[1] - 1 :]


def _deformed(stride: int, dilation: int, groups: int, offsets: int, masked: bool) -> Sample:
    x, weight = torch.randn(2, 4, 7, 6, generator=_random), torch.randn(6, 4 // groups, 3, 2, generator=_random)
    height, width = ((n + 2 - dilation * (k - 1) - 1) // stride + 1 for n, k in ((7, 3), (6, 2)))
    offset = torch.randn(2, offsets * 12, height, width, generator=_random) * 2
    mask = _rand(2, offsets * 6, height, width) if masked else torch.zeros(2, 0)

    def call(*operands: torch.Tensor) -> torch.Tensor:
        how = (stride, stride, 1, 1, dilation, dilation, groups, offsets, masked)
        return vision.deform_conv2d(*operands, *how)

    return call, (x, weight, offset, mask, torch.randn(6, generator=_random))


_PROBS = torch.randn(9, 3, 5, generator=_random).log_softmax(-1)
_LABELS = torch.tensor([[1, 1, 2, 4], [3, 2, 1, 1], [4, 4, 4, 4]])
#: the second sequence has no label, the third one more labels and repeats than steps
_LENGTHS = torch.tensor([9, 6, 3]), torch.tensor([4, 0, 3])


def _ctc(**how: Any) -> Callable[..., torch.Tensor]:
    return lambda probs, labels, steps, counts: F.ctc_loss(probs, labels, steps, counts, **how)


SAMPLES: dict[str, Sample] = {
    "nms": (lambda boxes, scores: vision.nms(boxes, scores, 0.3), (BOXES, SCORES)),
    "nms_of_one": (lambda boxes, scores: vision.nms(boxes, scores, 0.3), (BOXES[:1], SCORES[:1])),
    "roi_align": (lambda x, r: vision.roi_align(x, r, 0.25, 3, 2, 2, True), (IMAGES, REGIONS)),
    "roi_align_of_pixels": (lambda x, r: vision.roi_align(x, r, 0.25, 2, 3, -1, False), (IMAGES, REGIONS)),
    "ps_roi_align": (lambda x, r: vision.ps_roi_align(x, r, 0.25, 2, 3, 2), (IMAGES, REGIONS)),
    "roi_pool": (lambda x, r: vision.roi_pool(x, r, 0.25, 2, 2), (IMAGES, REGIONS)),
    "ps_roi_pool": (lambda x, r: vision.ps_roi_pool(x, r, 0.25, 2, 2), (IMAGES, REGIONS)),
    "deform_conv2d": _deformed(1, 1, 1, 1, False),
    "deform_conv2d_groups": _deformed(2, 2, 2, 2, True),
    "lfilter": (lfilter, (torch.randn(2, 2, 40, generator=_random), torch.tensor([[0.1, -0.5, 1], [0.3, 0.2, 1]]))),
    "ctc": (_ctc(reduction="none"), (_PROBS, _LABELS, *_LENGTHS)),
    "ctc_behind_each_other": (_ctc(zero_infinity=True), (_PROBS, torch.tensor([1, 1, 2, 4, 4, 4, 4]), *_LENGTHS)),
    "ctc_other_blank": (_ctc(reduction="sum", blank=3), (_PROBS[:, :1], _LABELS[:1], _LENGTHS[0][:1], _LENGTHS[1][:1])),
}

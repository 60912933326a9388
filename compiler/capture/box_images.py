"""torchvision's masks and keypoints of boxes, for numbers and sizes of boxes that the run finds.

torchvision goes through the boxes in Python and resizes what it found of each to the size of its box. Here all boxes
are resized at once: what a pixel is of is computed from its place, the size of its box and the box's corner.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..model.operators.resize_smooth import tap_weights

__all__ = ["keypoints_of_heatmaps", "masks_in_image"]


def masks_in_image(masks: Tensor, boxes: Tensor, img_shape: tuple[int, int], padding: int = 1) -> Tensor:
    """Each mask, [n, 1, m, m], at its box, [n, 4] (x1, y1, x2, y2), in an image of zeros: [n, 1, height, width].

    As torchvision.models.detection.roi_heads.paste_masks_in_image: the mask gets a border of zeros, its box grows by
    as much and is rounded to whole pixels.
    """
    masks = F.pad(masks[:, 0], (padding,) * 4)
    factor = masks.shape[-1] / (masks.shape[-1] - 2 * padding)
    corners = _grown(boxes, factor).to(torch.int64)
    height, width = img_shape
    rows, in_rows = _pasted(corners[:, 1], corners[:, 3], height, masks.shape[1])
    columns, in_columns = _pasted(corners[:, 0], corners[:, 2], width, masks.shape[2])
    found = rows(columns(masks, 2), 1)
    inside = in_rows[:, :, None] & in_columns[:, None, :]
    return torch.where(inside, found, torch.zeros_like(found))[:, None]


_Resize = Callable[[Tensor, int], Tensor]


def _grown(boxes: Tensor, factor: float) -> Tensor:
    half = (boxes[:, 2:] - boxes[:, :2]) * 0.5 * factor
    centre = (boxes[:, 2:] + boxes[:, :2]) * 0.5
    return torch.cat([centre - half, centre + half], 1)


def _pasted(first: Tensor, last: Tensor, count: Any, size: int) -> tuple[_Resize, Tensor]:
    """The resizing of `size` pixels to each box's, and which of an image's `count` pixels are inside: [n, count]."""
    place = torch.arange(count, device=first.device) - first[:, None]
    extent = (last - first + 1).clamp(min=1)[:, None]
    at = ((place.to(torch.float32) + 0.5) * (size / extent.to(torch.float32)) - 0.5).clamp(min=0.0)
    return functools.partial(_resized, 2, at), (place >= 0) & (place <= (last - first)[:, None])


def _resized(taps: int, at: Tensor, x: Tensor, dim: int) -> Tensor:
    """x, [n, ...], at places `at`, [n, count], of its dimension `dim`: there are `count` elements then."""
    size, before = x.shape[dim], at.floor()
    weights = tap_weights(taps, (at - before).clamp(0.0, 1.0))
    first = before.to(torch.int64) + 1 - taps // 2
    shape = [1] * x.dim()
    shape[0], shape[dim] = at.shape[0], at.shape[1]
    wide = [*x.shape[:dim], at.shape[1], *x.shape[dim + 1 :]]
    parts = (
        x.gather(dim, (first + j).clamp(0, size - 1).reshape(shape).expand(wide)) * weight.reshape(shape)
        for j, weight in enumerate(weights)
    )
    return functools.reduce(torch.add, parts)


def keypoints_of_heatmaps(maps: Tensor, rois: Tensor) -> tuple[Tensor, Tensor]:
    """Where each heat map is highest, [n, keypoints, 3] (x, y, 1), and how high it is there, [n, keypoints].

    As torchvision.models.detection.roi_heads.heatmaps_to_keypoints. maps: [n, keypoints, h, w], each of which is
    resized to the size of its box. rois: boxes [n, 4].
    """
    extent = (rois[:, 2:] - rois[:, :2]).clamp(min=1)
    whole = extent.ceil()
    columns, in_columns = _enlarged(whole[:, 0], maps.shape[3])
    rows, in_rows = _enlarged(whole[:, 1], maps.shape[2])
    found = rows(columns(maps, 3), 2)
    inside = in_rows[:, None, :, None] & in_columns[:, None, None, :]
    outside = torch.full([], -torch.inf, dtype=found.dtype, device=found.device)
    scores, places = torch.where(inside, found, outside).flatten(2).max(2)
    width = in_columns.shape[1]
    exact = torch.stack([places % width, places // width], 2).float() + 0.5
    points = exact * (extent / whole)[:, None] + rois[:, None, :2]
    return torch.cat([points, torch.ones_like(points[..., :1])], 2), scores


def _enlarged(whole: Tensor, size: int) -> tuple[_Resize, Tensor]:
    """The resizing of `size` pixels to so many of each box, and which of those of the largest box they are."""
    largest: Any = torch.cat([whole, whole.new_ones([1])]).max().to(torch.int64).item()
    torch._check(largest >= 1)
    place = torch.arange(largest, device=whole.device).to(whole.dtype)
    at = (place + 0.5) * (size / whole[:, None]) - 0.5
    return functools.partial(_resized, 4, at), place < whole[:, None]

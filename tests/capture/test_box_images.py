"""Masks and keypoints of boxes that the run finds, beside torchvision's loops; without torchvision."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import mycc
import pytest
import torch
import torch.nn.functional as F
from mycc.compiler.capture.box_images import keypoints_of_heatmaps, masks_in_image
from torch import Tensor

IMAGE = (20, 24)


def pasted(masks: Tensor, boxes: Tensor, img_shape: tuple[int, int], padding: int = 1) -> Tensor:
    """torchvision's paste_masks_in_image: each mask is resized to its box, and written into its image."""
    size = masks.shape[-1]
    half = (boxes[:, 2:] - boxes[:, :2]) * 0.5 * ((size + 2 * padding) / size)
    centre = (boxes[:, 2:] + boxes[:, :2]) * 0.5
    corners = torch.cat([centre - half, centre + half], 1).to(torch.int64)
    result = masks.new_zeros(len(masks), 1, *img_shape)
    for image, mask, (x1, y1, x2, y2) in zip(result, F.pad(masks, (padding,) * 4), corners.tolist(), strict=True):
        width, height = max(x2 - x1 + 1, 1), max(y2 - y1 + 1, 1)
        resized = F.interpolate(mask[None], size=(height, width), mode="bilinear", align_corners=False)[0]
        left, right, top, bottom = max(x1, 0), min(x2 + 1, img_shape[1]), max(y1, 0), min(y2 + 1, img_shape[0])
        image[:, top:bottom, left:right] = resized[:, top - y1 : bottom - y1, left - x1 : right - x1]
    return result


def highest(maps: Tensor, rois: Tensor) -> tuple[Tensor, Tensor]:
    """torchvision's heatmaps_to_keypoints: the highest place of each map that is resized to its box."""
    points, scores = maps.new_ones(*maps.shape[:2], 3), maps.new_zeros(maps.shape[:2])
    for i, (heat, roi) in enumerate(zip(maps, rois, strict=True)):
        extent = (roi[2:] - roi[:2]).clamp(min=1)
        width, height = (int(n) for n in extent.ceil())
        resized = F.interpolate(heat[:, None], size=(height, width), mode="bicubic", align_corners=False)[:, 0]
        scores[i], place = resized.flatten(1).max(1)
        at = torch.stack([place % width, place // width], 1).float() + 0.5
        points[i, :, :2] = at * (extent / extent.ceil()) + roi[:2]
    return points, scores


class _Heads(torch.nn.Module):
    """The ends of a detector: masks and keypoints of the boxes that are likely."""

    def __init__(self, library: Any) -> None:
        super().__init__()
        self.library = [library]

    def forward(self, boxes: Tensor, scores: Tensor, masks: Tensor, maps: Tensor) -> Any:
        likely = scores > 0.3
        boxes, masks, maps = boxes[likely], masks[likely], maps[likely]
        points, heights = self.library[0].heatmaps_to_keypoints(maps, boxes)
        return self.library[0].paste_masks_in_image(masks, boxes, IMAGE), points, heights


def some(n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Boxes inside of an image, at its borders, and of no width; masks and maps for them."""
    torch.manual_seed(n)
    corner = torch.rand(n, 2) * 24 - 4
    boxes = torch.cat([corner, corner + torch.rand(n, 2) * 20], 1)
    boxes[:1, 2:] = boxes[:1, :2]
    boxes = torch.minimum(boxes.clamp(min=0), torch.tensor([*IMAGE[::-1], *IMAGE[::-1]], dtype=torch.float32))
    return boxes, torch.rand(n), torch.rand(n, 1, 6, 6), torch.randn(n, 3, 7, 8)


@pytest.mark.parametrize("n", [0, 1, 30])
def test_all_boxes_at_once(n: int) -> None:
    boxes, _, masks, maps = some(n)
    torch.testing.assert_close(masks_in_image(masks, boxes, IMAGE), pasted(masks, boxes, IMAGE))
    for y, e in zip(keypoints_of_heatmaps(maps, boxes), highest(maps, boxes), strict=True):
        torch.testing.assert_close(y, e, rtol=1e-4, atol=1e-5)


def test_boxes_that_the_run_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library: Any = ModuleType("torchvision.models.detection.roi_heads")
    library.paste_masks_in_image, library.heatmaps_to_keypoints = pasted, highest
    monkeypatch.setitem(sys.modules, library.__name__, library)
    network = _Heads(library)
    model = mycc.load(mycc.compile(network, some(12), out=tmp_path / "m.pkg"))
    boxes, scores, masks, maps = some(12)
    for likely in (scores, scores * 0.4, scores * 0.1):
        for y, e in zip(model(boxes, likely, masks, maps), network(boxes, likely, masks, maps), strict=True):
            torch.testing.assert_close(torch.as_tensor(y), e, rtol=1e-4, atol=1e-5)
    assert library.heatmaps_to_keypoints is highest

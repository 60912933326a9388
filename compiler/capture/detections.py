"""torchvision's detectors, for numbers of boxes that the run finds: batched_nms, BoxCoder; box_images.py has the masks
and keypoints.

torchvision asks in Python how many boxes there are. batched_nms keeps none of none, moves few apart by their classes
in their own dtype, and of many goes through the classes one by one; here few and many take one way: boxes that are
moved apart in float64 overlap as they did in their class. BoxCoder.decode leaves out a reshape of no boxes.

What says of its result that the run finds its size, as torchvision's nms does, leaves out 0 and 1 by torch's default.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._library.fake_impl import FakeImplCtx

from .box_images import keypoints_of_heatmaps, masks_in_image

__all__ = ["batched_nms", "decoded", "detections_of_all_sizes"]

#: up to so many boxes torchvision moves them apart in their own dtype
FEW = 1000


@contextmanager
def detections_of_all_sizes() -> Iterator[None]:
    """While it lasts, torchvision's detectors take any number of boxes, and operators of libraries may find nothing."""
    with contextlib.ExitStack() as stack:
        replace = lambda owner, name, new: stack.enter_context(patch.object(owner, name, new))  # noqa: E731
        replace(FakeImplCtx, "create_unbacked_symint", FakeImplCtx.new_dynamic_size)
        for home, name, instead in _FORMS:
            own = getattr(sys.modules.get(home), name, None)
            for module in [
                m for m in list(sys.modules.values()) if own and getattr(m, "__dict__", {}).get(name) is own
            ]:
                replace(module, name, instead(own))
        coder = getattr(sys.modules.get("torchvision.models.detection._utils"), "BoxCoder", None)
        if coder is not None:
            replace(coder, "decode", _decoding(coder.decode))
        yield


def _where(name: str, own: Any) -> list[Any]:
    """Modules that have a function by its name: those that import it too."""
    return [module for module in list(sys.modules.values()) if getattr(module, "__dict__", {}).get(name) is own]


def _chosen(own: Any) -> Callable[..., Tensor]:
    def choose(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
        few = isinstance(boxes.shape[0], int) and boxes.shape[0] <= FEW
        return (own if few else batched_nms)(boxes, scores, idxs, iou_threshold)

    return choose


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """Places of the boxes that stay, by falling scores: [kept], i64.

    boxes: [n, 4], x1, y1, x2, y2. scores, idxs: [n]; a box can only go for one whose number in `idxs`, its class, is
    the same.
    """
    least = boxes.new_full([1], -torch.inf)
    beyond = torch.cat([boxes.reshape(-1), least]).max() + 1
    few = torch.ones_like(idxs).sum() <= FEW
    moved = boxes + (idxs.to(boxes.dtype) * beyond)[:, None]
    exact = boxes.double() + (idxs.double() * beyond.double())[:, None]
    apart = torch.where(few, moved.double(), exact)
    return torch.ops.torchvision.nms(apart, scores.double(), iou_threshold)


#: where torchvision has a function, its name, and what takes the function and gives what runs in its place
_FORMS: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
    ("torchvision.ops.boxes", "batched_nms", _chosen),
    ("torchvision.models.detection.roi_heads", "paste_masks_in_image", lambda _: masks_in_image),
    ("torchvision.models.detection.roi_heads", "heatmaps_to_keypoints", lambda _: keypoints_of_heatmaps),
)


def _decoding(own: Any) -> Callable[..., Tensor]:
    def decode(self: Any, rel_codes: Tensor, boxes: Sequence[Tensor]) -> Tensor:
        known = all(isinstance(b.shape[0], int) for b in boxes)
        return own(self, rel_codes, boxes) if known else decoded(self, rel_codes, boxes)

    return decode


def decoded(coder: Any, codes: Tensor, boxes: Sequence[Tensor]) -> Tensor:
    """Boxes [n, classes, 4] of a BoxCoder. codes: [n, 4 classes]; boxes: [m, 4] of each image, n in all."""
    found = coder.decode_single(codes.flatten(1), torch.cat(list(boxes)))
    return found.unflatten(1, (-1, 4))

"""Operators of torchvision and torchaudio, and the CTC loss, through the whole compiler on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mycc
import pytest
import torch

from ..helpers.library_samples import BOXES, IMAGES, REGIONS, SAMPLES, SCORES, vision
from ..helpers.programs import Call1


def check(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    for y, e in zip(*((v if isinstance(v, (tuple, list)) else (v,)) for v in (found, wanted)), strict=True):
        assert y.dtype == e.dtype
        torch.testing.assert_close(y, e, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("name", SAMPLES)
def test_library_operators(name: str, tmp_path: Path) -> None:
    function, inputs = SAMPLES[name]
    model = mycc.load(mycc.compile(Call1(function).eval(), inputs, out=tmp_path / "m.pkg"))
    check(model(*inputs), function(*inputs))
    if name in ("roi_align_of_pixels", "ctc"):
        wide = tuple(t.double() if t.is_floating_point() else t for t in inputs)
        model = mycc.load(mycc.compile(Call1(function).eval(), wide, out=tmp_path / "m.pkg"))
        check(model(*wide), function(*wide), 1e-12)


def test_numbers_of_boxes_and_regions_are_dynamic(tmp_path: Path) -> None:
    def detect(boxes: torch.Tensor, scores: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        kept = boxes[vision.nms(boxes, scores, 0.5)]
        rois = torch.cat([torch.zeros_like(kept[:, :1]), kept], 1)
        return vision.roi_align(x, rois, 0.25, 2, 2, 2, True)

    n = torch.export.Dim("n", min=1, max=100)
    model = mycc.load(
        mycc.compile(
            Call1(detect).eval(), (BOXES, SCORES, IMAGES), out=tmp_path / "m.pkg",
            dynamic_shapes=(({0: n}, {0: n}, {}),),
        )
    )  # fmt: skip
    for count in (1, 7, 40):
        inputs = BOXES[:count], SCORES[:count], IMAGES
        check(model(*inputs), detect(*inputs))


def test_a_region_of_an_image_that_is_not_there(tmp_path: Path) -> None:
    model = mycc.load(mycc.compile(Call1(SAMPLES["roi_align"][0]).eval(), (IMAGES, REGIONS), out=tmp_path / "m.pkg"))
    wrong = REGIONS.clone()
    wrong[2, 0] = 7
    with pytest.raises(mycc.RunError, match="7"):
        model(IMAGES, wrong)
    with pytest.raises(mycc.RunError):
        model(IMAGES, torch.full_like(REGIONS, float("nan")))


@pytest.mark.parametrize(("steps", "counts", "label"), [(10, 2, 1), (9, 5, 1), (-1, 1, 1), (9, 2, 5), (9, 2, -1)])
def test_lengths_and_labels_of_ctc_outside_of_their_tensors(
    steps: int, counts: int, label: int, tmp_path: Path
) -> None:
    function, (probs, labels, lengths, targets) = SAMPLES["ctc"]
    inputs = probs, labels, lengths, targets
    model = mycc.load(mycc.compile(Call1(function).eval(), inputs, out=tmp_path / "m.pkg"))
    wrong = labels.clone()
    wrong[0, 0] = label
    lengths, targets = lengths.clone(), targets.clone()
    lengths[0], targets[0] = steps, counts
    if counts == 5:
        lengths, targets = lengths[[0]].expand(3), torch.tensor([0, 0, 5])
    with pytest.raises(mycc.RunError, match="ctc_loss"):
        model(probs, wrong, lengths.contiguous(), targets)

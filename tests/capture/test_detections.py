"""torchvision's batched_nms and BoxCoder where the run finds the number of boxes; without torchvision."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import mycc
import pytest
import torch
from mycc.compiler.capture import capture, detections
from mycc.compiler.capture.detections import batched_nms, decoded, detections_of_all_sizes
from torch import Tensor

from ..helpers.library_samples import vision
from ..helpers.programs import Call1


def by_class(boxes: Tensor, scores: Tensor, idxs: Tensor, threshold: float) -> Tensor:
    """What stays in each class, by falling scores: torchvision's way for many boxes."""
    if boxes.numel() == 0:
        return torch.zeros(0, dtype=torch.int64)
    stays = torch.zeros_like(scores, dtype=torch.bool)
    for number in idxs.unique():
        own = (idxs == number).nonzero()[:, 0]
        stays[own[vision.nms(boxes[own], scores[own], threshold)]] = True
    places = stays.nonzero()[:, 0]
    return places[scores[places].argsort(descending=True, stable=True)]


class BoxCoder:
    """Boxes moved by codes, with torchvision's question for their number."""

    def decode(self, rel_codes: Tensor, boxes: list[Tensor]) -> Tensor:
        n = sum(b.shape[0] for b in boxes)
        found = self.decode_single(rel_codes, torch.cat(boxes))
        return found.reshape(n, -1, 4) if n > 0 else found

    def decode_single(self, rel_codes: Tensor, boxes: Tensor) -> Tensor:
        return rel_codes + boxes.repeat(1, rel_codes.shape[1] // 4)


class _Detector(torch.nn.Module):
    """A head of a detector: boxes that are likely, moved, the ones that overlap less."""

    def __init__(self, library: Any) -> None:
        super().__init__()
        self.library, self.coder = [library], BoxCoder()
        self.codes = torch.nn.Linear(4, 8)

    def forward(self, boxes: Tensor, scores: Tensor, idxs: Tensor) -> Any:
        likely = scores > 0.3
        boxes, scores, idxs = boxes[likely], scores[likely], idxs[likely]
        kept = self.library[0].batched_nms(boxes, scores, idxs, 0.4)[:10]
        found = boxes[kept]
        lines = torch.zeros((len(found), 2)) + min(len(found), 7)
        return self.coder.decode(self.codes(found), [found])[:, 1], scores[kept], idxs[kept], lines


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that stands where torchvision has its boxes."""
    for name, attribute in (
        ("torchvision.ops.boxes", ("batched_nms", by_class)),
        ("torchvision.models.detection._utils", ("BoxCoder", BoxCoder)),
    ):
        module = ModuleType(name)
        setattr(module, *attribute)
        monkeypatch.setitem(sys.modules, name, module)
    return sys.modules["torchvision.ops.boxes"]


def some(n: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(n)
    corner = torch.rand(n, 2) * 30
    boxes = torch.cat([corner, corner + 4 + torch.rand(n, 2) * 20], 1)
    return boxes, torch.rand(n), torch.randint(0, 4, (n,))


@pytest.mark.parametrize("few", [0, 1000])
def test_boxes_of_other_classes_do_not_meet(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detections, "FEW", few)
    for n in (0, 1, 60):
        boxes, scores, idxs = some(n)
        assert torch.equal(batched_nms(boxes, scores, idxs, 0.4), by_class(boxes, scores, idxs, 0.4))
        assert torch.equal(batched_nms(-boxes - 50, scores, idxs, 0.4), by_class(-boxes - 50, scores, idxs, 0.4))


def test_decoded_boxes() -> None:
    codes, boxes = torch.randn(6, 12), [torch.rand(2, 4), torch.rand(4, 4)]
    assert torch.equal(decoded(BoxCoder(), codes, boxes), BoxCoder().decode(codes, boxes))


def test_any_number_of_boxes(library: ModuleType, tmp_path: Path) -> None:
    network, example = _Detector(library).eval(), some(60)
    graph = capture(network, example)
    assert all(c.min == 0 for c in graph.computed)
    model = mycc.load(mycc.compile(network, example, out=tmp_path / "m.pkg"))
    boxes, scores, idxs = some(60)
    for given in (example, (boxes * 3, scores, idxs * 0), (boxes, scores * 0.31, idxs)):
        for y, e in zip(model(*given), network(*given), strict=True):
            torch.testing.assert_close(y, e)
    nothing = model(boxes, scores * 0.1, idxs)
    assert [tuple(y.shape) for y in nothing] == [(0, 4), (0,), (0,), (0, 2)]
    assert library.batched_nms is by_class
    assert BoxCoder.decode.__name__ == "decode"


def test_what_the_run_may_not_find_at_all() -> None:
    """Operators of libraries whose fakes take torch's default say nothing of the least size."""
    name = "mycc_detections::find"

    @torch.library.custom_op(name, mutates_args=())
    def find(x: Tensor) -> Tensor:
        return x.nonzero()[:, 0].clone()

    @find.register_fake
    def _(x: Tensor) -> Tensor:
        return x.new_empty([torch.library.get_ctx().create_unbacked_symint()], dtype=torch.int64)

    with detections_of_all_sizes():
        program = torch.export.export(Call1(find), (torch.ones(3),))
    assert [r.lower for r in program.range_constraints.values()] == [0]

"""Which of Winograd's convolutions is taken for which map, and how its weights are stored."""

from __future__ import annotations

import pytest
import torch
from mycc.compiler.ir.structured import WINOGRAD_FORMS, Conv
from mycc.compiler.lower.constants import PANEL, WinogradPanels
from torch import nn

from ..helpers.programs import scheduled


@pytest.mark.parametrize(
    ("size", "channels", "stride", "wanted"),
    [
        (24, 32, 1, "winograd3"),
        (14, 32, 1, "winograd3taps"),
        (12, 40, 1, "winograd3taps"),
        (11, 32, 1, "winograd2"),
        (5, 32, 1, "turned"),
        (14, 24, 1, "direct"),
        (14, 64, 2, "winograd2s2"),
        (10, 64, 2, "turned"),
        (14, 48, 2, "turned"),
    ],
)
def test_the_form_depends_on_the_map(size: int, channels: int, stride: int, wanted: str) -> None:
    image = torch.randn(1, channels, size, size)
    part = nn.Conv2d(channels, channels, 3, stride, 1)
    program = scheduled(lambda conv, a: conv(a), image, parts=(part,)).program
    assert [node.algorithm for node in program.nodes if isinstance(node, Conv)] == [wanted]


@pytest.mark.parametrize("shape", [(40, 5, 3, 3), (16, 3, 2, 3, 3)])
def test_taps_are_stored_side_by_side(shape: tuple[int, ...]) -> None:
    weight = torch.randn(shape)
    layout = WinogradPanels(*WINOGRAD_FORMS["winograd3taps"])
    stored = layout.pack(weight)
    assert stored.numel() == layout.elements(shape)
    outputs, inputs = shape[:2]
    panels = stored.reshape(-1, -(-outputs // PANEL), inputs, 9, PANEL)
    slices = weight.reshape(outputs, inputs, -1, 9)
    for slice, out, channel in ((0, 0, 0), (0, outputs - 1, inputs - 1), (len(panels) - 1, 9, 2)):
        found = panels[slice, out // PANEL, channel, :, out % PANEL]
        assert found.equal(slices[out, channel, slice])
    assert not panels[:, -1, :, :, (outputs - 1) % PANEL + 1 :].any()

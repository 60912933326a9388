"""Which of Winograd's convolutions is taken for which map, and how its weights are stored."""

from __future__ import annotations

import pytest
import torch
from mycc.compiler.ir.layouts import PANEL
from mycc.compiler.ir.structured import WINOGRAD_FORMS, Conv
from mycc.compiler.lower.core.constants import PhaseTaps, WinogradPanels
from torch import nn

from ..helpers.programs import scheduled


def algorithms(part: nn.Module, channels: int, size: int) -> list[str]:
    program = scheduled(lambda conv, a: conv(a), torch.randn(1, channels, size, size), parts=(part,)).program
    return [node.algorithm for node in program.nodes if isinstance(node, Conv)]


@pytest.mark.parametrize(
    ("size", "channels", "stride", "wanted"),
    [
        (24, 32, 1, "winograd3"),
        (14, 32, 1, "winograd3taps"),
        (12, 40, 1, "winograd3taps"),
        (11, 32, 1, "winograd2"),
        (5, 32, 1, "transposing"),
        (14, 24, 1, "direct"),
        (14, 64, 2, "winograd2s2"),
        (10, 64, 2, "transposing"),
        (14, 48, 2, "transposing"),
    ],
)
def test_the_form_depends_on_the_map(size: int, channels: int, stride: int, wanted: str) -> None:
    assert algorithms(nn.Conv2d(channels, channels, 3, stride, 1), channels, size) == [wanted]


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


@pytest.mark.parametrize(
    ("kernel", "size", "channels", "groups", "stride", "wanted"),
    [
        (5, 24, 32, 1, 1, "winograd3"),
        (5, 14, 32, 1, 1, "winograd2"),
        (5, 24, 32, 1, 2, "transposing"),  # a fifth fewer products
        (4, 24, 32, 1, 1, "winograd3"),
        (4, 14, 32, 1, 1, "transposing"),
        ((3, 7), 24, 32, 1, 1, "winograd3"),
        ((1, 5), 24, 32, 1, 1, "transposing"),
        (9, 14, 32, 1, 1, "winograd2"),
        (3, 24, 64, 2, 1, "winograd3"),
        (5, 24, 64, 2, 1, "winograd3"),
        (5, 24, 32, 2, 1, "transposing"),
    ],
)
def test_larger_kernels_and_groups(
    kernel: int | tuple[int, int], size: int, channels: int, groups: int, stride: int, wanted: str
) -> None:
    assert algorithms(nn.Conv2d(channels, channels, kernel, stride, "valid", 1, groups), channels, size + 4) == [wanted]


@pytest.mark.parametrize(
    ("kernel", "stride", "wanted"),
    [(3, 1, ["winograd3"]), (5, 1, ["winograd3"]), (4, 2, ["direct"] * 4), (6, 2, ["winograd3"] * 4)],
)
def test_transposed_ones(kernel: int, stride: int, wanted: list[str]) -> None:
    part = nn.ConvTranspose2d(32, 48, kernel, stride, 1)
    assert algorithms(part, 32, 24) == wanted


@pytest.mark.parametrize("taps", [False, True])
def test_weights_of_a_transposed_convolution_are_those_of_a_plain_one(taps: bool) -> None:
    plain = torch.randn(2 * 20, 6, 3, 3)
    turned = plain.reshape(2, 20, 6, 9).transpose(1, 2).flip(-1).reshape(2 * 6, 20, 3, 3)
    phase = PhaseTaps(tuple(range(8, -1, -1)), (3, 3))
    layouts = WinogradPanels(3, 1, taps, 2), WinogradPanels(3, 1, taps, 2, phase)
    packed = [layout.pack(w) for layout, w in zip(layouts, (plain, turned), strict=True)]
    assert packed[0].equal(packed[1])
    assert [p.numel() for p in packed] == [n.elements(w.shape) for n, w in zip(layouts, (plain, turned), strict=True)]


def test_taps_that_a_part_lacks_have_no_matrices() -> None:
    weight = torch.randn(16, 2, 5, 4)
    stored = WinogradPanels(2).pack(weight).reshape((4 + 3) * (4 + 3), 2, 16)
    first = WinogradPanels(2).pack(weight[..., :3, :3].contiguous()).reshape(4 * 4, 2, 16)
    assert torch.equal(stored[:16], first)
    assert torch.allclose(stored[-9], weight[:, :, 3, 3].t())  # the last part begins with the value at 0, both ways

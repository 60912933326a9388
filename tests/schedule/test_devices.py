"""Every GPU is scheduled as itself: by its own multiprocessors, bandwidth and arithmetic."""

from __future__ import annotations

from dataclasses import replace

import torch
from mycc.compiler.ir.structured import Gemm
from mycc.compiler.machine.gpu import DEVICES, Device
from mycc.compiler.schedule import schedule
from torch import nn

from ..helpers.programs import lowered


def parts_of_k(device: Device) -> int | None:
    """Into how many parts the k of a product of 128 rows is cut, whose sums a norm adds up."""
    up, norm = nn.Linear(3072, 768).bfloat16(), nn.LayerNorm(768).bfloat16()
    x = torch.zeros(128, 3072, dtype=torch.bfloat16)
    program = lowered(lambda up, norm, a: norm(up(a) + 1), x, parts=(up, norm), family="cuda").program
    (product,) = (n for n in schedule(program, device=device).program.nodes if isinstance(n, Gemm))
    return product.dims[0].extent.constant if len(product.dims) == 3 else 1


def test_each_device_has_its_own_split() -> None:
    assert {capability: parts_of_k(device) for capability, device in DEVICES.items()} == {80: 8, 90: 4, 100: 6}


def test_a_changed_row_changes_the_schedule() -> None:
    """A chip of few multiprocessors has enough tiles for all of them."""
    assert parts_of_k(replace(DEVICES[80], sms=4)) == 1

"""fake_quantize_*: the values of eager, of numbers that are none or too large too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.lower.core.driver import unsupported
from mycc.compiler.verify import eager, verify
from torch import Tensor

from ..helpers.programs import Call1

aten = torch.ops.aten
SCALE, ZERO = torch.tensor(0.1), torch.tensor(3, dtype=torch.int32)
SCALES = torch.linspace(0.01, 0.2, 16)
ZEROS = torch.arange(-8, 8, dtype=torch.int32)
ON, OFF = torch.tensor([1]), torch.tensor([0])

FORMS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -127, 127),
    "tensor parameters": lambda x: torch.fake_quantize_per_tensor_affine(x, SCALE, ZERO, -128, 127),
    "channels": lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS, 1, -128, 127),
    "float zeros": lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS.float() + 0.4, 1, -128, 127),
    "mask": lambda x: aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 3, 0, 255),
    "on": lambda x: aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(x, SCALE, ZERO, ON, 0, 255),
    "off": lambda x: aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(x, SCALE, ZERO, OFF, 0, 255),
    "channel masks": lambda x: aten.fake_quantize_per_channel_affine_cachemask(x, SCALES, ZEROS, 1, -8, 7),
    "half": lambda x: torch.fake_quantize_per_tensor_affine(x.half(), 0.1, 3, -127, 127),
    "nothing": lambda x: torch.fake_quantize_per_channel_affine(x[:0], SCALES, ZEROS, 1, -128, 127),
}


@pytest.mark.parametrize("name", FORMS)
def test_values_are_eagers(name: str) -> None:
    x = torch.randn(20, 16, generator=torch.Generator().manual_seed(0)) * 3
    x[0, :6] = torch.tensor([float("nan"), float("inf"), float("-inf"), 1e30, -1e30, -0.0])
    x[1] = torch.arange(16) * 0.05  # half way between two
    function = FORMS[name]
    graph = capture(Call1(function).eval(), (x,))
    result = run_graph_passes(graph)
    assert not unsupported(result)
    want = function(x)
    for got, expected in zip(eager(result, (x,)), want if isinstance(want, tuple) else (want,), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    verify(graph, lambda inputs: eager(result, inputs))

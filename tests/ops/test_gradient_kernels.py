"""Kernels of gradients of a convolution and of attention: at dynamic sizes on a CPU, and for a GPU."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch
from torch import Tensor
from torch.export import Dim

from ..helpers.device_programs import device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter

aten = torch.ops.aten


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def gradients(x: Tensor, weight: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    """A strided convolution with two groups and a depthwise one; attention with a causal mask."""
    numbers = [2, 2], [1, 1], [1, 1], False, [0, 0], 2
    y = aten.convolution(x, weight, None, *numbers)
    first = aten.convolution_backward(y, x, weight, [y.shape[1]], *numbers, [True, True, True])
    own = weight[:4, :1]
    numbers = [1, 1], [1, 1], [1, 1], False, [0, 0], 4
    second = aten.convolution_backward(x, x, own, None, *numbers, [True, True, False])
    out, log = aten._scaled_dot_product_flash_attention_for_cpu(q, q, q, 0.0, True)
    third = aten._scaled_dot_product_flash_attention_for_cpu_backward(out, q, q, q, out, log, 0.0, True)
    return (*first, *second[:2], log, *third)


def inputs(batch: int, height: int) -> tuple[Tensor, ...]:
    return normal(batch, 4, height, 8), normal(6, 2, 3, 3, seed=1), normal(batch, 2, 6, 8, seed=2)


@pytest.mark.slow  # tests/training/test_attention.py and tests/graph/test_gradients.py
def test_dynamic_sizes(tmp_path: Path) -> None:
    n, h = Dim("n", min=1, max=16), Dim("h", min=4, max=32)
    model = Call1(gradients).eval()
    mycc.compile(model, inputs(2, 10), out=tmp_path / "m.pkg", dynamic_shapes=(({0: n, 2: h}, None, {0: n}),))
    compiled = mycc.load(tmp_path / "m.pkg")
    for batch, height in ((2, 10), (1, 4), (3, 15)):
        given = inputs(batch, height)
        for got, want in zip(compiled(*given), gradients(*given), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


def test_on_a_gpu(interpreter: TritonInterpreter) -> None:
    given = inputs(2, 6)
    found = run_interpreted(device_program(Call1(gradients).eval(), given), interpreter, given)
    for got, want in zip(found, gradients(*given), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)

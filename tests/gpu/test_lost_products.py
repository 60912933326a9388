"""Sums of wgmma that are only chosen and stored as float32: ptxas of CUDA 12 takes them for zeros."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mycc.compiler.build.triton_worker import compile_task, lost_products
from torch import Tensor

from ..helpers.device_programs import device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter

KERNEL = """import triton
import triton.language as tl


@triton.jit
def chosen(x0, x1, x2, y0):
    m, k = tl.arange(0, 128)[:, None], tl.arange(0, 64)
    n = tl.arange(0, 64)[None, :]
    acc = tl.zeros((128, 64), tl.float32)
    for step in range(0, 512, 64):
        acc = tl.dot(tl.load(x0 + m * 512 + k[None, :] + step), tl.load(x1 + n * 512 + k[:, None] + step), acc)
    t0 = tl.load(x2 + m * 64 + n).to(tl.float32)
    tl.store(y0 + m * 64 + n, tl.where(t0 <= 0.0, 0.0, acc))
"""


def masked(x: Tensor, w: Tensor, seen: Tensor) -> Tensor:
    return torch.where(seen <= 0, 0.0, x @ w).float()


def absolute(x: Tensor, w: Tensor, seen: Tensor) -> Tensor:
    return (x @ w).float().abs() + 0 * seen


def halved(x: Tensor, w: Tensor, seen: Tensor) -> Tensor:
    return torch.where(seen <= 0, 0.0, (x @ w) * 0.5).float()


@pytest.mark.parametrize(("function", "kept"), [(masked, True), (absolute, True), (halved, False)])
def test_sums_that_are_chosen_take_part_in_arithmetic(
    function: object, kept: bool, interpreter: TritonInterpreter
) -> None:
    torch.manual_seed(0)
    inputs = tuple(torch.randn(*s).half() for s in ((96, 128), (128, 64), (96, 64)))
    program = device_program(Call1(function).eval(), inputs)  # type: ignore[arg-type]
    (kernel,) = program.code.kernels
    assert ("acc += 0.0" in kernel.source) == kept
    (found,) = run_interpreted(program, interpreter, inputs)
    torch.testing.assert_close(found.float(), function(*inputs).float(), rtol=2e-3, atol=2e-2)  # type: ignore[operator]


def test_the_build_finds_lost_products(tmp_path: Path) -> None:
    """A kernel whose text does nothing about it is compiled again with less optimisation."""
    module = tmp_path / "chosen.py"
    module.write_text(KERNEL)
    task = {
        "module": str(module), "symbol": "chosen", "constants": {}, "capability": 90, "ptx": False,
        "signature": {"x0": "*bf16", "x1": "*bf16", "x2": "*bf16", "y0": "*fp32"},
        "divisors": dict.fromkeys(("x0", "x1", "x2", "y0"), 16), "options": {"num_warps": 4, "num_stages": 3},
        "out": str(tmp_path / "image"),
    }  # fmt: skip
    compile_task(task)
    assert not lost_products((tmp_path / "image").read_bytes())

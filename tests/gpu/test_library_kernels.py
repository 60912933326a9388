"""Operators of torchvision and torchaudio, and the CTC loss, as GPU kernels: interpreted and compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mycc.compiler.build.compile import BuildOptions
from mycc.compiler.build.triton_compile import compile_kernels
from mycc.compiler.machine.gpu import DEVICES
from mycc.compiler.machine.targets import parse_targets

from ..helpers.device_programs import device_program, run_interpreted
from ..helpers.library_samples import SAMPLES
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter


@pytest.mark.parametrize("name", SAMPLES)
def test_library_operators(name: str, interpreter: TritonInterpreter) -> None:
    function, inputs = SAMPLES[name]
    found = run_interpreted(device_program(Call1(function).eval(), inputs), interpreter, inputs)
    wanted = function(*inputs)
    for y, e in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        torch.testing.assert_close(y, e, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("chip", [90, *(pytest.param(n, marks=pytest.mark.slow) for n in (80, 100))])
def test_library_operators_compile_for_every_chip(chip: int, tmp_path: Path) -> None:
    (target,) = parse_targets(f"cuda:sm_{chip}")
    for name in ("nms", "roi_align_of_pixels", "roi_pool", "ps_roi_pool", "ctc", "lfilter"):
        function, inputs = SAMPLES[name]
        kernels = device_program(Call1(function).eval(), inputs, device=DEVICES[chip]).code.kernels
        assert compile_kernels(kernels, target, BuildOptions()).images

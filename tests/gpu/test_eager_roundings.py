"""Roundings to 16 bits between the operators of a GPU's kernel, through Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace

import torch
from mycc.compiler.capture import capture
from mycc.compiler.codegen.cuda.generate import generate_device
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.lower import lower
from mycc.compiler.lower.core.eager_roundings import with_eager_roundings
from mycc.compiler.schedule import schedule

from ..helpers.device_programs import DEVICE, DeviceProgram, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter


def test_chains_have_the_bits_of_eager(interpreter: TritonInterpreter) -> None:
    def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((x + y) * y - x).sub(y) * x

    x, y = (torch.randn(64, 32, generator=torch.Generator().manual_seed(i)).half() for i in range(2))
    graph = capture(Call1(chain), (x, y), None, None)
    result = lower(run_graph_passes(graph), None, "cuda")
    result = replace(result, program=with_eager_roundings(result.program))
    planned = schedule(result.program, device=DEVICE)
    program = DeviceProgram(graph, result, planned, generate_device([graph], [planned], DEVICE))
    (got,) = run_interpreted(program, interpreter, [x, y])
    assert torch.equal(got, chain(x, y))
    assert not any(kernel.fuses for kernel in program.code.kernels)  # an FMA of f16 would round once

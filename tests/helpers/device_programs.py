"""Whole programs for GPUs: compiled to launches, and run in order through Triton's interpreter on CPU memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from mycc.compiler.capture.export import CaptureRequest, capture_request
from mycc.compiler.capture.graph import ModelGraph
from mycc.compiler.capture.precision import in_dtype
from mycc.compiler.codegen.triton.device import DEVICES, Device
from mycc.compiler.codegen.triton.generate import DeviceCode, generate_device
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.ir.dtypes import to_torch
from mycc.compiler.ir.nodes import Buffer
from mycc.compiler.ir.random import CALL
from mycc.compiler.ir.verify import verify_program
from mycc.compiler.lower import lower
from mycc.compiler.lower.driver import Lowered
from mycc.compiler.options import ScheduleOptions
from mycc.compiler.schedule import Schedule, schedule
from mycc.compiler.schedule.schedule import DEFAULTS

from .triton_interpreter import TritonInterpreter

#: the interpreter knows no griddepcontrol
DEVICE = replace(DEVICES[90], pdl=False)


@dataclass(frozen=True)
class DeviceProgram:
    """A model as its launches, and what they came from."""

    graph: ModelGraph
    lowered: Lowered
    schedule: Schedule
    code: DeviceCode


def device_program(
    model: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    dynamic_shapes: Any = None,
    dtype: str | None = None,
    device: Device = DEVICE,
    options: ScheduleOptions = DEFAULTS,
) -> DeviceProgram:
    """The program of a model, verified after lowering and after scheduling."""
    request = CaptureRequest(model, tuple(inputs), {}, dynamic_shapes)
    (request,) = in_dtype([request], dtype)
    return program_of(capture_request(request), device, options)


def program_of(graph: ModelGraph, device: Device = DEVICE, options: ScheduleOptions = DEFAULTS) -> DeviceProgram:
    """The program of a captured model."""
    result = lower(run_graph_passes(graph), None, "cuda")
    verify_program(result.program, "lowering")
    planned = schedule(result.program, options, "cuda")
    verify_program(planned.program, "scheduling")
    return DeviceProgram(graph, result, planned, generate_device([graph], [planned], device))


def run_interpreted(
    program: DeviceProgram,
    interpreter: TritonInterpreter,
    inputs: Sequence[torch.Tensor],
    left: dict[Buffer, torch.Tensor] | None = None,
) -> list[torch.Tensor]:
    """The outputs for inputs of any sizes that the program allows; temporaries start as NaN or 77. `left` takes what
    all memory holds in the end."""
    sizes = {**_sizes(program.graph, inputs), CALL.name: 1}
    planned = program.schedule.program
    states = [change.initial for change in program.graph.in_place if change.initial is not None]
    memory: dict[Buffer, torch.Tensor] = {}
    for buffer, tensor in zip((*planned.inputs, *planned.state), (*inputs, *states), strict=True):
        memory[buffer.root] = _flat(tensor)
    for constant, buffer in program.lowered.constants.items():
        memory[buffer] = constant.layout.pack(constant.tensor.detach()).contiguous().clone()
    for node in planned.nodes:
        for buffer in (*node.reads(), *node.writes()):
            if buffer.root not in memory:
                dtype = to_torch(buffer.dtype)
                fill = float("nan") if dtype.is_floating_point else 77 if dtype != torch.bool else True
                memory[buffer.root] = torch.full((max(buffer.size.evaluate(sizes), 1),), fill, dtype=dtype)
    entry = program.code.entries[0]
    used = {b.root for node in planned.nodes for b in (*node.reads(), *node.writes())}
    after = memory | interpreter.run(entry.launches, {b: t for b, t in memory.items() if b in used}, sizes)
    if left is not None:
        left.update(after)
    outputs = []
    for buffer, shape, spec in zip(planned.outputs, entry.output_shapes, program.graph.outputs, strict=False):
        extents = [extent.evaluate(sizes) for extent in shape]
        own = [*extents, 2] if spec.dtype.is_complex else extents
        result = after[buffer.root][: math.prod(own)].reshape(own)
        outputs.append(torch.view_as_complex(result) if spec.dtype.is_complex else result)
    return outputs


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of its elements in order; of complex ones as pairs."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1).clone()


def _sizes(graph: ModelGraph, inputs: Sequence[torch.Tensor]) -> Mapping[str, int]:
    return {s.name: (inputs[s.input].shape[s.dim] - s.offset) // s.scale for s in graph.symbols}

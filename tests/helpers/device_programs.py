"""Whole programs for GPUs: compiled to launches, and run in order through Triton's interpreter on CPU memory."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch
from mycc.compiler.capture.export import CaptureRequest, capture_request
from mycc.compiler.capture.precision import in_dtype
from mycc.compiler.codegen.cuda.generate import DeviceCode, generate_device
from mycc.compiler.codegen.cuda.kernel import Launch
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.dtypes import to_torch
from mycc.compiler.ir.index import Size
from mycc.compiler.ir.program import Define
from mycc.compiler.ir.random import BLOCKS, CALL
from mycc.compiler.ir.verify import verify_program
from mycc.compiler.lower import lower
from mycc.compiler.lower.core.driver import Lowered
from mycc.compiler.machine.gpu import DEVICES, Device
from mycc.compiler.model.graph import ModelGraph
from mycc.compiler.model.operators.kept import kept_for
from mycc.compiler.options import ScheduleOptions
from mycc.compiler.schedule import Schedule, schedule
from mycc.compiler.schedule.memory.laws import verify_memory
from mycc.compiler.schedule.schedule import DEFAULTS
from mycc.compiler.schedule.steps import ChooseStep, RepeatStep, Step
from mycc.runtime.errors import RunError

from .triton_interpreter import IndexOutOfRange, TritonInterpreter

#: the interpreter knows no griddepcontrol
DEVICE = replace(DEVICES[90], pdl=False)


#: blocks of 256 threads that an H200 holds at a time
RESIDENT = 132 * 8


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
    result = lower(run_graph_passes(graph, kept=kept_for(["cuda"])), None, "cuda")
    verify_program(result.program, "lowering")
    planned = schedule(result.program, options, device)
    verify_program(planned.program, "scheduling")
    verify_memory(planned.program, planned.memory)
    return DeviceProgram(graph, result, planned, generate_device([graph], [planned], device))


def run_interpreted(
    program: DeviceProgram,
    interpreter: TritonInterpreter,
    inputs: Sequence[torch.Tensor],
    left: dict[Buffer, torch.Tensor] | None = None,
    seed: int = 1,
    state: Mapping[Buffer, torch.Tensor] = MappingProxyType({}),
) -> list[torch.Tensor]:
    """The outputs for inputs of any sizes that the program allows; temporaries start as NaN or 77. `left` takes what
    all memory holds in the end. seed: of random numbers, as a device with RESIDENT blocks draws them. state: what an
    earlier call has left in the model's buffers."""
    sizes = {**_sizes(program.graph, inputs), CALL.name: seed, BLOCKS.name: RESIDENT}
    planned = program.schedule.program
    states = [change.initial for change in program.graph.in_place if change.initial is not None]
    memory: dict[Buffer, torch.Tensor] = {}
    for buffer, tensor in zip((*planned.inputs, *planned.state), (*inputs, *states), strict=True):
        memory[buffer.root] = _flat(tensor)
    memory |= {b.root: state[b.root].clone() for b in planned.state if b.root in state}
    for constant, buffer in program.lowered.constants.items():
        memory[buffer] = constant.layout.pack(constant.tensor.detach()).contiguous().clone()
    entry = program.code.entries[0]
    run = _Run(program, interpreter, memory, sizes)
    run.steps(program.schedule.steps)
    run.flush()
    after = run.memory
    if left is not None:
        left.update(after)
    outputs = []
    for buffer, shape, spec in zip(planned.outputs, entry.output_shapes, program.graph.outputs, strict=False):
        extents = [extent.evaluate(run.sizes) for extent in shape]
        own = [*extents, 2] if spec.dtype.is_complex else extents
        result = after[buffer.root][: math.prod(own)].reshape(own)
        outputs.append(torch.view_as_complex(result) if spec.dtype.is_complex else result)
    return outputs


@dataclass
class _Run:
    """A program while it runs: its memory, the sizes that are known, and launches that wait."""

    program: DeviceProgram
    interpreter: TritonInterpreter
    memory: dict[Buffer, torch.Tensor]
    sizes: dict[str, int]
    waiting: list[tuple[Launch, dict[str, int]]] = field(default_factory=list)

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case int():
                    self._kernel(step)
                case Define(size, buffer):
                    self._define(size, int(self._value(buffer)))
                case ChooseStep(flag, then, other):
                    self.steps(then if self._value(flag) else other)
                case RepeatStep(test, flag, None, None, body):
                    self.steps(test)
                    while flag is not None and self._value(flag):
                        self.steps(body)
                        self.steps(test)
                case RepeatStep(_, _, turn, count, body):
                    assert turn is not None
                    assert count is not None
                    for i in range(count.evaluate(self.sizes)):
                        self.sizes = {**self.sizes, turn.name: i}
                        self.steps(body)

    def _kernel(self, number: int) -> None:
        node, entry = self.program.schedule.program.nodes[number], self.program.code.entries[0]
        for buffer in (*node.reads(), *node.writes()):
            if buffer.root not in self.memory:
                dtype = to_torch(buffer.dtype)
                fill = float("nan") if dtype.is_floating_point else 77 if dtype != torch.bool else True
                elements = max(buffer.size.evaluate(self.sizes), 1)
                self.memory[buffer.root] = torch.full((elements,), fill, dtype=dtype)
        launches = zip(entry.launches, entry.nodes, strict=True)
        self.waiting += [(launch, self.sizes) for launch, owner in launches if owner == number]

    def flush(self) -> None:
        """Runs the launches that wait."""
        if self.waiting:
            used = {b.root for node in self.program.schedule.program.nodes for b in (*node.reads(), *node.writes())}
            memory = {b: t for b, t in self.memory.items() if b in used}
            try:
                self.memory |= self.interpreter.run_each(self.waiting, memory)
            except IndexOutOfRange as failed:
                text = self.waiting[failed.launch][0].failure
                raise RunError(text) if text else failed from None
        self.waiting = []

    def _value(self, buffer: Buffer) -> Any:
        self.flush()
        return self.memory[buffer.root][0].item()

    def _define(self, size: Size, value: int) -> None:
        if value < size.lo or (size.hi is not None and value > size.hi):
            raise RunError(f"{size.name} is {value}, which is out of its range")
        self.sizes = {**self.sizes, size.name: value}
        for buffer in [b for b in self.memory if size in b.size.sizes()]:
            del self.memory[buffer]  # of another turn of a loop
        known = [d.size.name for d in self.program.schedule.program.defines].index(size.name) + 1
        signs = {"eq": operator.eq, "ne": operator.ne, "le": operator.le, "lt": operator.lt}
        for check in self.program.schedule.program.checks:
            if check.defined != known:
                continue
            if not signs[check.op](check.a.evaluate(self.sizes), check.b.evaluate(self.sizes)):
                raise RunError(check.text)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of its elements in order; of complex ones as pairs."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1).clone()


def _sizes(graph: ModelGraph, inputs: Sequence[torch.Tensor]) -> Mapping[str, int]:
    return {s.name: (inputs[s.input].shape[s.dim] - s.offset) // s.scale for s in graph.symbols}

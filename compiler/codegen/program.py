"""The host program: size formulas, memory plan and kernel calls of every entry point, as a view for its template."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..ir.dtypes import DTYPES
from ..ir.index import Index
from ..ir.nodes import Buffer, Check, Define
from ..ir.random import CALL
from ..schedule import Schedule
from ..schedule.steps import ChooseStep, RepeatStep, Step
from .emit import Emitter
from .render import Kernel, KernelCall, environment, render_unit, split_units, unit_headers
from .scope import Param, Scope, size_name


@dataclass(frozen=True)
class BufferView:
    first: int
    last: int
    bytes: str


@dataclass(frozen=True)
class PointerView:
    """A buffer's address; known when the first `known` of the sizes that the run finds are."""

    name: str
    type: str
    address: str
    known: int = 0


@dataclass(frozen=True)
class CallView:
    symbol: str
    args: tuple[str, ...]


@dataclass(frozen=True)
class CallStep:
    """Kernel `number` of the entry point."""

    number: int
    call: CallView
    kind: str = "call"


@dataclass(frozen=True)
class CheckView:
    """A condition, and the C++ string literal to fail with where it does not hold."""

    condition: str
    text: str


@dataclass(frozen=True)
class DefineStep:
    """Computed size `number`, read from `source`; what is checked, and which pointers are known from then on."""

    number: int
    name: str
    source: str
    checks: tuple[CheckView, ...]
    pointers: tuple[PointerView, ...]
    kind: str = "define"


@dataclass(frozen=True)
class ChooseView:
    """A branch: `flag` is a pointer."""

    flag: str
    then: tuple[StepView, ...]
    other: tuple[StepView, ...]
    kind: str = "choose"


@dataclass(frozen=True)
class RepeatView:
    """A loop: count times with the number in `turn`, or, without a turn, while *flag holds behind `test`."""

    test: tuple[StepView, ...]
    flag: str
    turn: str
    count: str
    body: tuple[StepView, ...]
    kind: str = "repeat"


StepView: TypeAlias = CallStep | DefineStep | ChooseView | RepeatView


@dataclass(frozen=True)
class ComputedView:
    """Row of mycc_size: its name, bounds and C++ string literal of what gives it."""

    name: str
    label: str
    min: int
    max: str
    what: str


@dataclass(frozen=True)
class EntryView:
    """An entry point as the template sees it; dimensions and sizes are C++ expressions over the symbols."""

    name: str
    symbol: str
    symbols: tuple[str, ...]
    n_inputs: int
    n_outputs: int
    input_dims: tuple[str, ...]
    output_dims: tuple[str, ...]
    buffers: tuple[BufferView, ...]
    offsets: tuple[int, ...] | None
    arena: int
    pointers: tuple[PointerView, ...]
    calls: tuple[CallView, ...]
    random: str = ""  # the variable for the number of the call, when a kernel draws random numbers
    steps: tuple[StepView, ...] = ()
    computed: tuple[ComputedView, ...] = ()
    known_buffers: tuple[int, ...] = ()  # how many computed sizes have to be known, of each buffer and output
    known_outputs: tuple[int, ...] = ()

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of all sizes, in the order of mycc_call.symbols."""
        return (*self.symbols, *(c.name for c in self.computed))


@dataclass(frozen=True)
class EntrySource:
    """What code generation needs of one entry point beside its schedule."""

    schedule: Schedule
    calls: tuple[KernelCall, ...]
    input_shapes: tuple[tuple[Index, ...], ...]
    output_shapes: tuple[tuple[Index, ...], ...]


def entry_view(entry: EntrySource, position: int, weights: Mapping[Buffer, int]) -> EntryView:
    """weights: byte offset of each const buffer in the weights' data."""
    schedule = entry.schedule
    text = Emitter(Scope(frozenset()), None)
    memory = schedule.memory
    calls = tuple(CallView(c.kernel.symbol, tuple(_argument(p, weights) for p in c.params)) for c in entry.calls)
    pointers = _pointers(entry)
    buffers = tuple(BufferView(t.first, t.last, text.index(t.bytes)) for t in memory.lifetimes)
    return EntryView(
        schedule.program.name,
        f"entry{position}",
        tuple(size_name(s) for s in schedule.program.sizes),
        len(schedule.program.inputs),
        len(schedule.program.outputs),
        tuple(text.index(d) for shape in entry.input_shapes for d in shape),
        tuple(text.index(d) for shape in entry.output_shapes for d in shape),
        buffers,
        memory.offsets,
        memory.arena,
        tuple(p for p in pointers if p.known == 0),
        calls,
        next((p.size for c in entry.calls for p in c.params if p.size == size_name(CALL.name)), ""),
        _steps(schedule, calls, pointers, text),
        tuple(_computed(d) for d in schedule.program.defines),
        tuple(_known(schedule, t.buffer.size) for t in memory.lifetimes),
        tuple(_known(schedule, *shape) for shape in entry.output_shapes),
    )


def _known(schedule: Schedule, *sizes: Index) -> int:
    """How many of the sizes that the run finds have to be known for these."""
    names = [d.size.name for d in schedule.program.defines]
    return max((names.index(s.name) + 1 for size in sizes for s in size.sizes() if s.name in names), default=0)


def _computed(define: Define) -> ComputedView:
    size = define.size
    high = "INT64_MAX" if size.hi is None else str(size.hi)
    return ComputedView(size_name(size.name), size.name, size.lo, high, json.dumps(define.where, ensure_ascii=False))


def _steps(
    schedule: Schedule, calls: Sequence[CallView], pointers: Sequence[PointerView], text: Emitter
) -> tuple[StepView, ...]:
    found = itertools.count(1)

    def define(step: Define) -> DefineStep:
        number = next(found)
        checks = tuple(_check(c, text) for c in schedule.program.checks if c.defined == number)
        known = tuple(p for p in pointers if p.known == number)
        return DefineStep(number - 1, size_name(step.size.name), _name(step.buffer), checks, known)

    def view(step: Step) -> StepView:
        match step:
            case int():
                return CallStep(step, calls[step])
            case Define():
                return define(step)
            case ChooseStep():
                return ChooseView(_name(step.flag), rows(step.then), rows(step.other))
            case RepeatStep():
                flag = "" if step.flag is None else _name(step.flag)
                turn = "" if step.turn is None else size_name(step.turn.name)
                count = "" if step.count is None else text.index(step.count)
                return RepeatView(rows(step.test), flag, turn, count, rows(step.body))

    def rows(steps: Sequence[Step]) -> tuple[StepView, ...]:
        return tuple(view(step) for step in steps)

    return rows(schedule.steps)


def _check(check: Check, text: Emitter) -> CheckView:
    sign = {"eq": "==", "ne": "!=", "le": "<=", "lt": "<"}[check.op]
    condition = f"{text.index(check.a)} {sign} {text.index(check.b)}"
    return CheckView(condition, json.dumps(check.text, ensure_ascii=False))


def _pointers(entry: EntrySource) -> tuple[PointerView, ...]:
    schedule, rows = entry.schedule, []
    for i, b in enumerate(schedule.program.inputs):
        const = "" if b.kind == "inout" else "const "
        rows.append(PointerView(_name(b), f"{const}{DTYPES[b.dtype].cpp} *", f"call->inputs[{i}]"))
    for b in schedule.program.state:
        rows.append(PointerView(_name(b), f"{DTYPES[b.dtype].cpp} *", f"call->state[{b.slot}]"))
    for i, (b, shape) in enumerate(zip(schedule.program.outputs, entry.output_shapes, strict=False)):
        known = _known(schedule, *shape)
        rows.append(PointerView(_name(b), f"{DTYPES[b.dtype].cpp} *", f"call->outputs[{i}]", known))
    for i, t in enumerate(schedule.memory.lifetimes):
        known = _known(schedule, t.buffer.size)
        place = f"call->buffers[{i}]" if known else f"(call->arena + call->offsets[{i}])"
        rows.append(PointerView(_name(t.buffer), f"{DTYPES[t.buffer.dtype].cpp} *", place, known))
    used = {_name(p.buffer) for p in _all_params(schedule)} | {_name(d.buffer) for d in schedule.program.defines}
    return tuple(r for r in rows if r.name in used)


def _all_params(schedule: Schedule) -> Sequence[Param]:
    found = []
    for node in schedule.program.nodes:
        for b in (*node.reads(), *node.writes()):
            found.append(Param(b.name, "", b))
    return found


def _name(buffer: Buffer | None) -> str:
    assert buffer is not None
    buffer = buffer.root
    return f"{buffer.kind}_{''.join(ch if ch.isalnum() else '_' for ch in buffer.name)}"


def _argument(param: Param, weights: Mapping[Buffer, int]) -> str:
    if param.buffer is None:
        return param.size
    if param.buffer.kind == "const":
        return f"(const {DTYPES[param.buffer.dtype].cpp} *)(call->weights + {weights[param.buffer]})"
    return _name(param.buffer)


@dataclass(frozen=True)
class Sources:
    """Generated texts by file name: translation units and the headers that they include."""

    units: dict[str, str]
    headers: dict[str, str]
    kernels: int

    def __str__(self) -> str:
        parts = [f"// ==== {name}\n{text}" for name, text in {**self.headers, **self.units}.items()]
        return "\n".join(parts)


def render_sources(
    entries: Sequence[EntryView], kernels: Sequence[Kernel], target: str, micro: str, units: int, n_state: int = 0
) -> Sources:
    """All sources of one target; `micro` is the micro-kernel header of its instruction set."""
    env = environment("host")
    texts = {name: render_unit(group, unit_headers(group)) for name, group in split_units(kernels, units).items()}
    texts["program.cpp"] = env.get_template("program.cpp.j2").render(entries=entries, target=target, n_state=n_state)
    for kernel in kernels:
        texts.update(kernel.units)
    declarations = env.get_template("kernels.h.j2").render(kernels=kernels)
    return Sources(texts, {"kernels.h": declarations, "micro_kernels.h": micro}, len(kernels))

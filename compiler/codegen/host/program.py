"""The host program: size formulas, memory plan and kernel calls of every entry point, as a view for its template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.index import Index
from ...ir.random import CALL
from ...schedule import Schedule
from ..cpu.headers import MICRO
from ..cpu.machine_header import MACHINE
from ..cpu.render import (
    Kernel,
    KernelCall,
    render_unit,
    unit_headers,
)
from ..cpu.scope import Param, size_name
from ..environments import environment
from .size_formulas import SizeViews, size_views
from .step_views import (
    CallStep,
    ComputedView,
    PointerView,
    StepView,
    StepViews,
    buffer_pointer,
    computed_views,
    known,
    name_of,
)


@dataclass(frozen=True)
class CallView:
    symbol: str
    args: tuple[str, ...]


@dataclass(frozen=True)
class EntryView:
    """An entry point as the template sees it; dimensions and sizes are C++ expressions over the symbols."""

    name: str
    symbol: str
    symbols: tuple[str, ...]
    n_inputs: int
    n_outputs: int
    formulas: SizeViews
    pointers: tuple[PointerView, ...]
    calls: tuple[CallView, ...]
    random: str = ""  # the variable for the number of the call, when a kernel draws random numbers
    steps: tuple[StepView, ...] = ()
    computed: tuple[ComputedView, ...] = ()
    known_outputs: tuple[int, ...] = ()  # how many computed sizes have to be known, of each output

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
    calls = tuple(CallView(c.kernel.symbol, tuple(_argument(p, weights) for p in c.params)) for c in entry.calls)
    steps = StepViews(schedule, lambda name: f"holds({name})", lambda name: f"{name}[0]")
    pointers = _pointers(entry)
    return EntryView(
        schedule.program.name,
        f"entry{position}",
        tuple(size_name(s) for s in schedule.program.sizes),
        len(schedule.program.inputs),
        len(schedule.program.outputs),
        size_views(schedule, entry.input_shapes, entry.output_shapes),
        tuple(p for p in pointers if p.known == 0),
        calls,
        next((p.size for c in entry.calls for p in c.params if p.size == size_name(CALL.name)), ""),
        steps.rows(pointers, [(CallStep(i, call),) for i, call in enumerate(calls)]),
        computed_views(schedule),
        tuple(known(schedule, *shape) for shape in entry.output_shapes),
    )


def _pointers(entry: EntrySource) -> tuple[PointerView, ...]:
    schedule, rows = entry.schedule, []
    for i, b in enumerate(schedule.program.inputs):
        const = "" if b.kind == "inout" else "const "
        rows.append(PointerView(name_of(b), f"{const}{DTYPES[b.dtype].cpp} *", f"call->inputs[{i}]"))
    for b in schedule.program.state:
        rows.append(PointerView(name_of(b), f"{DTYPES[b.dtype].cpp} *", f"call->state[{b.slot}]"))
    for i, (b, shape) in enumerate(zip(schedule.program.outputs, entry.output_shapes, strict=False)):
        rows.append(PointerView(name_of(b), f"{DTYPES[b.dtype].cpp} *", f"call->outputs[{i}]", known(schedule, *shape)))
    for i, t in enumerate(schedule.memory.lifetimes):
        here = [t.buffer, *(b for b, under in schedule.memory.over.items() if under is t.buffer)]
        rows += [buffer_pointer(schedule, i, name_of(b), f"{DTYPES[b.dtype].cpp} *") for b in here]
    used = {name_of(p.buffer) for p in _all_params(schedule)} | {name_of(d.buffer) for d in schedule.program.defines}
    return tuple(r for r in rows if r.name in used)


def _all_params(schedule: Schedule) -> Sequence[Param]:
    found = []
    for node in schedule.program.nodes:
        for b in (*node.reads(), *node.writes()):
            found.append(Param(b.name, "", b))
    return found


def _argument(param: Param, weights: Mapping[Buffer, int]) -> str:
    if param.buffer is None:
        return param.size
    start = f" + {param.start}" if param.start else ""
    if param.buffer.kind == "const":
        return f"(const {DTYPES[param.buffer.dtype].cpp} *)(call->weights + {weights[param.buffer]}){start}"
    return f"{name_of(param.buffer)}{start}"


@dataclass(frozen=True)
class Sources:
    """Generated texts by file name: translation units and the headers that they include."""

    units: dict[str, str]
    headers: dict[str, str]
    kernels: int

    def __str__(self) -> str:
        """The texts; of those that are the same for every model, tiles and numbers, the names and sizes."""
        parts = []
        for name, text in {**self.headers, **self.units}.items():
            own = name in (MICRO, MACHINE) or name.startswith("tiles_")
            parts.append(f"// ==== {name}" + (f": {len(text)} characters of mycc's own\n" if own else f"\n{text}"))
        return "\n".join(parts)


def render_sources(
    entries: Sequence[EntryView],
    kernels: Sequence[Kernel],
    target: str,
    headers: Mapping[str, str],
    units: Mapping[str, Sequence[Kernel]],
    tiles: Mapping[str, str],
    n_state: int = 0,
    contract: str = "",
) -> Sources:
    """All sources of one target. headers: of its instruction set, its tiles and its numbers; units: the kernels of each
    translation unit; tiles: units of its tiles."""
    env = environment("host")
    texts = {name: render_unit(group, unit_headers(group)) for name, group in units.items()}
    template = env.get_template("program.cpp.j2")
    texts["program.cpp"] = template.render(entries=entries, target=target, n_state=n_state, contract=contract)
    texts.update(tiles)
    for kernel in kernels:
        texts.update(kernel.units)
    declarations = env.get_template("kernels.h.j2").render(kernels=kernels)
    return Sources(texts, {"kernels.h": declarations, **headers}, len(kernels))

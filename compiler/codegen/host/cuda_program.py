"""The host program of a GPU target: size formulas, memory plan and kernel launches, as a view for its template.

    launch(call, 3 /* gemm_gelu_bf16 */, floor_div(size_rows + 63, 64), 48, 1, input_x, call->weights + 4096, temp_h);

One C++ file; the compiled kernels lie beside it in one member of the package (`pack_images`).
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.expr import Const
from ...ir.index import Index, Size
from ...ir.random import BLOCKS, CALL
from ...schedule import Schedule
from ..cpu.emit import Emitter, literal
from ..cpu.scope import Scope, size_name
from ..cuda.kernel import (
    BufferArg,
    Launch,
    LaunchArg,
    LaunchArgument,
    NumberArg,
    SizeArg,
    StatusArg,
    WorkArg,
    ZerosArg,
)
from ..environments import environment
from .size_formulas import SizeViews, size_views
from .size_text import SizeText
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

__all__ = ["CompiledKernel", "CudaEntrySource", "cuda_entry_view", "pack_images", "render_cuda_program"]

DEPENDENT = 1  # MYCC_GPU_DEPENDENT of abi.h
IMAGE_ALIGNMENT = 64
#: kind of the buffer of the memory plan that WorkArg points to
WORK = "work"
_BYTES = {"i1": 1, "i8": 1, "u8": 1, "i16": 2, "fp16": 2, "bf16": 2, "i32": 4, "u32": 4, "fp32": 4, "i64": 8, "fp64": 8}


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel's image (a cubin, or PTX that ends with NUL) and what its launch needs of the compiler's metadata.

    threads: of a block. shared: bytes of dynamic shared memory. scratch_bytes, scratch_alignment: global scratch of a
    block. hidden: pointers that the compiler added behind the parameters.
    """

    symbol: str
    image: bytes
    threads: int
    shared: int
    scratch_bytes: int = 0
    scratch_alignment: int = 1
    hidden: int = 2


@dataclass(frozen=True)
class CudaEntrySource:
    """What the host program needs of one entry point. The launches carry the final names of their kernels; `nodes` says
    for each of them which node of the schedule it belongs to."""

    schedule: Schedule
    launches: tuple[Launch, ...]
    nodes: tuple[int, ...]
    input_shapes: tuple[tuple[Index, ...], ...]
    output_shapes: tuple[tuple[Index, ...], ...]


@dataclass(frozen=True)
class LaunchView:
    kernel: int
    symbol: str
    comment: str
    grid: tuple[str, ...]
    args: tuple[str, ...]


@dataclass(frozen=True)
class CudaEntryView:
    """An entry point as the template sees it; dimensions, sizes and grids are C++ expressions over the symbols."""

    name: str
    symbol: str
    symbols: tuple[str, ...]
    n_inputs: int
    n_outputs: int
    formulas: SizeViews
    pointers: tuple[PointerView, ...]
    calls: tuple[LaunchView, ...]
    steps: tuple[StepView, ...]
    computed: tuple[ComputedView, ...]
    known_outputs: tuple[int, ...]  # how many computed sizes have to be known, of each output
    fetches: bool  # the host decides by what the device has computed
    zero_bytes: str  # "" when no kernel counts
    failures: tuple[str, ...]  # C++ string literals; empty when no kernel can fail
    random: str  # the variable for the seed of the call; "" when no kernel draws random numbers
    blocks: str  # that for the blocks that the device holds; "" when no kernel asks for it

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of all sizes, in the order of mycc_call.symbols."""
        return (*self.symbols, *(c.name for c in self.computed))


@dataclass(frozen=True)
class KernelView:
    symbol: str
    offset: int
    bytes: int
    threads: int
    shared: int
    flags: int
    param_bytes: tuple[int, ...]
    scratch_params: int
    scratch_bytes: int
    scratch_alignment: int


def pack_images(kernels: Sequence[CompiledKernel]) -> tuple[bytes, tuple[int, ...]]:
    """All images in one piece, equal ones once, and the offset of each kernel's."""
    packed, places, offsets = bytearray(), dict[bytes, int](), []
    for kernel in kernels:
        if kernel.image not in places:
            packed.extend(bytes(-len(packed) % IMAGE_ALIGNMENT))
            places[kernel.image] = len(packed)
            packed.extend(kernel.image)
        offsets.append(places[kernel.image])
    return bytes(packed), tuple(offsets)


def render_cuda_program(
    entries: Sequence[CudaEntrySource],
    kernels: Sequence[CompiledKernel],
    target: str,
    weights: Mapping[Buffer, int],
    device_weights: tuple[int, int],
    n_state: int = 0,
    contract: str = "",
) -> str:
    """The text of the host program.

    kernels: all distinct ones, in the order of `pack_images`. weights: byte offset of each const buffer in the weights'
    data. device_weights: the part of that data which the kernels read. contract: what the program says that it was
    compiled for (package/contract.py); "": nothing.
    """
    numbers = {k.symbol: i for i, k in enumerate(kernels)}
    views = [cuda_entry_view(entry, i, numbers, weights) for i, entry in enumerate(entries)]
    launched = {launch.kernel.symbol: launch for entry in entries for launch in entry.launches}
    _, offsets = pack_images(kernels)
    rows = [_kernel_view(k, offset, launched[k.symbol]) for k, offset in zip(kernels, offsets, strict=True)]
    template = environment("host").get_template("cuda_program.cpp.j2")
    return template.render(
        target=target, entries=views, kernels=rows, weights=device_weights, n_state=n_state, contract=contract
    )


def cuda_entry_view(
    entry: CudaEntrySource, position: int, numbers: Mapping[str, int], weights: Mapping[Buffer, int]
) -> CudaEntryView:
    """numbers: of the kernels, by symbol."""
    schedule, text = entry.schedule, Emitter(Scope(frozenset()), None)
    program = schedule.program
    calls = _launches(entry, text, numbers, weights)
    pointers = _pointers(entry)
    rows = [
        tuple(CallStep(i, calls[i]) for i, owner in enumerate(entry.nodes) if owner == node)
        for node in range(len(program.nodes))
    ]
    steps = StepViews(schedule, lambda name: f"holds(call, {name})", lambda name: f"number(call, {name})")
    return CudaEntryView(
        program.name,
        f"entry{position}",
        tuple(size_name(s) for s in program.sizes),
        len(program.inputs),
        len(program.outputs),
        size_views(_by_launch(entry), entry.input_shapes, entry.output_shapes),
        tuple(p for p in pointers if p.known == 0),
        calls,
        steps.rows(pointers, rows),
        computed_views(schedule),
        tuple(known(schedule, *shape) for shape in entry.output_shapes),
        bool(program.defines) or any(region.flag is not None for region in program.regions),
        _zero_bytes(entry.launches),
        _failures(entry.launches),
        _given(CALL, entry),
        _given(BLOCKS, entry),
    )


def _by_launch(entry: CudaEntrySource) -> Schedule:
    """The schedule with the lifetimes of its buffers in launches: several nodes may share one, or one have several."""
    owners, memory = entry.nodes, entry.schedule.memory

    def last(node: int) -> int:
        return max(bisect_right(owners, node) - 1, 0)

    lifetimes = tuple(
        replace(t, first=min(bisect_left(owners, t.first), last(t.first)), last=last(t.last)) for t in memory.lifetimes
    )
    return replace(entry.schedule, memory=replace(memory, lifetimes=lifetimes))


def _given(size: Size, entry: CudaEntrySource) -> str:
    """The variable of what the runtime gives to every call; "" when no launch takes it."""
    return size_name(size.name) if any(size in _sizes(launch) for launch in entry.launches) else ""


def _launches(
    entry: CudaEntrySource, text: Emitter, numbers: Mapping[str, int], weights: Mapping[Buffer, int]
) -> tuple[LaunchView, ...]:  # fmt: skip
    work = _work_pointers(entry)
    return tuple(
        LaunchView(
            numbers[launch.kernel.symbol],
            launch.kernel.symbol,
            _comment(launch),
            tuple(text.index(g) for g in launch.grid),
            tuple(
                work[known(entry.schedule, a.bytes)]
                if isinstance(a, WorkArg)
                else _argument(a, p.type, i + 1, text, weights)
                for a, p in zip(launch.args, launch.kernel.params, strict=True)
            ),
        )
        for i, launch in enumerate(entry.launches)
    )


def _work_pointers(entry: CudaEntrySource) -> dict[int, str]:
    """The scratch memory of launches by how many of the sizes that the run finds it needs to know."""
    buffers = [t.buffer for t in entry.schedule.memory.lifetimes if t.buffer.kind == WORK]
    return {known(entry.schedule, b.size): b.name for b in buffers}


def _sizes(launch: Launch) -> set[object]:
    """The atoms of what a launch passes as numbers."""
    return {atom for a in launch.args if isinstance(a, SizeArg) for atom in a.value.atoms()}


def _kernel_view(kernel: CompiledKernel, offset: int, launch: Launch) -> KernelView:
    params = tuple(8 if p.type.startswith("*") else _BYTES[p.type] for p in launch.kernel.params)
    return KernelView(
        kernel.symbol, offset, len(kernel.image), kernel.threads, kernel.shared, DEPENDENT if launch.kernel.pdl else 0,
        params, kernel.hidden, kernel.scratch_bytes, kernel.scratch_alignment,
    )  # fmt: skip


def _pointers(entry: CudaEntrySource) -> tuple[PointerView, ...]:
    """Addresses of the buffers that launches name, and of those that the host reads."""
    schedule, program = entry.schedule, entry.schedule.program
    used = {a.buffer.root for launch in entry.launches for a in launch.args if isinstance(a, BufferArg)}
    used |= {d.buffer.root for d in program.defines} | {r.flag.root for r in program.regions if r.flag is not None}
    if any(isinstance(a, WorkArg) for launch in entry.launches for a in launch.args):
        used |= {t.buffer for t in schedule.memory.lifetimes if t.buffer.kind == WORK}
    given = [(b, "const uint8_t *", f"call->inputs[{i}]", 0) for i, b in enumerate(program.inputs)]
    given += [(b, "uint8_t *", f"call->state[{b.slot}]", 0) for b in program.state]
    for i, (b, shape) in enumerate(zip(program.outputs, entry.output_shapes, strict=False)):
        given.append((b, "uint8_t *", f"call->outputs[{i}]", known(schedule, *shape)))
    rows = [PointerView(name_of(b), kind, address, needed) for b, kind, address, needed in given if b in used]
    for i, t in enumerate(schedule.memory.lifetimes):
        if t.buffer in used:
            name = t.buffer.name if t.buffer.kind == WORK else name_of(t.buffer)
            rows.append(buffer_pointer(schedule, i, name, "uint8_t *"))
    return tuple(rows)


def _argument(arg: LaunchArgument, kind: str, launch: int, text: Emitter, weights: Mapping[Buffer, int]) -> str:
    """The C++ of an argument; `kind` is the parameter's type."""
    match arg:
        case BufferArg(buffer, offset):
            distance = offset * DTYPES[buffer.dtype].size
            if buffer.kind == "const":
                return f"call->weights + {text.index(distance + weights[buffer])}"
            name = name_of(buffer)
            return name if distance.constant == 0 else f"{name} + ({text.index(distance)})"
        case SizeArg(value):
            return f"{kind}({text.index(value)})"
        case NumberArg(value):
            return ("true" if value else "false") if isinstance(value, bool) else literal(Const(value, "f32")).text
        case ZerosArg():
            return "call->zeros"
        case WorkArg():
            raise AssertionError("scratch memory is a pointer of the entry point's")
        case StatusArg():
            return "call->status"
        case LaunchArg():
            return f"i32({launch})"


def _comment(launch: Launch) -> str:
    return launch.origin.describe().replace("\\", "/").replace("\n", " ") or launch.kernel.symbol


def _zero_bytes(launches: Sequence[Launch]) -> str:
    """The largest of what the launches ask for: each leaves the memory as it was."""
    text = SizeText()
    sizes = dict.fromkeys(text.index(a.bytes) for launch in launches for a in launch.args if isinstance(a, ZerosArg))
    largest = ""
    for size in sizes:
        largest = f"maximum({largest}, {size})" if largest else size
    return largest


def _failures(launches: Sequence[Launch]) -> tuple[str, ...]:
    if not any(isinstance(a, StatusArg) for launch in launches for a in launch.args):
        return ()
    texts = (launch.failure or f"index out of range in {_comment(launch)}" for launch in launches)
    return tuple(json.dumps(text, ensure_ascii=False) for text in texts)

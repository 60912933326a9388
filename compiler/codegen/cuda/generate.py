"""All kernels and launches of a GPU target: every node of every entry point becomes one or several launches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from ....runtime.errors import CompileError
from ...ir.buffers import Buffer
from ...ir.index import ZERO, Index, maximum
from ...ir.nodes import Map, Nest, Reduce, Scan, Scatter
from ...ir.plans.gpu import (
    AttentionPlan,
    GradientPlan,
    MapPlan,
    ProductPlan,
    RoutinePlan,
    RowsPlan,
    ScanPlan,
    ScatterPlan,
)
from ...ir.plans.kernel import Kernel
from ...ir.plans.tiles import Tile
from ...ir.program import AnyNode, Assert
from ...ir.routines import Custom, Routine
from ...ir.structured import Attention, AttentionGradient, Conv, Gemm
from ...lower.core.shapes import sizes_of
from ...machine.gpu import Device
from ...model.graph import ModelGraph
from ...schedule import Schedule
from ...schedule.memory.plan import ALIGNMENT, Lifetime, MemoryPlan
from ...schedule.passes import Context
from ...schedule.planning import plan_kernel, plan_with_tile
from ...schedule.remarks import Remarks
from ...tune.choices.keys import kernel_key
from ..host.cuda_program import WORK, CudaEntrySource
from ..host.step_views import known
from .assertions import assert_launch
from .custom import custom_launch
from .kernel import Launch, TritonKernel, TritonPool, WorkArg, grid
from .maps import map_launch, maps_launch
from .module import render
from .ordered import scan_launch, scatter_launches
from .routines import routine_launches
from .rows import rows_launch
from .structured import matrix_launches

__all__ = ["DeviceCode", "generate_device"]


@dataclass(frozen=True)
class DeviceCode:
    """The distinct kernels of a target, and for every entry point its launches in order."""

    kernels: tuple[TritonKernel, ...]
    entries: tuple[CudaEntrySource, ...]

    def __str__(self) -> str:
        return "\n\n".join(f"# ==== {k.symbol}.py\n{k.source}" for k in self.kernels)


def generate_device(
    graphs: Sequence[ModelGraph],
    schedules: Sequence[Schedule],
    device: Device,
    tiles: Mapping[str, Tile] = MappingProxyType({}),
) -> DeviceCode:
    """Kernels that render alike are shared by all entry points. tiles: what was chosen for kernels, by key."""
    pool = TritonPool()
    entries = []
    for graph, schedule in zip(graphs, schedules, strict=True):
        launches: list[Launch] = []
        owners: list[int] = []
        given = zip(schedule.program.nodes, schedule.kernels, strict=True)
        kernels = [_with_tile(node, kernel, device, tiles) for node, kernel in given]
        for i, name, run in _runs(schedule.names, kernels):
            found = (maps_launch(run, name),) if run else kernel_launches(kernels[i], name, device)
            own = [pool.named(launch) for launch in found]
            launches += own
            owners += [i] * len(own)
        sizes = sizes_of(graph)
        inputs = tuple(sizes.shape(spec.shape) for spec in graph.inputs[: graph.n_arguments])
        outputs = tuple(sizes.shape(spec.shape) for spec in graph.outputs[: graph.n_results])
        planned = replace(schedule, kernels=tuple(kernels), memory=with_work(schedule, launches))
        entries.append(CudaEntrySource(planned, tuple(launches), tuple(owners), inputs, outputs))
    return DeviceCode(pool.kernels(), tuple(entries))


def _runs(names: Sequence[str], kernels: Sequence[Kernel]) -> Iterator[tuple[int, str, list[tuple[Map, MapPlan]]]]:
    """The number and the name of each kernel, and the maps that share its launch: none where it is its own."""
    numbered = enumerate(zip(names, kernels, strict=True))
    for together, run in itertools.groupby(numbered, lambda row: _shares(row[1][1])):
        if not together:
            yield from ((i, name, []) for i, (name, _) in run)
            continue
        rows = list(run)
        maps = [(k.node, k.plan) for _, (_, k) in rows]
        i, (name, _) = rows[0]
        yield i, name, [(node, plan) for node, plan in maps if isinstance(node, Map) and isinstance(plan, MapPlan)]


def _shares(kernel: Kernel) -> bool:
    return isinstance(kernel.plan, MapPlan) and kernel.plan.together


def _with_tile(node: AnyNode, kernel: Kernel, device: Device, tiles: Mapping[str, Tile]) -> Kernel:
    """The kernel of a scheduled node with the tile that was chosen for its key in its plan, and all that follows from
    it.

    Raises:
        CompileError: the tile does not fit the node.
    """
    tile = tiles.get(kernel_key(node) or "")
    if tile is None:
        return kernel
    try:
        return plan_with_tile(node, device, tile)
    except ValueError as error:
        raise CompileError(
            f"the tile that the lock chooses for {node.origin.describe()} does not fit: {error}",
            hint="Tune the model again with --tune.",
        ) from None


def kernel_launches(kernel: Kernel, name: str, device: Device, tile: Tile | None = None) -> tuple[Launch, ...]:
    """The launches of one kernel of the schedule; the name is that of a new one.

    tile: of a matrix node, in place of the cost model's.

    Raises:
        ValueError: the tile does not fit the node.
    """
    if tile is not None:
        kernel = plan_with_tile(kernel.node, device, tile)
    node = kernel.node
    if kernel.plan is None and not isinstance(node, Custom):  # it has no elements
        return (Launch(TritonKernel(name, render("empty.py.j2", None), ()), grid(ZERO), (), node.origin),)
    match node, kernel.plan:
        case Map(), MapPlan() as plan:
            return (map_launch(node, name, plan),)
        case ((Reduce() | Nest()), RowsPlan() as plan):
            return (rows_launch(node, name, plan),)
        case (
            (Gemm() | Conv() | Attention() | AttentionGradient()),
            (ProductPlan() | AttentionPlan() | GradientPlan()) as plan,
        ):
            return matrix_launches(node, name, plan)
        case Scan(), ScanPlan() as plan:
            return (scan_launch(node, name, plan),)
        case Scatter(), ScatterPlan() as plan:
            return scatter_launches(node, name, plan)
        case (Assert(), RoutinePlan(parts=(part,))):
            return (assert_launch(node, name, part),)
        case Custom(), _:
            return (custom_launch(node, name),)
        case (Routine(), RoutinePlan() as plan):
            return routine_launches(node, name, plan)
    raise TypeError(type(node).__name__)


def launches_of(node: AnyNode, device: Device, name: str, tile: Tile | None = None) -> tuple[Launch, ...]:
    """The launches of a node of its own, which is planned for the device. tile, errors: as of kernel_launches()."""
    kernel = Kernel(node) if tile is not None else plan_kernel(node, Context(Remarks(), device))
    return kernel_launches(kernel, name, device, tile)


def with_work(schedule: Schedule, launches: Sequence[Launch]) -> MemoryPlan:
    """The memory plan with the scratch memory of the launches: one more buffer, alive all the time, as long as any
    launch needs; with sizes that the run finds, one for each number of them that has to be known."""
    memory = schedule.memory
    for needed, size in sorted(_work_sizes(schedule, launches).items()):
        name = f"{WORK}{needed or ''}"
        memory = _with_buffer(memory, Buffer(name, "u8", size, WORK), max(len(schedule.program.nodes) - 1, 0))
    return memory


def _work_sizes(schedule: Schedule, launches: Sequence[Launch]) -> dict[int, Index]:
    sizes: dict[int, Index] = {}
    for launch in launches:
        for arg in launch.args:
            if isinstance(arg, WorkArg):
                needed = known(schedule, arg.bytes)
                sizes[needed] = maximum(sizes[needed], arg.bytes) if needed in sizes else arg.bytes
    return sizes


def _with_buffer(memory: MemoryPlan, buffer: Buffer, last: int) -> MemoryPlan:
    lifetimes = (*memory.lifetimes, Lifetime(buffer, 0, last))
    size = buffer.size.constant
    if size is None or (memory.offsets is None and memory.lifetimes):
        return MemoryPlan(lifetimes, None, 0, 0)
    rounded = -(-size // ALIGNMENT) * ALIGNMENT
    offsets = (*(memory.offsets or ()), memory.arena)
    return MemoryPlan(lifetimes, offsets, memory.arena + rounded, memory.live + rounded)

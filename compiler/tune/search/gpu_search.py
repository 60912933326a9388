"""The tuner of GPU kernels: each candidate takes its place in the whole graph of the model, which is then timed.

A kernel alone would find its weights in the cache and the device idle; in the graph it has its epilogue, cold weights,
and neighbours that begin before it ends. Kernels are searched one key after the other, each in a graph that has what
won before; the time of a candidate is that of the graph.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ....runtime.errors import CompileError
from ....runtime.roof import machine_facts
from ...build.compile import BuildOptions
from ...build.images import KernelImage
from ...build.triton_compile import compile_kernels
from ...codegen.cuda.generate import kernel_launches
from ...codegen.cuda.kernel import Launch, TritonKernel, TritonPool
from ...ir.plans import kernel as planned
from ...ir.plans.tiles import Tile
from ...ir.structured import Attention, Conv, Gemm
from ...machine.gpu import Device
from ...machine.targets import Target
from ...model.graph import ModelGraph
from ...schedule import Schedule
from ...weights.collect import Weights
from ..choices.choices import COST_MODEL, Choice
from ..choices.keys import kernel_key
from .gpu_candidates import tile_candidates
from .gpu_driver import Gpu, Graph, GraphLaunch, Kernel
from .gpu_memory import EntryMemory, upload_weights
from .gpu_space import choice_of
from .lock import Lock, LockedKernel, Trial

__all__ = ["search_gpu"]

#: what a candidate has to save of the graph's time, as a part of it and in microseconds, beyond the noise
LEAST_PART, LEAST_GAIN = 0.001, 0.3
#: measurements of a candidate, in turns with the best so far, and how long each takes
TURNS, TURN_US = 5, 4000.0
#: how far results may be from the cost model's, relative in the norm: they are rounded elsewhere, and a kernel that is
#: wrong is far off
AGREEMENT = 0.1


@dataclass
class _Key:
    """The kernels of a key: (entry, node, name) of each, candidates, and what was measured."""

    places: list[tuple[int, planned.Kernel, str]] = field(default_factory=list)
    candidates: tuple[Tile, ...] = ()
    trials: list[Trial] = field(default_factory=list)
    chosen: Choice = COST_MODEL


def search_gpu(
    graphs: Sequence[ModelGraph],
    schedules: Sequence[Schedule],
    weights: Weights,
    target: Target,
    device: Device,
    options: BuildOptions,
) -> Lock:
    """Measures the candidates of all matrix kernels of a model on the GPU of this machine.

    Raises:
        CompileError: there is no GPU that runs the target's code; a kernel of the cost model fails.
    """
    for program in (schedule.program for schedule in schedules):
        if program.defines or program.regions:
            raise CompileError(
                f"'{program.name}' cannot be tuned on a GPU: its host decides about launches (sizes that the run "
                "finds, branches, loops), and what is measured are graphs of them",
                hint="Compile it without --tune.",
            )
    keys = _keys(schedules, device)
    pool = _Launches(keys, schedules, device)
    images = pool.compile(target, options)
    gpu = Gpu()
    try:
        base = upload_weights(gpu, weights)
        memory = [EntryMemory.of(gpu, g, s, weights, base) for g, s in zip(graphs, schedules, strict=True)]
        bench = _Bench(gpu, memory, pool, images, device.shared)
        plain = bench.best
        for key, row in keys.items():
            row.trials.append(Trial(COST_MODEL, round(bench.best, 2)))
            for tile in row.candidates:
                us = bench.attempt(key, tile)
                row.trials.append(Trial(choice_of(tile), us))
            row.chosen = bench.settle(key)
        machine = {**machine_facts(), "gpu": gpu.name}
        chosen = bench.best
    finally:
        gpu.close()
    rows = {key: LockedKernel(row.chosen, tuple(row.trials)) for key, row in sorted(keys.items())}
    from .... import __version__

    return Lock(__version__, {target.name: rows}, machine, 1, {"cost_model": plain, "chosen": chosen})


def _keys(schedules: Sequence[Schedule], device: Device) -> dict[str, _Key]:
    found: dict[str, _Key] = {}
    for i, schedule in enumerate(schedules):
        for node, name, kernel in zip(schedule.program.nodes, schedule.names, schedule.kernels, strict=True):
            key = kernel_key(node)
            if key is None or not isinstance(node, (Gemm, Conv, Attention)):
                continue
            row = found.setdefault(key, _Key(candidates=tile_candidates(node, device)))
            row.places.append((i, kernel, name))
    return found


class _Launches:
    """The launches of every node, with the cost model's tile and with every candidate; equal kernels are one."""

    def __init__(self, keys: Mapping[str, _Key], schedules: Sequence[Schedule], device: Device) -> None:
        self._pool, self._device = TritonPool(), device
        self.nodes: list[list[tuple[str | None, tuple[Launch, ...]]]] = []
        self.tried: dict[tuple[str, Tile], dict[int, tuple[Launch, ...]]] = {}
        for schedule in schedules:
            scheduled = zip(schedule.program.nodes, schedule.names, schedule.kernels, strict=True)
            self.nodes.append([(kernel_key(node), self._named(kernel, name)) for node, name, kernel in scheduled])
        for key, row in keys.items():
            for tile in row.candidates:
                try:
                    own = {id(kernel.node): self._named(kernel, name, tile) for _, kernel, name in row.places}
                    self.tried[key, tile] = own
                except ValueError:  # an epilogue of this key that the tile does not take
                    continue
        self.owners = [[id(kernel.node) for kernel in schedule.kernels] for schedule in schedules]

    def _named(self, kernel: planned.Kernel, name: str, tile: Tile | None = None) -> tuple[Launch, ...]:
        return tuple(self._pool.named(launch) for launch in kernel_launches(kernel, name, self._device, tile))

    def compile(self, target: Target, options: BuildOptions) -> dict[str, KernelImage]:
        """Images by symbol; a candidate that does not compile has none."""
        needed = {launch.kernel.symbol for entry in self.nodes for _, own in entry for launch in own}
        kernels = self._pool.kernels()
        compiled = compile_kernels(kernels, target, options, optional=frozenset(k.symbol for k in kernels) - needed)
        return {image.symbol: image for image in compiled.images}

    def kernels(self) -> dict[str, TritonKernel]:
        return {k.symbol: k for k in self._pool.kernels()}

    def entries(self, chosen: Mapping[str, Tile]) -> Iterator[list[Launch]]:
        """The launches of each entry point when keys have these tiles."""
        for entry, owners in zip(self.nodes, self.owners, strict=True):
            found: list[Launch] = []
            for (key, own), owner in zip(entry, owners, strict=True):
                tile = chosen.get(key) if key is not None else None
                found += self.tried[key, tile][owner] if key is not None and tile is not None else own
            yield found


class _Bench:
    """The graphs of a model, and the tiles that are best so far."""

    def __init__(
        self,
        gpu: Gpu,
        memory: Sequence[EntryMemory],
        launches: _Launches,
        images: Mapping[str, KernelImage],
        shared: int,
    ) -> None:
        """shared: bytes of shared memory that a kernel may have."""
        self._shared = shared
        self._gpu, self._memory, self._launches, self._images = gpu, memory, launches, images
        self._sources = launches.kernels()
        self._kernels: dict[str, Kernel] = {}
        self._scratch: dict[int, int] = {}
        self._chosen: dict[str, Tile] = {}
        self._won: dict[str, tuple[float, Tile]] = {}
        self._graphs = self._build(self._chosen)
        self._runs = 20
        self.best = self._time(self._graphs)
        self._wanted = [memory.results(gpu) for memory in self._memory]
        self._runs = max(3, min(200, round(TURN_US / self.best)))
        self.best = min(self._time(self._graphs) for _ in range(TURNS))

    def attempt(self, key: str, tile: Tile) -> float | None:
        """Microseconds of a run with a candidate; None when it cannot run."""
        own = self._launches.tried.get((key, tile), {})
        launches = [launch for group in own.values() for launch in group]
        if not launches or not all(self._runs_here(launch) for launch in launches):
            return None
        graphs = self._build({**self._chosen, key: tile})
        self._time(graphs)
        if not self._agrees():
            return None
        pairs = [(self._time(self._graphs), self._time(graphs)) for _ in range(TURNS)]
        for graph in graphs:
            graph.close()
        gain = statistics.median(mine - theirs for mine, theirs in pairs)
        if gain > max(LEAST_GAIN, LEAST_PART * self.best, self._won.get(key, (0.0, tile))[0]):
            self._won[key] = gain, tile
        return self.best - gain

    def _agrees(self) -> bool:
        """Whether the last run gave what the cost model's kernels give, but for rounding."""
        for memory, wanted in zip(self._memory, self._wanted, strict=True):
            for found, want in zip(memory.results(self._gpu), wanted, strict=True):
                if want.isfinite().all() and not (found - want).norm() <= AGREEMENT * want.norm():
                    return False
        return True

    def _runs_here(self, launch: Launch) -> bool:
        """Whether it compiled, and there is memory enough for it."""
        image = self._images.get(launch.kernel.symbol)
        fits = image is not None and image.facts["shared"] <= self._shared
        return fits and all(memory.fits(launch) for memory in self._memory)

    def settle(self, key: str) -> Choice:
        """Keeps the best candidate of a key, measured once more, for all that follow."""
        if key not in self._won:
            return COST_MODEL
        _, tile = self._won[key]
        graphs = self._build({**self._chosen, key: tile})
        self._time(graphs)
        gains = [self._time(self._graphs) - self._time(graphs) for _ in range(2 * TURNS)]
        if statistics.median(gains) <= max(LEAST_GAIN, LEAST_PART * self.best):
            for graph in graphs:
                graph.close()
            return COST_MODEL
        for graph in self._graphs:
            graph.close()
        self._chosen[key], self._graphs = tile, graphs
        self.best = min(self._time(graphs) for _ in range(TURNS))
        return choice_of(tile)

    def _time(self, graphs: Sequence[Graph]) -> float:
        return sum(graph.time(self._runs) for graph in graphs)

    def _build(self, chosen: Mapping[str, Tile]) -> list[Graph]:
        entries = zip(self._memory, self._launches.entries(chosen), strict=True)
        return [
            Graph(self._gpu, [self._launch(memory, x, i + 1) for i, x in enumerate(launches) if all(memory.grid(x))])
            for memory, launches in entries
        ]

    def _launch(self, memory: EntryMemory, launch: Launch, number: int) -> GraphLaunch:
        symbol, params = launch.kernel.symbol, launch.kernel.params
        facts = self._images[symbol].facts
        if symbol not in self._kernels:
            dependent = self._sources[symbol].pdl
            image = self._images[symbol].image
            self._kernels[symbol] = self._gpu.load(symbol, image, facts["threads"], facts["shared"], dependent)
        grid = memory.grid(launch)
        args = [memory.argument(a, p.type, number) for a, p in zip(launch.args, params, strict=True)]
        scratch = facts["scratch_bytes"] * grid[0] * grid[1] * grid[2]
        hidden = [self._scratch_of(number, scratch).to_bytes(8, "little"), bytes(8)] if facts["hidden"] else []
        return GraphLaunch(self._kernels[symbol], grid, (*args, *hidden[: facts["hidden"]]))

    def _scratch_of(self, number: int, size: int) -> int:
        """Global scratch of the launch at a place: its neighbours may run at the same time."""
        size = 1 << max(size - 1, 0).bit_length()
        slot = number * 64 + size.bit_length()
        if size > 1 and slot not in self._scratch:
            self._scratch[slot] = self._gpu.allocate(size)
        return self._scratch.get(slot, 0)

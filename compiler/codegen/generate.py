"""The code generation stage: all sources of a package, for every target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..capture.state import state_of
from ..ir.program import AnyNode
from ..lower.core.shapes import sizes_of
from ..machine.targets import Target
from ..model.graph import ModelGraph
from ..schedule import Schedule
from ..tune.choices.choices import COST_MODEL, NO_CHOICES, Choice, Choices
from ..tune.choices.keys import kernel_key
from ..weights.collect import Weights
from .cpu.headers import MICRO
from .cpu.machine_header import MACHINE, render_machine
from .cpu.micro import render_micro_kernels, render_tile_units
from .cpu.render import Kernel, KernelPool, calls_of, split_units, tiles_of
from .host.program import EntrySource, Sources, entry_view, render_sources

if TYPE_CHECKING:
    from .cuda.generate import DeviceCode

#: effort (see render._cost) that one translation unit should hold: each compiles the templates of products and
#: convolutions that it uses once more (a training step of BERT: six mixed units 10.8 s, one of products and one of
#: loops 7.5)
UNIT_COST = 120.0
MAX_UNITS = 8
ONE_UNIT = 40.0  #: up to here all kernels are one unit


@dataclass(frozen=True)
class Generated:
    """Sources by target, the distinct kernels, and the kernel symbols of every entry point in order."""

    sources: Mapping[str, Sources]
    kernels: tuple[Kernel, ...]
    symbols: tuple[tuple[str, ...], ...]
    device: Mapping[str, DeviceCode] = field(default_factory=dict)  # kernels and launches of each GPU target

    def __str__(self) -> str:
        texts = {**self.sources, **self.device}
        return "\n".join(f"// ======== {target}\n{text}" for target, text in texts.items())


def generate(
    graphs: Sequence[ModelGraph],
    schedules: Sequence[Schedule],
    weights: Weights,
    targets: Sequence[Target],
    choices: Choices = NO_CHOICES,
    contract: str = "",
) -> Generated:
    """Kernels that render alike are shared by all entry points, and by all targets with the same choices.

    contract: what the program says that it was compiled for (package/contract.py); "": nothing.

    `kernels` and `symbols` are those of the first target.
    """
    rendered: dict[str, Rendered] = {}
    for target in targets:
        same = next((r for t, r in rendered.items() if choices.alike(t, target.name)), None)
        rendered[target.name] = same or _render(graphs, schedules, target.name, choices)
    sources: dict[str, Sources] = {}
    for target in targets:
        own = rendered[target.name]
        views = [entry_view(entry, i, weights.offsets) for i, entry in enumerate(own.entries)]
        units = units_of(own.kernels)
        headers = {MICRO: render_micro_kernels(target.tiles, bodies=False), MACHINE: render_machine(target.tiles)}
        tiles, n_state = render_tile_units(target.tiles, *tiles_of(own.kernels)), len(state_of(graphs))
        sources[target.name] = render_sources(views, own.kernels, target.name, headers, units, tiles, n_state, contract)
    first = rendered[targets[0].name]
    return Generated(sources, first.kernels, tuple(tuple(c.kernel.symbol for c in e.calls) for e in first.entries))


@dataclass(frozen=True)
class Rendered:
    """The kernels of all entry points, and how each entry point calls them."""

    kernels: tuple[Kernel, ...]
    entries: tuple[EntrySource, ...]


def _render(graphs: Sequence[ModelGraph], schedules: Sequence[Schedule], target: str, choices: Choices) -> Rendered:
    def choose(node: AnyNode) -> Choice:
        key = kernel_key(node)
        return choices.of(target, key) if key is not None else COST_MODEL

    pool, entries = KernelPool(), []
    for graph, schedule in zip(graphs, schedules, strict=True):
        sizes = sizes_of(graph)
        inputs = tuple(sizes.shape(spec.shape) for spec in graph.inputs[: graph.n_arguments])
        outputs = tuple(sizes.shape(spec.shape) for spec in graph.outputs[: graph.n_results])
        entries.append(EntrySource(schedule, calls_of(schedule, pool, choose), inputs, outputs))
    return Rendered(pool.kernels(), tuple(entries))


def units_of(kernels: Sequence[Kernel]) -> dict[str, list[Kernel]]:
    """Translation units: by the work alone, so that the objects of a cache fit every machine. Products, convolutions
    and attention, which share templates, lie apart from loops."""
    if sum(k.cost for k in kernels) <= ONE_UNIT:
        return split_units(kernels, 1)
    groups = [[k for k in kernels if (MICRO in k.headers) == tiled] for tiled in (True, False)]
    parts = [part for group in groups for part in split_units(group, _unit_count(group)).values()]
    return {f"kernels_{i}.cpp": part for i, part in enumerate(parts)}


def _unit_count(kernels: Sequence[Kernel]) -> int:
    return max(1, min(MAX_UNITS, round(sum(k.cost for k in kernels) / UNIT_COST)))

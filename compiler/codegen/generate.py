"""The code generation stage: all sources of a package, for every target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..build.targets import Target
from ..capture.graph import ModelGraph
from ..ir.index import Size
from ..lower.shapes import Sizes
from ..schedule import Schedule
from ..weights import Weights
from .micro import render_micro_kernels
from .program import EntrySource, Sources, entry_view, render_sources
from .render import Kernel, KernelPool, calls_of

if TYPE_CHECKING:
    from .triton.generate import DeviceCode

#: effort (see render._cost) that one translation unit should hold
UNIT_COST = 16.0
MAX_UNITS = 8


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
    graphs: Sequence[ModelGraph], schedules: Sequence[Schedule], weights: Weights, targets: Sequence[Target]
) -> Generated:
    """Kernels that render alike are shared by all entry points."""
    pool = KernelPool()
    entries = []
    for graph, schedule in zip(graphs, schedules, strict=True):
        sizes = Sizes({s.symbol: Size(s.name, s.min, s.max) for s in graph.symbols})
        inputs = tuple(sizes.shape(spec.shape) for spec in graph.inputs)
        outputs = tuple(sizes.shape(spec.shape) for spec in graph.outputs)
        entries.append(EntrySource(schedule, calls_of(schedule, pool), inputs, outputs))
    kernels = pool.kernels()
    views = [entry_view(entry, i, weights.offsets) for i, entry in enumerate(entries)]
    units = unit_count(kernels)
    sources = {t.name: render_sources(views, kernels, t.name, render_micro_kernels(t.isa), units) for t in targets}
    return Generated(sources, kernels, tuple(tuple(c.kernel.symbol for c in e.calls) for e in entries))


def unit_count(kernels: Sequence[Kernel]) -> int:
    """Translation units: by the work alone, so that the objects of a cache fit every machine."""
    total = sum(k.cost for k in kernels)
    return max(1, min(MAX_UNITS, len(kernels), round(total / UNIT_COST + 0.5)))

"""The pipeline: from a request to a package, one stage after the other.

    capture -> graph -> lower -> schedule -> codegen -> build -> package -> verify

Data flows one way; a stage takes values and returns a value. Timing, progress and dumps are observers.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .build.compile import BuildOptions, BuildResult, build
from .build.targets import Target
from .capture.export import capture_request
from .capture.graph import ModelGraph
from .codegen.generate import Generated, generate
from .graph.passes import run_graph_passes
from .lower import lower, shared_layouts
from .lower.driver import Lowered
from .observe import Observer, running_stage
from .options import CompileOptions, GraphOptions
from .package.assemble import Assembled, assemble
from .package.writer import PackageSummary
from .request import CompileRequest
from .schedule import Schedule, schedule
from .summaries import summarise
from .weights import Weights, collect_weights


@dataclass(frozen=True)
class CompileResult:
    """What a compile made."""

    path: Path
    summary: PackageSummary
    kernels: int
    targets: tuple[str, ...]
    error: float | None  # of the package against float64; None when it was not verified
    eager: float | None
    warnings: tuple[str, ...]


def run(request: CompileRequest, observers: Sequence[Observer] = ()) -> CompileResult:
    """Compiles the request's entry points into one package. Raises CompileError; then nothing is left behind."""
    options = request.options
    targets = options.targets
    with running_stage(observers, "capture") as stage:
        captured = stage.value = [capture_request(entry) for entry in request.entries]
        stage.summary = summarise(captured)
    with running_stage(observers, "graph") as stage:
        graphs = stage.value = [run_graph_passes(graph, skip=_skipped(options.graph)) for graph in captured]
        stage.summary = summarise(graphs)
    with running_stage(observers, "lower") as stage:
        lowered = stage.value = [lower(g, layouts) for g, layouts in zip(graphs, shared_layouts(graphs), strict=True)]
        stage.summary = summarise(lowered)
    with running_stage(observers, "schedule") as stage:
        schedules = stage.value = [schedule(entry.program, options.schedule) for entry in lowered]
        stage.summary = summarise(schedules)
    with running_stage(observers, "codegen") as stage:
        weights = collect_weights(lowered)
        generated = stage.value = generate(graphs, schedules, weights, targets)
        stage.summary = summarise(generated)
    with running_stage(observers, "build") as stage:
        built = _build(generated, targets, options)
        stage.value = "\n".join(line for result in built.values() for line in result.log)
        stage.summary = summarise(built)
    return _package(request, observers, captured, graphs, lowered, schedules, weights, generated, built)


def _skipped(options: GraphOptions) -> tuple[str, ...]:
    """Names of the graph passes that the options turn off."""
    switches = {"fold-constants": options.fold_constants, "fold-batch-norm": options.fold_batch_norm}
    return tuple(name for name, on in switches.items() if not on)


def _build(generated: Generated, targets: Sequence[Target], options: CompileOptions) -> dict[str, BuildResult]:
    """model.so of every target."""
    from .. import __version__

    flags = tuple(shlex.split(options.build.flags))
    settings = BuildOptions(options.jobs or 0, options.cache_dir, version=__version__, flags=flags)
    sources = generated.sources
    return {t.name: build(sources[t.name].units, sources[t.name].headers, t, settings) for t in targets}


def _package(
    request: CompileRequest,
    observers: Sequence[Observer],
    captured: list[ModelGraph],
    graphs: list[ModelGraph],
    lowered: list[Lowered],
    schedules: list[Schedule],
    weights: Weights,
    generated: Generated,
    built: dict[str, BuildResult],
) -> CompileResult:
    """Writes the package beside its place, verifies it there, and moves it into place."""
    del lowered, graphs
    assembled: Assembled = assemble(request, captured, schedules, weights, generated, built)
    summary = assembled.write(observers)
    return CompileResult(
        summary.path,
        summary,
        sum(len(s.program.nodes) for s in schedules),
        tuple(built),
        assembled.error,
        assembled.eager,
        request.warnings,
    )

"""`mycc check`: would this model compile, and to what? All stages that need no C++ compiler, a few seconds in all.

capture -> graph -> lower -> schedule       for every entry point, whatever the others' problems are
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from ..runtime.errors import CompileError
from .capture.export import capture_request
from .capture.precision import in_dtype
from .capture.specialise import variant_requests
from .faults import reporting_faults
from .graph.passes import run_graph_passes
from .graph.widened import widened_weights
from .lower import lower, shared_layouts
from .machine.gpu import Device
from .model.graph import ModelGraph
from .model.operators.kept import kept_for
from .package.assemble import entry_row
from .quantize.quantize import check_layers, converted
from .quantize.reading import reading_row
from .schedule import schedule

if TYPE_CHECKING:
    from .capture.export import CaptureRequest
    from .lower.core.driver import Lowered
    from .machine.targets import Family
    from .options import CompileOptions

__all__ = ["CheckReport", "EntryReport", "Problem", "check"]

T = TypeVar("T")


@dataclass(frozen=True)
class Problem:
    """Why an entry point does not compile: the stage that refuses it, and its message, findings and advice."""

    entry: str
    stage: str
    message: str
    details: tuple[str, ...] = ()
    hint: str | None = None

    def __str__(self) -> str:
        return str(CompileError(self.message, details=self.details, hint=self.hint))


@dataclass(frozen=True)
class EntryReport:
    """What an entry point would become.

    Attributes:
        name: of the entry point.
        row: as in a package's manifest: inputs, outputs, symbols, kernels of the first family, memory.
        operators: aten operator -> how often the model calls it, after capture.
        kernels: family -> number of kernels.
        weights: bytes of all constants that it reads.
        quantization: which layers would be quantised, to what size, and the time that reading them takes, without
            errors; None: that was not asked for.
    """

    name: str
    row: dict[str, Any]
    operators: dict[str, int]
    kernels: dict[str, int]
    weights: int
    quantization: dict[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The manifest row with operators, weights, quantization, and kernel_counts by family of targets."""
        values = asdict(self)
        return {**values.pop("row"), "kernel_counts": values.pop("kernels"), **values}


@dataclass
class CheckReport:
    """The result of `check`; `ok` when every entry point compiles for every target."""

    targets: tuple[str, ...]
    entries: list[EntryReport] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON values; targets and entry points are objects, as in `mycc inspect --json`."""
        values = asdict(self) | {"targets": [{"target": name} for name in self.targets]}
        del values["entries"]
        return {"ok": self.ok, **values, "entry_points": [entry.as_dict() for entry in self.entries]}


def check(entries: Sequence[CaptureRequest], options: CompileOptions) -> CheckReport:
    """Captures, optimises, lowers and schedules, and collects what refuses."""
    start = perf_counter()
    report = CheckReport(tuple(target.name for target in options.targets), warnings=options.ineffective())
    requests = _attempt(report, "", "capture", lambda: in_dtype(entries, options.dtype)) or []
    captured = _captured(report, requests, options)
    if options.quantize is not None and captured:
        _attempt(report, "", "quantize", lambda: check_layers([graph for _, graph in captured], options.quantize))  # type: ignore[arg-type]
    for request, graph in captured:
        report.warnings += [note for note in graph.notes if note not in report.warnings]
        _check_entry(report, request.name, graph, options)
    report.seconds = perf_counter() - start
    return report


def _captured(
    report: CheckReport, requests: Sequence[CaptureRequest], options: CompileOptions
) -> list[tuple[CaptureRequest, ModelGraph]]:
    """The entry points that torch exports, and their variants."""

    def capture(wanted: Sequence[CaptureRequest]) -> list[tuple[CaptureRequest, ModelGraph]]:
        graphs = [(r, _attempt(report, r.name, "capture", lambda r=r: capture_request(r))) for r in wanted]  # type: ignore[misc]
        return [(request, graph) for request, graph in graphs if graph is not None]

    found = capture(requests)
    general, graphs = [request for request, _ in found], [graph for _, graph in found]
    variants = (
        _attempt(report, "", "capture", lambda: variant_requests(general, graphs, options.specialize)) if found else []
    )
    return found + capture(variants or [])


def _check_entry(report: CheckReport, name: str, captured: ModelGraph, options: CompileOptions) -> None:
    skip, kept = options.graph.skipped_passes, kept_for(options.families)
    planned = None
    if options.quantize is not None:
        done = _attempt(report, name, "quantize", lambda: converted(captured, options.quantize))  # type: ignore[arg-type]
        if done is None:
            return
        captured, planned = done
    graph = _attempt(report, name, "graph", lambda: run_graph_passes(captured, kept=kept, skip=skip))
    if graph is None:
        return
    report.warnings += [text for text in widened_weights(graph, options.families) if text not in report.warnings]
    kernels: dict[str, int] = {}
    row: dict[str, Any] | None = None
    for family in options.families:
        lowered = _attempt(report, name, "lower", lambda family=family: _lower(graph, family, options))  # type: ignore[misc]
        if lowered is None:
            continue
        scheduled = _attempt(
            report,
            name,
            "schedule",
            lambda f=family, p=lowered.program: schedule(p, options.schedule, _device(options, f)),  # type: ignore[misc]
        )
        if scheduled is not None:
            kernels[family] = len(scheduled.names)
            row = row or entry_row(captured, scheduled, scheduled.names)
    if row is not None:
        weights = {id(t): t.numel() * t.element_size() for t in graph.constants.values()}
        quantization = None
        if planned is not None:
            device = _device(options, options.families[0])
            quantization = {**planned.as_dict(), "reading": reading_row(planned, device)}
        operators, size = _operators(captured), sum(weights.values())
        report.entries.append(EntryReport(name, row, operators, kernels, size, quantization))


def _device(options: CompileOptions, family: Family) -> Device | None:
    """The first GPU among the targets, or None for CPUs."""
    if family == "cpu":
        return None
    return options.device(next(t for t in options.targets if t.family == family))


def _lower(graph: ModelGraph, family: Family, options: CompileOptions) -> Lowered:
    return lower(graph, shared_layouts([graph], family)[0], family, options.codegen.winograd)


def _attempt(report: CheckReport, entry: str, stage: str, work: Callable[[], T]) -> T | None:
    """What `work` returns; None when it refuses, which the report keeps (once)."""
    try:
        with reporting_faults(stage):
            return work()
    except CompileError as error:
        problem = Problem(entry, stage, error.message, tuple(error.details), error.hint)
        if problem not in report.problems:
            report.problems.append(problem)
        return None


def _operators(graph: ModelGraph) -> dict[str, int]:
    calls = Counter(str(n.target) for n in graph.module.graph.nodes if n.op == "call_function")
    return {name: count for name, count in calls.most_common() if name.startswith("aten.")}

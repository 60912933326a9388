"""`mycc verify SOURCE FILE [--bisect DIR]`: a package beside the model that it was made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...runtime.archive import Archive
from ...runtime.errors import CompileError
from ...runtime.loader import EntryPoint, load
from ...runtime.tensorfile import parse_header
from ..capture.export import capture_request
from ..capture.precision import in_dtype
from ..faults import reporting_faults
from .bisect import Finding, find_fault
from .check_inputs import draws, input_checks, make_input
from .reproducer import write_reproducer
from .verify import Tolerance, verify

if TYPE_CHECKING:
    from ..capture.export import CaptureRequest
    from ..model.graph import ModelGraph
    from ..options import CompileOptions

__all__ = ["EntryResult", "ModelReport", "verify_model"]


@dataclass(frozen=True)
class EntryResult:
    """One entry point: the problems (none: as right as eager), and where they come from, when that was asked."""

    entry: str
    error: float | None
    eager: float | None
    problems: tuple[str, ...] = ()
    finding: Finding | None = None
    reproducer: Path | None = None

    def lines(self) -> list[str]:
        if not self.problems:
            text = f"{self.entry}: error {self.error:.1e} against float64 (eager {self.eager:.1e})"
        else:
            text = f"{self.entry}: NOT as accurate as eager torch"
        found = [f"first fault: {self.finding}"] if self.finding else []
        wrote = [f"reproducer: {self.reproducer}"] if self.reproducer else []
        return [text, *(f"  {line}" for line in (*self.problems, *found, *wrote))]


@dataclass(frozen=True)
class ModelReport:
    """All entry points."""

    results: tuple[EntryResult, ...]

    @property
    def ok(self) -> bool:
        """Whether every entry point is accurate."""
        return all(not r.problems for r in self.results)

    def text(self) -> str:
        """The report for a person, some lines for each entry point."""
        return "\n".join(line for r in self.results for line in r.lines())

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {"ok": self.ok, "entry_points": [_row(r) for r in self.results]}


def _row(result: EntryResult) -> dict[str, Any]:
    keys = ("stage", "name", "number", "node", "lines", "error", "eager")
    fault = result.finding and {key: getattr(result.finding, key) for key in keys}
    return {
        "entry": result.entry, "error": result.error, "eager": result.eager, "problems": list(result.problems),
        "fault": fault, "reproducer": result.reproducer and str(result.reproducer),
    }  # fmt: skip


def verify_model(
    entries: Sequence[CaptureRequest],
    path: Path,
    options: CompileOptions,
    only: str | None,
    bisect: Path | None,
    as_stored: Callable[[ModelGraph, Mapping[str, Any]], ModelGraph] = lambda graph, _: graph,
) -> ModelReport:
    """Compares a package with its model in float64, like the end of a compile does.

    Args:
        options: those of the compile, as far as they alter the graph: dtype and settings.
        only: name of the one entry point to compare; None: all.
        bisect: folder for a reproducer; not None: the first wrong kernel of a wrong entry point is looked for.
        as_stored: gives a captured entry point the weights that a package of this manifest has.

    Raises:
        CompileError: the package has no such entry point, or was not made from this model.
        LoadError: the package cannot be loaded.
    """
    archive = Archive(path)
    model = load(path, options.threads, device="cpu")
    results = []
    for request in in_dtype(entries, options.dtype):
        if only in (None, request.name):
            with reporting_faults("capture"):
                graph = as_stored(capture_request(request), archive.manifest)
            with reporting_faults("verify"):
                results.append(_compare(graph, model.entry(request.name), archive, options, bisect))
    if not results:
        raise CompileError(f"the model has no entry point '{only}'")
    return ModelReport(tuple(results))


def _has_other_weights(graph: ModelGraph, archive: Archive) -> bool:
    """Whether no constant of the graph, of those that the package names, has the values there, in whatever order."""
    data = archive.read("weights.safetensors")
    entries, _, start = parse_header(data)
    stored = {e.name: data[start + e.begin : start + e.end] for e in entries if e.dtype == "F32"}
    same = []
    for name, constant in graph.constants.items():
        if name in stored and constant.dtype == torch.float32 and constant.unique().numel() > 1:
            own, found = constant.flatten(), torch.frombuffer(bytearray(stored[name]), dtype=torch.float32)
            own, found = (t[t != 0].sort().values for t in (own, found))  # packed weights are padded with zeros
            same.append(torch.equal(own, found))
    return bool(same) and not any(same)


def _compare(
    graph: ModelGraph, entry: EntryPoint, archive: Archive, options: CompileOptions, bisect: Path | None
) -> EntryResult:
    def run(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.as_tensor(y) for y in entry.run_whole(inputs)]

    numerics = options.numerics
    try:
        result = verify(graph, run, tolerance=Tolerance(numerics.factor, numerics.floor), seed=numerics.seed)
        return EntryResult(graph.name, result.error, result.eager)
    except CompileError as error:
        problems = tuple(error.details) or (error.message,)
    if _has_other_weights(graph, archive):
        problems += (
            "none of the model's weights is in the package: seed the model, or load the weights it was made from",
        )
        return EntryResult(graph.name, None, None, problems)
    if bisect is None:
        return EntryResult(graph.name, None, None, problems)
    index = [row["name"] for row in archive.manifest["entry_points"]].index(graph.name)
    finding = Finding("")
    for draw in draws(graph, numerics.seed):
        inputs = [make_input(check) for check in input_checks(graph, draw.sizes, draw.index, draw.edges)]
        finding = find_fault(graph, archive, index, inputs, options)
        if finding.stage:
            break
    written = write_reproducer(finding, bisect) if finding.stage == "kernel" else None
    return EntryResult(graph.name, None, None, problems, finding, written)

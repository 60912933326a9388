"""Zoo models beside their peers, by the machinery of `mycc bench` (compiler/bench)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .common import BENCH, Figure, Settings

if TYPE_CHECKING:
    from mycc.compiler.bench.compare import CaseResult

_SOURCE = """import sys

sys.path.insert(0, {bench!r})
from zoo import ZOO

model = ZOO[{model!r}].build()
example_inputs = ZOO[{model!r}].inputs({batch}, {sequence})
"""


def source_file(settings: Settings, model: str, batch: int = 1, sequence: int = 128) -> Path:
    """A model file for a zoo model at these sizes, as a user would write it."""
    folder = settings.folder / f"{model}-b{batch}-s{sequence}"
    folder.mkdir(exist_ok=True)
    path = folder / f"{model}.py"
    path.write_text(_SOURCE.format(bench=str(BENCH), model=model, batch=batch, sequence=sequence))
    return path


def cases(
    settings: Settings, model: str, batch: int = 1, sequence: int = 128, package: bool = False
) -> Iterator[CaseResult]:
    """The results, one for each number of threads.

    package: the one that the sections share is measured, not a new one.
    """
    from mycc.compiler.bench.compare import BenchRequest, measure_cases
    from mycc.compiler.options import CompileOptions

    source = source_file(settings, model, batch, sequence)
    request = BenchRequest(
        str(source), ("eager", *settings.peers), settings.threads, seconds=settings.seconds, turns=settings.turns
    )
    options = CompileOptions.of(cache_dir=settings.folder / "cache")
    made = settings.package(model) if package else None
    yield from measure_cases(request, options, source.parent, package=made)


def ratio_figure(section: str, name: str, case: CaseResult, goal: float) -> Figure:
    """The best peer's time over mycc's, with all times beside it."""
    best, ratio, own = case.best_peer, case.ratio, case.own
    problems = [f"{r.name} {r.status}: {r.reason}" for r in case.results if r.status != "ok"]
    if best is None or ratio is None or own.median is None:
        return Figure(section, name, None, goal=f">= {goal}", met=False, note="; ".join(problems))
    others = {f"{r.name} ms": 1e3 * r.median for r in case.results[1:] if r.median is not None}
    percent = f", {own.percent:.0f} % of the roof" if own.percent is not None else ""
    note = "; ".join([f"mycc {1e3 * own.median:.4g} ms{percent}", *problems])
    return Figure(section, f"{name}, {best.name} / mycc", ratio, "", f">= {goal}", ratio >= goal, note, others)


def threads_text(threads: int) -> str:
    return f"{threads} thread{'s' if threads > 1 else ''}"


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))

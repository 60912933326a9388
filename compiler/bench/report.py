"""A comparison as a rich table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...runtime.errors import InputError
from ...runtime.text import counted
from .compare import CaseResult, Comparison, PeerResult

__all__ = ["case_title", "render_case", "render_summary", "sorted_results", "speed_text", "threads_text",
           "to_json", "write_text"]  # fmt: skip


def case_title(case: CaseResult) -> str:
    """`batch 8, 2 threads`"""
    threads = threads_text(case.threads)
    return f"batch {case.batch}, {threads}" if case.batch is not None else threads


def threads_text(threads: int) -> str:
    return counted(threads, "thread")


def render_case(case: CaseResult) -> RenderableType:
    """One case: a line for each way to run the model, mycc first, then the fastest."""
    roof = f"; roof {case.roof:.0f} GFLOP/s" if case.roof else ""
    head = Text(f"{case_title(case)}: {case.gflop:.3g} GFLOP of products{roof}", style="bold")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, side in (("", "left"), ("ms", "right"), ("best", "right"), ("speed", "right"), ("of roof", "right"),
                       ("error", "right"), ("built in", "right"), ("", "left")):  # fmt: skip
        table.add_column(name, justify="right" if side == "right" else "left", no_wrap=side == "right")
    for result in sorted_results(case):
        table.add_row(*(Text(text, style=_style(case, result)) for text in _cells(case, result)))
    return Group(head, table)


def render_summary(comparison: Comparison) -> RenderableType:
    """The ratios of all cases, the best peer's time over mycc's."""
    lines = []
    for case in comparison.cases:
        best, ratio = case.best_peer, case.ratio
        if best is None or ratio is None:
            reason = case.own.reason or case.no_ratio or "no peer that agrees could be measured"
            lines.append(Text(f"{case_title(case)}: no ratio: {reason}", style="yellow"))
            continue
        text = f"{case_title(case)}: mycc is {speed_text(ratio)} {best.title}, the best peer"
        lines.append(Text(text, style="green" if ratio >= 1 else "red"))
    return Group(*lines)


def speed_text(ratio: float) -> str:
    """`1.15 x as fast as`"""
    return f"{ratio:.2f} x as fast as"


def sorted_results(case: CaseResult) -> list[PeerResult]:
    """mycc, then the peers by their time; those without one last."""
    others = sorted(case.results[1:], key=lambda r: (r.median is None, r.median))
    return [case.own, *others]


def _cells(case: CaseResult, result: PeerResult) -> Sequence[str]:
    def shown(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    milliseconds = [shown(None if t is None else 1e3 * t, ".4g") for t in (result.median, result.best)]
    percent = "" if result.percent is None else f"{result.percent:.0f} %"
    built = "" if result.build is None else f"{result.build:.1f} s"
    note = f"{result.status}: {result.reason}" if result.status != "ok" else ""
    speed = shown(case.speed(result), ".2f")
    return (result.title, *milliseconds, speed, percent, shown(result.error, ".1e"), built, note)


def _style(case: CaseResult, result: PeerResult) -> str:
    if result.status != "ok":
        return "yellow"
    return "bold" if result is case.own else ""


def to_json(comparison: Comparison) -> str:
    return json.dumps(comparison.as_dict(), indent=1, allow_nan=False) + "\n"


def write_text(path: Path, text: str) -> None:
    """Raises InputError when the file cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write '{path}': {error.strerror}") from None

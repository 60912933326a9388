"""A comparison as one HTML page without any other file: charts are inline SVG, for readers in light and in dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jinja2

from ...templates import TEMPLATES
from .compare import CaseResult, Comparison, PeerResult
from .report import case_title, sorted_results, threads_text

__all__ = ["html_page"]

LABEL, BAR, VALUE, ROW = 190, 420, 170, 26  # widths of a chart's columns and the height of a row, in pixels


@dataclass(frozen=True)
class BarView:
    """A horizontal bar: its place, its length in pixels, its texts; `kind` is a CSS class."""

    label: str
    value: str
    kind: str
    y: int
    length: float
    title: str


@dataclass(frozen=True)
class ChartView:
    """Bars below each other. `mark` is the x of a vertical line, None without one."""

    title: str
    bars: tuple[BarView, ...]
    width: int
    height: int
    label: int
    mark: float | None = None
    mark_text: str = ""


@dataclass(frozen=True)
class RowView:
    """A line of a table, as texts."""

    kind: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class CaseView:
    title: str
    verdict: str
    chart: ChartView
    rows: tuple[RowView, ...]


@dataclass(frozen=True)
class PageView:
    title: str
    facts: tuple[tuple[str, str], ...]
    summary: ChartView | None
    cases: tuple[CaseView, ...]


def html_page(comparison: Comparison, measured: str = "") -> str:
    """The page's text. measured: when, in words; "" leaves it out."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([TEMPLATES / "bench"]), undefined=jinja2.StrictUndefined, autoescape=True,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    return environment.get_template("report.html.j2").render(page=_page(comparison, measured))


def _page(comparison: Comparison, measured: str) -> PageView:
    machine = comparison.machine
    facts = [
        ("model", comparison.source),
        ("machine", f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in comparison.versions.items())),
    ]
    if measured:
        facts.append(("measured", measured))
    roofs = {case.threads: case.roof for case in comparison.cases if case.roof}
    if roofs:
        texts = (f"{roof:.0f} with {threads_text(threads)}" for threads, roof in roofs.items())
        facts.append(("roof", f"GFLOP/s: {', '.join(texts)}"))
    cases = tuple(_case(case) for case in comparison.cases)
    return PageView(comparison.source, tuple(facts), _summary(comparison.cases), cases)


def _summary(cases: Sequence[CaseResult]) -> ChartView | None:
    """mycc's speed beside the best peer's in every case; nothing to see when there is only one."""
    known = [(case, case.ratio, case.best_peer) for case in cases]
    rows = [(case_title(c), ratio, f"{ratio:.2f} x {best.title}", "own" if ratio >= 1 else "slower", "")
            for c, ratio, best in known if ratio is not None and best is not None]  # fmt: skip
    if len(rows) < 2:
        return None
    return _chart("Speed of mycc over the best peer's", rows, mark=1.0, mark_text="the best peer")


def _case(case: CaseResult) -> CaseView:
    best, ratio = case.best_peer, case.ratio
    verdict = case.own.reason or case.no_ratio or "no peer that agrees could be measured"
    if best is not None and ratio is not None:
        verdict = f"mycc runs {ratio:.2f} x as fast as {best.title}, the best peer."
    bars = [
        (r.title, 1e3 * r.median, f"{1e3 * r.median:.4g} ms", _kind(case, r), r.reason)
        for r in sorted_results(case) if r.median is not None
    ]  # fmt: skip
    chart = _chart("Median time of a run; shorter is better", bars)
    return CaseView(case_title(case), verdict, chart, tuple(_row(case, r) for r in sorted_results(case)))


def _kind(case: CaseResult, result: PeerResult) -> str:
    if result.status != "ok":
        return "wrong"
    return "own" if result is case.own else "peer"


def _row(case: CaseResult, r: PeerResult) -> RowView:
    def shown(value: float | None, form: str, unit: str = "") -> str:
        return "" if value is None else f"{format(value, form)}{unit}"

    times = [shown(None if t is None else 1e3 * t, ".4g") for t in (r.median, r.best)]
    note = f"{r.status}: {r.reason}" if r.status != "ok" else ""
    cells = (r.title, *times, shown(case.speed(r), ".2f"), shown(r.percent, ".0f", " %"), shown(r.error, ".1e"),
             shown(r.build, ".1f", " s"), note)  # fmt: skip
    return RowView(_kind(case, r), cells)


def _chart(
    title: str, rows: Sequence[tuple[str, float, str, str, str]], mark: float | None = None, mark_text: str = ""
) -> ChartView:
    """rows: label, number, its text, kind, and what to say of it. The longest bar fills its column."""
    longest = max([number for _, number, _, _, _ in rows] + ([mark] if mark else []), default=1.0) or 1.0
    bars = tuple(
        BarView(label, text, kind, i * ROW, round(BAR * number / longest, 1), f"{label}: {text}. {note}".strip(" ."))
        for i, (label, number, text, kind, note) in enumerate(rows)
    )
    at = None if mark is None else round(LABEL + BAR * mark / longest, 1)
    height = len(rows) * ROW + (22 if mark else 4)
    return ChartView(title, bars, LABEL + BAR + VALUE, height, LABEL, at, mark_text)

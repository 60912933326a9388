"""The light commands' results as rich tables; cli.py prints what these functions return."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from .execute import RunResult
from .inspect import choices_of, describe, megabytes, plan_text
from .launches import launch_facts, typical_sizes
from .measure import most_lost
from .text import counted
from .verify import VerifyReport

__all__ = ["kernel_table", "render_bench", "render_inspection", "render_run", "render_verify"]


def render_inspection(
    information: Mapping[str, Any],
    fusions: bool = False,
    members: bool = False,
    sizes: Mapping[str, int] | None = None,
    summary: bool = True,
) -> RenderableType:
    """An inspection (inspect_package): the summary and a table of kernels; or of fusions; or of members.

    sizes: at which the launches of GPUs are described. summary: False leaves it out.
    """
    parts: list[RenderableType] = [Text(describe(dict(information)))] if summary else []
    for row in information["entry_points"]:
        gpus = [t for t in information["targets"] if "roof" in t and t["target"] in row.get("launches", {})]
        if fusions:
            parts += [Text(""), _fusion_table(row) if row["fusions"] else Text(f"{row['name']}: nothing to fuse")]
            continue
        if len(gpus) < len(information["targets"]):
            parts += [Text(""), kernel_table(row, choices_of(dict(information)))]
        for target in gpus:
            parts += [Text(""), _launch_table(row, target, sizes or {})]
    if members:
        parts += [Text(""), _member_table(information["members"])]
    return Group(*parts)


def render_verify(report: VerifyReport) -> RenderableType:
    """The verification, green when all is right."""
    *lines, last = report.text().splitlines()
    return Group(*map(Text, lines), Text(last, style="green" if report.ok else "bold red"))


def render_run(result: RunResult) -> RenderableType:
    """A line for each tensor of a run."""
    return Text(result.text())


def render_bench(result: Mapping[str, Any]) -> RenderableType:
    """The times of bench_package, and its kernels with those first that lose most beside the roof."""
    sizes = ", ".join(f"{name} {size}" for name, size in result["sizes"].items())
    gpu = result["device"] != "cpu"
    where = result["device"] if gpu else counted(result["threads"], "thread")
    head = f"{result['entry']} on {result['target']}, {where}" + (f"; {sizes}" if sizes else "")
    times = (
        f"load {result['load_ms']:.1f} ms, first run {result['first_run_ms']:.2f} ms, then median "
        f"{result['median_ms']:.3f} ms, min {result['min_ms']:.3f} ms, 90 % {result['p90_ms']:.3f} ms "
        f"({counted(result['runs'], 'run')})"
    )
    parts: list[RenderableType] = [Text(head), Text(times)]
    if gpu:
        busy = f"{1e3 * result['host_ms']:.1f} us"
        row = f"in a row: {result['stream_ms']:.3f} ms each, of which the caller is busy for {busy}"
        parts.append(Text(row))
    if result.get("roof"):
        parts.append(Text(_roof_line(result)))
    if result.get("kernels"):
        parts += [Text(""), _time_table(result["kernels"], gpu)]
        if len(result["sums"]) < len(result["kernels"]):
            parts += [Text(""), _sum_table(result["sums"])]
    return Group(*parts)


def _roof_line(result: Mapping[str, Any]) -> str:
    """`roof of 2 threads 470 GFLOP/s, 41 GB/s from memory; the products of a run, 22.3 GFLOP, at 81 % of it`"""
    roof = result["roof"]
    if "device" in roof:
        line = f"roof of {roof['device']} {roof['tflops']:.0f} TFLOP/s (data sheet), {roof['tbytes']:.2f} TB/s (copies)"
    else:
        limits = f"{roof['gflops']:.0f} GFLOP/s, {roof['read'][-1][1]:.0f} GB/s from memory"
        line = f"roof of {counted(roof['threads'], 'thread')} {limits}"
    if result["gflops"]:
        line += f"; the products of a run, {result['gflops']:.3g} GFLOP, at {result['percent']:.0f} % of it"
    return line


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, side in columns:
        table.add_column(title, justify="right" if side == "right" else "left", no_wrap=side == "right")
    return table


class Fitting:
    """A table that leaves out columns, those of `first_dropped` in their order, until it is as wide as what shows it.

    columns: (title, "left" or "right"); rows: a text for each column.
    """

    def __init__(
        self, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], first_dropped: Sequence[str]
    ) -> None:
        self.columns, self.rows, self.first_dropped = columns, rows, first_dropped

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [
            max(len(title), *(len(row[i]) for row in self.rows), 0) + 2 for i, (title, _) in enumerate(self.columns)
        ]
        shown = list(range(len(self.columns)))
        for title in self.first_dropped:
            if sum(widths[i] for i in shown) <= options.max_width:
                break
            shown = [i for i in shown if self.columns[i][0] != title]
        table = _table(*(self.columns[i] for i in shown))
        for column in table.columns:
            column.overflow = "fold"  # a name goes on in the next line, it is not cut
        for row in self.rows:
            table.add_row(*(Text(row[i]) for i in shown))
        yield table


def kernel_table(row: Mapping[str, Any], choices: Mapping[str, Any]) -> Fitting:
    """The kernels of an entry point's row of the manifest with the operators and lines they come from. Those that are
    alike are one line, at the first of them."""
    counts: Counter[tuple[str, ...]] = Counter()
    first: dict[tuple[str, ...], int] = {}
    for index, kernel in enumerate(row["kernels"]):
        choice = choice_text(choices.get(kernel.get("key", ""), {}))
        texts = (kernel["name"], choice, _short(kernel["ops"]), _short(kernel["sources"]), plan_text(kernel))
        counts[texts] += 1
        first.setdefault(texts, index)
    columns = [("#", "right"), ("", "right"), (f"kernels of {row['name']}", "left"), ("tuned", "left"), ("ops", "left"),
               ("source", "left"), ("plan", "left")]  # fmt: skip
    rows = [(str(first[t]), f"{n} x" if n > 1 else "", *t) for t, n in counts.items()]
    empty = {
        title for i, (title, _) in enumerate(columns) if title in ("tuned", "plan", "") and not any(r[i] for r in rows)
    }
    kept = [i for i, (title, _) in enumerate(columns) if title not in empty]
    return Fitting([columns[i] for i in kept], [[r[i] for i in kept] for r in rows], ("plan", "tuned", "ops"))


def _launch_table(row: Mapping[str, Any], target: Mapping[str, Any], sizes: Mapping[str, int]) -> RenderableType:
    """Launches on a GPU, those that are alike in one line."""
    values = typical_sizes(row, sizes)
    at = ", ".join(f"{name} {value}" for name, value in values.items())
    facts = Counter(launch_facts(row, target, values))
    title = f"{row['name']} on {target['target']}" + (f" at {at}" if at else "")
    columns = [("", "right"), ("kernel", "left"), ("programs", "right"), ("warps", "right"), ("registers", "right"),
               ("spills", "right"), ("shared", "right"), ("bits", "right"), ("floor us", "right"),
               ("expected", "right"), ("form", "left"), ("ops", "left"), ("source", "left")]  # fmt: skip
    rows = []
    for fact, count in facts.items():
        numbers = [fact.programs, fact.warps, fact.registers, fact.spills, fact.shared, fact.loads or "bulk"]
        times = [f"{fact.floor_us:.2f}", f"{fact.expected_us:.1f}"]
        rows.append(
            [f"{count} x", fact.name, *map(str, numbers), *times, fact.form, _short(fact.ops), _short(fact.sources)]
        )
    total = sum(fact.floor_us * count for fact, count in facts.items())
    expected = sum(fact.expected_us * count for fact, count in facts.items())
    rows.append([f"{facts.total()}", "in all", *[""] * 6, f"{total:.1f}", f"{expected:.0f}", *[""] * 3])
    dropped = ("bits", "spills", "shared", "warps", "registers", "form", "programs", "ops")
    return Group(Text(title, style="bold"), Fitting(columns, rows, dropped))


def _fusion_table(row: Mapping[str, Any]) -> Table:
    table = _table((f"{row['name']}: producer", "left"), ("consumer", "left"), ("fused", "left"), ("reason", "left"))
    for fusion in sorted(row["fusions"], key=lambda fusion: bool(fusion["done"])):
        done = Text("yes", style="green") if fusion["done"] else Text("no", style="yellow")
        table.add_row(Text(fusion["producer"]), Text(fusion["consumer"]), done, Text(fusion.get("reason", "")))
    return table


def _member_table(members: Mapping[str, int]) -> Table:
    table = _table(("member", "left"), ("size", "right"))
    for name, size in members.items():
        table.add_row(Text(name), megabytes(size))
    return table


def _rate(giga: float | None, tera: bool) -> str:
    if giga is None:
        return ""
    return f"{giga / 1e3:.2f}" if tera else f"{giga:.1f}"


def _time_table(kernels: Iterable[Mapping[str, Any]], tera: bool) -> Table:
    """tera: rates in TFLOP/s and TB/s."""
    kernels = sorted(kernels, key=most_lost)
    tuned = any(kernel["choice"] for kernel in kernels)
    unit = "T" if tera else "G"
    table = _table(("us", "right"), ("share", "right"), ("lost", "right"), (f"{unit}FLOP/s", "right"),
                   (f"{unit}B/s", "right"), ("of roof", "right"),
                   ("bound by", "left"), ("kernel", "left"), *((("tuned", "left"),) if tuned else ()), ("ops", "left"),
                   ("source", "left"))  # fmt: skip
    for kernel in kernels:
        rates = [_rate(kernel[key], tera) for key in ("gflops", "gbytes")]
        percent = "" if kernel["percent"] is None else f"{kernel['percent']:.0f} %"
        texts = [kernel["bound"] or "", kernel["name"], *([choice_text(kernel["choice"])] if tuned else [])]
        texts += [_short(kernel["ops"]), _short(kernel["sources"])]
        times = [f"{kernel['us']:.1f}", f"{100 * kernel['share']:.1f} %", _microseconds(kernel["lost"])]
        table.add_row(*times, *rates, percent, *map(Text, texts))
    return table


def _sum_table(sums: Iterable[Mapping[str, Any]]) -> Table:
    """The kernels of one name together."""
    table = _table(("us", "right"), ("share", "right"), ("lost", "right"), ("", "right"), ("kernels of a name", "left"))
    for row in sums:
        times = [f"{row['us']:.1f}", f"{100 * row['share']:.1f} %", _microseconds(row["lost"])]
        table.add_row(*times, f"{row['count']} x", Text(row["name"]))
    return table


def _microseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def choice_text(choice: Mapping[str, Any]) -> str:
    """A kernel's choice as a person reads it: `depth 256, method direct`."""
    return ", ".join(f"{name} {value}" for name, value in choice.items())


def _short(names: Iterable[str]) -> str:
    """Names in order, each once."""
    return ", ".join(dict.fromkeys(name.removeprefix("aten.") for name in names))

"""A CheckReport as text for a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..runtime.inspect import megabytes, memory_line
from ..runtime.render import kernel_table
from ..runtime.signature import Signature
from ..runtime.text import counted
from .check import CheckReport, EntryReport

__all__ = ["render_check"]

MOST_OPERATORS = 8  # named in the summary


def render_check(report: CheckReport, source: str) -> RenderableType:
    """Problems first, then for each entry point its signature, sizes, operators and the kernels to expect."""
    parts: list[RenderableType] = []
    for problem in report.problems:
        where = f"{problem.entry}, {problem.stage}" if problem.entry else problem.stage
        parts += [Text(f"{where}: {problem}", style="red"), Text("")]
    parts += [Text(f"warning: {text}", style="yellow") for text in report.warnings]
    for entry in report.entries:
        parts += [*map(Text, _lines(entry)), Text(""), kernel_table(entry.row, {}), Text("")]
    verdict = f"compiles for {', '.join(report.targets)}" if report.ok else "does NOT compile"
    style = "green" if report.ok else "bold red"
    return Group(*parts, Text(f"{source} {verdict} (checked in {report.seconds:.1f} s)", style=style))


def _lines(entry: EntryReport) -> Iterator[str]:
    signature = Signature.from_manifest(entry.row)
    yield str(signature).splitlines()[0]
    for symbol, row in zip(signature.symbols, entry.row["symbols"], strict=True):
        yield f"  {symbol}, from dimension {row['dim']} of {signature.inputs[row['input']].name}"
    shown = [f"{count} {name.removeprefix('aten.')}" for name, count in entry.operators.items()]
    more = [f"{len(shown) - MOST_OPERATORS} other kinds"] if len(shown) > MOST_OPERATORS else []
    yield f"operators  {', '.join(shown[:MOST_OPERATORS] + more) or 'none'}"
    yield "kernels    " + ", ".join(f"{count} for {family}" for family, count in entry.kernels.items())
    yield f"weights    {megabytes(entry.weights)}"
    if entry.quantization is not None:
        yield from _quantized(entry.quantization)
    yield f"memory     {memory_line(entry.row['memory'])}"


def _quantized(row: dict[str, Any]) -> Iterator[str]:
    size, floats = (sum(layer[name] for layer in row["layers"]) for name in ("bytes", "float_bytes"))
    layers = counted(len(row["layers"]), "layer")
    yield f"quantised  {layers} to {row['format']}: {megabytes(floats)} -> {megabytes(size)}"
    read = row["reading"]
    now, before = (f"{read[name] * 1e3:.3g} ms" for name in ("seconds", "float_seconds"))
    yield f"reading    {now} a call at least, as floats {before} ({read['by']}, {read['rate'] / 1e9:.3g} GB/s)"
    for layer in row["layers"]:
        shape, (before, after) = "x".join(map(str, layer["shape"])), (layer["float_bytes"], layer["bytes"])
        yield f"  {layer['name']}  {layer['kind']} {shape}  {megabytes(before)} -> {megabytes(after)}"
    for left in row["left"]:
        yield f"  {left['name']}  left: {left['reason']}"

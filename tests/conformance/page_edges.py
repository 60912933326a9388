"""The part of docs/operators.md on reference inputs, special values, variants and modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from . import compact
from .unspecified import RULES

STATUSES = ("right", "refused", "wrong", "crash")
SOURCES = {
    "reference": "torch's `reference_inputs`, which have broadcasts, strided memory, mixed dtypes and Python scalars",
    "special": "the same packages with special values in every input: NaN, infinities, both zeros, the largest and the "
    "smallest numbers, subnormal numbers, 1e37, halves and ties; for integers the least and the largest, 0, -1, "
    "duplicates, and values out of range",
    "variants": "the in-place variant and the `out=` form of the entry, on views with gaps",
    "eval": "modules of torch's `module_db` in eval mode, their results and their buffers after the call",
    "train": "the same modules in training mode",
}
#: files of rows, and what ran them
FILES = (
    (compact.EDGES, ""),
    (compact.EDGES_CUDA, " on a GPU"),
    (compact.MODULES, " (modules)"),
    (compact.MODULES_CUDA, " on a GPU (modules)"),
)
Cell = Callable[[str], str]


def edges(cell: Cell, taken: Mapping[str, int]) -> Iterator[str]:
    """The lines; `taken`: how many entries of op_db torch has for each element type."""
    yield from (
        "## Edges",
        "",
        "Here the same entries run in further programs. NaN, infinities and the signs of zeros have to be exactly "
        "those of eager on the same device; other numbers have to be as close as above. A package has to refuse "
        "what eager refuses because of its values, such as an index out of range.",
        "",
        *(f"- {name}: {text}." for name, text in SOURCES.items()),
        "",
    )
    rows = [{**row, "on": on, "from": path} for path, on in FILES for row in compact.read(path)]
    yield from _counts(rows, taken)
    yield from _rules(cell)
    yield from _reasons(rows, cell)


def _counts(rows: Sequence[compact.Row], taken: Mapping[str, int]) -> Iterator[str]:
    head = ("source", "type", "entries", "tried", *STATUSES, "programs", "torch", "last run")
    yield from ("| " + " | ".join(head) + " |", "|---|" + "---|" * (len(head) - 1))
    dates = {path: compact.runs(path) for path, _ in FILES}
    for source in SOURCES:
        found = [r for r in rows if r["source"] == source]
        for dtype, on, path in dict.fromkeys((r["dtype"], r["on"], r["from"]) for r in found):
            own = [r for r in found if (r["dtype"], r["on"], r["from"]) == (dtype, on, path)]
            yield _count_row(source, dtype, on, own, _entries(path, dtype, taken), dates[path].get(dtype, ""))
    missing = [d for d in taken if not any(r["dtype"] == d and r["source"] == "reference" for r in rows)]
    if missing:
        yield from ("", f"Not run: {', '.join(missing)}.")
    yield ""


def _entries(path: Path, dtype: str, taken: Mapping[str, int]) -> int:
    """How many entries torch has: of op_db, or modules."""
    if path in (compact.EDGES, compact.EDGES_CUDA):
        return taken[dtype]
    return len({row["entry"] for row in compact.read(path)})


def _count_row(source: str, dtype: str, on: str, rows: Sequence[compact.Row], entries: int, date: str) -> str:
    count = Counter(r["status"] for r in rows)
    counts = " | ".join(str(count[s]) for s in STATUSES)
    programs = sum(r["samples"] for r in rows)
    made = ", ".join(f"{version} ({n})" for version, n in Counter(r["torch"] for r in rows).most_common())
    return f"| {source} | {dtype}{on} | {entries} | {len(rows)} | {counts} | {programs} | {made} | {date} |"


def _rules(cell: Cell) -> Iterator[str]:
    yield from (
        "### What is not compared",
        "",
        "In these cases eager itself specifies nothing, or mycc differs for the reason in the last column.",
        "",
        "| entries | values | not compared | because |",
        "|---|---|---|---|",
    )
    for rule in RULES:
        free = ", ".join(text for text in rule.free.words())
        yield f"| {cell(rule.name)} | {cell(rule.values)} | {free} | {cell(rule.reason)} |"
    yield ""


def _reasons(rows: Sequence[compact.Row], cell: Cell) -> Iterator[str]:
    yield from (
        "### What is refused",
        "",
        "`2/4` means that two of four programs are refused and the others are right.",
        "",
        "| reason | source | entries |",
        "|---|---|---|",
    )
    found: dict[tuple[str, str], dict[str, str]] = {}
    for r in rows:
        if r["status"] in ("refused", "wrong", "crash"):
            text = r["reason"] if r["status"] == "refused" else f"{r['status'].upper()}: {r['reason']}"
            key = (text, r["source"])
            found.setdefault(key, {}).setdefault(r["entry"], f"{r['samples'] - r['right']}/{r['samples']}")
    for (text, source), names in sorted(found.items(), key=lambda item: (item[0][1], -len(item[1]), item[0][0])):
        shown = ", ".join(f"`{name}` {share}" for name, share in names.items())
        yield f"| {cell(text)} | {source} | {shown} |"
    yield ""

"""Two reports side by side: what differs in sizes, times, kernels and fusions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["beside"]

Row = Mapping[str, Any]


def beside(report: Row, other: Row) -> dict[str, Any]:
    """The row "against" of a report.

    Returns:
        name of the other package; facts: name, unit, this, other; entry_points: for each that both have, kernels (by
        operators: how many here and there, and their times) and the decisions about fusions that only one has.
    """
    pairs = [(own, next((o for o in other["entry_points"] if o["name"] == own["name"]), None))
             for own in report["entry_points"]]  # fmt: skip
    return {
        "name": other["package"]["name"],
        "facts": _facts(report, other),
        "entry_points": [_entry(own, its, report, other) for own, its in pairs if its is not None],
    }


def _facts(report: Row, other: Row) -> list[dict[str, Any]]:
    def of(name: str, unit: str, read: Any) -> dict[str, Any]:
        return {"name": name, "unit": unit, "this": read(report), "other": read(other)}

    return [
        of("median time of a run", "us", lambda r: r["measured"] and 1e3 * r["measured"]["median_ms"]),
        of("kernels", "", lambda r: sum(len(_target(e, r)["kernels"]) for e in r["entry_points"])),
        of("fusions", "", lambda r: sum(f["done"] for e in r["entry_points"] for f in e["fusions"])),
        of("refused fusions", "", lambda r: sum(not f["done"] for e in r["entry_points"] for f in e["fusions"])),
        of(
            "arena",
            "bytes",
            lambda r: max((_target(e, r)["memory"]["arena"] or 0 for e in r["entry_points"]), default=0),
        ),
        of("weights", "bytes", lambda r: r["package"]["weights"]["size"]),
        of("everything else", "bytes", lambda r: r["package"]["other"]),
        of("error against float64", "error", lambda r: max((r["package"]["certificate"] or {}).get("error") or [0.0])),
    ]


def _target(entry: Row, report: Row) -> Row:
    """Of the target that was measured, else the first."""
    name = (report["measured"] or {}).get("target")
    found: Row = entry["targets"].get(name) or next(iter(entry["targets"].values()))
    return found


def _entry(own: Row, its: Row, report: Row, other: Row) -> dict[str, Any]:
    ours, theirs = _by_operators(_target(own, report)["kernels"]), _by_operators(_target(its, other)["kernels"])
    rows: list[dict[str, Any]] = [
        {"ops": list(ops), "this": len(ours.get(ops, ())), "other": len(theirs.get(ops, ())),
         "us": _time(ours.get(ops, ())), "other_us": _time(theirs.get(ops, ()))}
        for ops in dict.fromkeys((*ours, *theirs))
    ]  # fmt: skip
    rows.sort(key=lambda row: (row["this"] == row["other"], -(row["us"] or 0)))
    mine, yours = ({(f["producer"], f["consumer"], f["done"]): f for f in e["fusions"]} for e in (own, its))
    return {
        "name": own["name"],
        "kernels": rows,
        "fusions_only_this": [f for key, f in mine.items() if key not in yours],
        "fusions_only_other": [f for key, f in yours.items() if key not in mine],
    }


def _by_operators(kernels: Iterable[Row]) -> dict[tuple[str, ...], list[Row]]:
    found: dict[tuple[str, ...], list[Row]] = {}
    for kernel in kernels:
        found.setdefault(tuple(kernel["ops"]), []).append(kernel)
    return found


def _time(kernels: Iterable[Row]) -> float | None:
    times = [kernel["us"] for kernel in kernels if kernel.get("us") is not None]
    return sum(times) if times else None

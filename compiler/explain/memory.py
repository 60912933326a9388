"""Memory over time: which temporary lies where in the arena, from which kernel to which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.formula import evaluate
from ..schedule.memory.plan import ALIGNMENT, best_placement

__all__ = ["memory_of"]


def memory_of(entry: Mapping[str, Any], schedule: Mapping[str, Any] | None, sizes: Mapping[str, int]) -> dict[str, Any]:
    """arena (bytes), live (the largest sum of what is alive at one kernel), dynamic, buffers: name, dtype, bytes,
    offset, first and last kernel, over (results that lie in its memory).

    Where sizes are dynamic, buffers are placed for `sizes` as a call places them. Without a schedule (a package that
    keeps no sources) there are no buffers.
    """
    known = entry["memory"]
    dynamic = bool(known.get("dynamic"))
    if schedule is None:
        return {"arena": known.get("arena"), "live": known.get("live"), "dynamic": dynamic, "buffers": []}
    rows = schedule["buffers"]
    spans = [(row["first"], row["last"]) for row in rows]
    lengths = [-(-evaluate(row["bytes"], sizes) // ALIGNMENT) * ALIGNMENT for row in rows]
    offsets, arena = best_placement(spans, lengths)
    if all("offset" in row for row in rows):
        offsets = [row["offset"] for row in rows]
        arena = max((o + n for o, n in zip(offsets, lengths, strict=True)), default=0)
    over: dict[str, list[str]] = {}
    for name, under in schedule["over"].items():
        over.setdefault(under, []).append(name)
    kernels = max((last for _, last in spans), default=-1) + 1
    alive = [sum(n for n, (a, b) in zip(lengths, spans, strict=True) if a <= i <= b) for i in range(kernels)]
    return {
        "arena": arena,
        "live": max(alive, default=0),
        "dynamic": dynamic,
        "buffers": [
            {"name": row["name"], "dtype": row["dtype"], "bytes": length, "offset": offset, "first": row["first"],
             "last": row["last"], "over": over.get(row["name"], [])}
            for row, length, offset in zip(rows, lengths, offsets, strict=True)
        ],
    }  # fmt: skip

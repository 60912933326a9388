"""The arena of a run beside the largest sum of bytes that are alive at once, at every tested shape."""

from __future__ import annotations

import json
from collections.abc import Iterator

from zoo import ZOO, grid

from .common import Figure, Settings, at_most, worker

LIMIT = 1.15


def run(settings: Settings) -> Iterator[Figure]:
    for model in settings.models:
        for kind in ("static", "dynamic"):
            yield _model(settings, model, kind)


def _model(settings: Settings, model: str, kind: str) -> Figure:
    text = ZOO[model].text
    sizes = [(1, 128 if text else 0)] if kind == "static" else grid(text, full=True)
    rows = worker("plan_memory", settings.package(model, kind), json.dumps(sizes))["rows"]
    worst = max(rows, key=lambda row: row[2] / max(row[3], 1))
    batch, sequence, arena, live = worst
    where = f"batch {batch}" + (f", sequence {sequence}" if sequence else "")
    note = f"{len(rows)} shapes, worst at {where}: arena {arena / 1e6:.2f} MB"
    return at_most("memory", f"{model} {kind}, arena / live", arena / max(live, 1), LIMIT, note=note)

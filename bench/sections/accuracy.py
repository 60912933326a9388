"""How far outputs are from the float64 reference, beside eager torch; and whether they are always the same bits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from zoo import ZOO, grid

from .common import Figure, Settings, holds, worker


def run(settings: Settings) -> Iterator[Figure]:
    for model in settings.models:
        for kind in ("static", "dynamic"):
            yield from _model(settings, model, kind)


def _model(settings: Settings, model: str, kind: str) -> list[Figure]:
    text = ZOO[model].text
    sizes = [(1, 128 if text else 0)] if kind == "static" else grid(text, settings.full)
    rows = worker("compare_model", model, settings.package(model, kind), kind, json.dumps(sizes))["rows"]
    equal = [row for row in rows if not row["same"]]
    note = "differs at " + "; ".join(map(_where, equal)) if equal else f"{len(rows)} shapes"
    name = f"{model} {kind}, same bits at any threads and callers"
    return [*(_error(model, kind, row) for row in rows), holds("accuracy", name, not equal, "the same", note=note)]


def _error(model: str, kind: str, row: dict[str, Any]) -> Figure:
    pairs = list(zip(row["error"], row["eager"], strict=True))
    error, eager = max(pairs, key=lambda pair: pair[0] / (2 * pair[1] + 1e-7))
    limit = 2 * eager + 1e-7
    where = f"{model} {kind}" + (f", {_where(row)}" if kind == "dynamic" else "")
    return Figure("accuracy", where, error, "", f"<= {limit:.3g}", error <= limit, peers={"eager": eager})


def _where(row: dict[str, Any]) -> str:
    batch = f"batch {row['batch']}"
    return f"{batch}, sequence {row['sequence']}" if row["sequence"] else batch

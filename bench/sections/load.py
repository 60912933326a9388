"""Loading and a first run in a fresh process, its memory, and whether processes share the weights."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .common import WORKERS, Figure, Settings, at_most, holds, median, worker

PROCESSES = 7
MLP_MS, MLP_MB, BERT_MS = 60.0, 45.0, 50.0
# On the reference machine, in all: load and first run of the MLP, and resident memory.
KNOWN_MS = {"ort": 240.0, "aoti": 8400.0}
KNOWN_MB = {"ort": 59.0, "aoti": 373.0}


def run(settings: Settings) -> Iterator[Figure]:
    for model in settings.models:
        path = settings.package(model).resolve()
        rows = [worker("load_once", path) for _ in range(PROCESSES)]
        yield from _figures(model, {key: median([row[key] for row in rows]) for key in rows[0]})
        if path.stat().st_size > 2e7:
            yield _sharing(model, path)


def _figures(model: str, facts: dict[str, float]) -> list[Figure]:
    both, load, resident = 1e3 * facts["all"], 1e3 * facts["load"], facts["resident"] / 1e6
    names = [f"{model}, import, load and first run beyond numpy", f"{model}, resident", f"{model}, load"]
    if model == "mlp":
        return [
            at_most("load", names[0], both, MLP_MS, "ms", peers=KNOWN_MS),
            at_most("load", names[1], resident, MLP_MB, "MB", peers=KNOWN_MB),
            Figure("load", names[2], load, "ms"),
        ]
    limit = BERT_MS if model == "bert" else None
    timed = at_most("load", names[2], load, limit, "ms") if limit else Figure("load", names[2], load, "ms")
    return [Figure("load", names[0], both, "ms"), Figure("load", names[1], resident, "MB"), timed]


def _sharing(model: str, path: Path) -> Figure:
    """Two processes that have run the model: nothing of the mapped package may belong to one of them alone."""
    command = [sys.executable, str(WORKERS / "load_once.py"), str(path), "hold"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(2)]
    for process in processes:
        process.stdout.readline()  # type: ignore[union-attr]
    facts = []
    for process in processes:  # both are alive until both were measured
        print(file=process.stdin, flush=True)
        facts.append(json.loads(process.stdout.readline()))  # type: ignore[union-attr]
    for process in processes:
        process.communicate("\n")
    shared, private = (sum(row[key] for row in facts) / 2e6 for key in ("shared", "private"))
    note = f"of the mapped package {shared:.1f} MB shared, {private:.1f} MB private"
    return holds("load", f"{model}, two processes share the weights", private < 0.01 * shared, "shared", note=note)

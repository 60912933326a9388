"""A process that compiles and compares entries of op_db: batches on standard input, rows on standard output.

in    {"dtype": "float32", "entries": ["abs", "add"], "folder": "...", "cache": "..."}
out   {"running": "abs"}                 before a compiled call runs, so that a crash has a name
      {"entry": "abs", "dtype": "float32", "status": "right", "samples": 6, "right": 6, "reason": ""}
      {"done": true}                     the batch is through
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mycc.runtime.errors import CompileError, RunError

from .catalog import DTYPES, Entry, calls, disagreement, eager, entries
from .compile import Crash, Prepared, build_all, prepare, reason, run

Say = Callable[[dict[str, Any]], None]


class Tally:
    """What became of the samples of one entry."""

    def __init__(self, entry: Entry, dtype: str) -> None:
        self.entry, self.dtype = entry, dtype
        self.counts = {"right": 0, "refused": 0, "wrong": 0, "crash": 0}
        self.reasons: dict[str, str] = {}
        self.want: dict[str, list[Any]] = {}

    def add(self, status: str, reason: str = "") -> None:
        self.counts[status] += 1
        self.reasons.setdefault(status, reason)

    def row(self) -> dict[str, Any]:
        """The worst that happened is the entry's status; no sample at all is none."""
        samples = sum(self.counts.values())
        status = next((s for s in ("crash", "wrong", "refused", "right") if self.counts[s]), "none")
        return {
            "entry": self.entry.name,
            "dtype": self.dtype,
            "status": status,
            "samples": samples,
            "right": self.counts["right"],
            "reason": self.reasons.get(status, ""),
        }


def work(batch: dict[str, Any], say: Say) -> None:
    """One batch: everything that compiles goes into one package."""
    dtype = batch["dtype"]
    tallies = [Tally(entries()[name], dtype) for name in batch["entries"]]
    prepared: list[Prepared] = []
    owner: dict[str, Tally] = {}
    start = time.monotonic()
    for tally in tallies:
        for p in _prepare(tally, batch["samples"]):
            prepared.append(p)
            owner[p.name] = tally
    middle = time.monotonic()
    folder, cache = Path(batch["folder"]), Path(batch["cache"])
    folder.mkdir(parents=True, exist_ok=True)
    for p, package in build_all(prepared, folder, cache):
        tally = owner[p.name]
        if isinstance(package, Exception):
            tally.add("crash", str(package))
            continue
        say({"running": tally.entry.name})
        _compare(tally, p, package)
    for tally in tallies:
        say(tally.row())
    say({"done": True, "prepare": round(middle - start, 1), "build": round(time.monotonic() - middle, 1)})


def _prepare(tally: Tally, samples: int) -> list[Prepared]:
    """The calls of an entry that reach the schedule."""
    found = []
    stem = re.sub(r"\W", "_", tally.entry.name)
    for i, call in enumerate(calls(tally.entry, DTYPES[tally.dtype], samples)):
        try:
            want = eager(call, tally.entry)
        except Exception:
            continue  # torch itself refuses this sample
        try:
            p = prepare(f"{stem}_{i}", call)
        except CompileError as error:
            tally.add("refused", reason(error))
        except Crash as error:
            tally.add("crash", str(error))
        else:
            tally.want[p.name] = want
            found.append(p)
    return found


def _compare(tally: Tally, p: Prepared, package: Any) -> None:
    try:
        got = run(p, package)
    except RunError as error:
        tally.add("wrong", f"run: {reason(error)}")
        return
    except Crash as error:
        tally.add("crash", str(error))
        return
    problem = disagreement(tally.entry, p.call, got, tally.want[p.name])
    tally.add("wrong" if problem else "right", f"{p.name}: {problem}" if problem else "")


def main() -> None:
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what torch prints does not belong among the answers
    warnings.simplefilter("ignore")

    def say(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    for line in sys.stdin:
        work(json.loads(line), say)


if __name__ == "__main__":
    main()

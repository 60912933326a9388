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
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from mycc.runtime.errors import CompileError, RunError

from . import device
from .catalog import DTYPES, Call, Entry, calls, disagreement, eager, entries
from .compile import Crash, Prepared, build_all, prepare, reason, run

Say = Callable[[dict[str, Any]], None]
P = TypeVar("P", Prepared, device.Launches)


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
    if batch.get("family") == "cuda":
        _interpret(tallies, batch["samples"], say)
        say({"done": True, "interpreted": round(time.monotonic() - start, 1)})
        return
    for tally in tallies:
        for p in _prepare(tally, batch["samples"], prepare):
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
        _compare(tally, p, partial(run, p, package))
    for tally in tallies:
        say(tally.row())
    say({"done": True, "prepare": round(middle - start, 1), "build": round(time.monotonic() - middle, 1)})


def _interpret(tallies: Sequence[Tally], samples: int, say: Say) -> None:
    """The kernels of every call, one call after the other, through Triton's interpreter."""
    runner = device.Runner()
    for tally in tallies:
        for p in _prepare(tally, samples, device.prepare):
            _compare(tally, p, partial(runner.run, p))
        say(tally.row())
    runner.close()


def _prepare(tally: Tally, samples: int, prepare: Callable[[str, Call], P]) -> list[P]:
    """The calls of an entry that compile."""
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


def _compare(tally: Tally, p: Prepared | device.Launches, run: Callable[[], list[Any]]) -> None:
    try:
        got = run()
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

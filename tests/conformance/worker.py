"""A process that compiles and compares entries of op_db: batches on standard input, rows on standard output.

in    {"dtype": "float32", "entries": ["abs", "add"], "folder": "...", "cache": "..."}
out   {"at": "abs"}                      before a call is prepared or run, so that a crash has a name
      {"at": ""}                         before a package is built
      {"entry": "abs", "dtype": "float32", "status": "right", "samples": 6, "right": 6, "reason": ""}
      {"done": true}                     the batch is through
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mycc.compiler.capture.draws import draws_random_numbers
from mycc.runtime.errors import CompileError, RunError

from . import device
from .catalog import DROPPING, DTYPES, Call, Entry, RandomEntry, Together, calls, disagreement, eager, entries
from .compile import Crash, Prepared, build_all, prepare, reason, run

Say = Callable[[dict[str, Any]], None]


class Tally:
    """What became of the samples of one entry."""

    def __init__(self, entry: Entry, dtype: str) -> None:
        self.entry, self.dtype = entry, dtype
        self.counts = {"right": 0, "refused": 0, "wrong": 0, "crash": 0}
        self.reasons: dict[str, str] = {}

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
    tallies = [Tally(entries()[name], batch["dtype"]) for name in batch["entries"]]
    start = time.monotonic()
    if batch.get("family") == "cuda" and not batch.get("device"):
        _interpret(tallies, batch["samples"], say)
        say({"done": True, "interpreted": round(time.monotonic() - start, 1)})
        return
    groups = [g for tally in tallies for g in _groups(tally, batch["samples"])]
    spent = {"prepare": 0.0, "build": 0.0}
    for round_ in range(2):  # what does not work together is tried one by one
        groups = _through(groups, batch, round_, say, spent)
    for tally in tallies:
        say(tally.row())
    say({"done": True, **{name: round(seconds, 1) for name, seconds in spent.items()}})


@dataclass(frozen=True)
class Group:
    """Calls of one entry that are compiled as one."""

    tally: Tally
    calls: tuple[Call, ...]
    wants: tuple[list[Any], ...]
    first: int  # number of the first call

    @property
    def name(self) -> str:
        return f"{re.sub(r'[^A-Za-z0-9]', '_', self.tally.entry.name)}_{self.first}"

    @property
    def whole(self) -> Call | Together:
        return Together(self.calls) if len(self.calls) > 1 else self.calls[0]

    def alone(self) -> list[Group]:
        pairs = enumerate(zip(self.calls, self.wants, strict=True), self.first)
        return [Group(self.tally, (call,), (want,), i) for i, (call, want) in pairs]


def _groups(tally: Tally, samples: int) -> list[Group]:
    """The calls that torch itself takes, as one group."""
    found = list(_taken(tally, samples))
    group = Group(tally, tuple(c for c, _ in found), tuple(w for _, w in found), 0)
    if tally.entry.name in DROPPING:
        return group.alone()
    return [group] if found else []


def _taken(tally: Tally, samples: int) -> Iterator[tuple[Call, list[Any]]]:
    """Calls with the results of eager; those that torch itself refuses are left out."""
    for call in calls(tally.entry, DTYPES[tally.dtype], samples):
        try:
            want = eager(call, tally.entry)
        except Exception:
            continue
        yield call, want


def _through(
    groups: Sequence[Group], batch: dict[str, Any], round_: int, say: Say, spent: dict[str, float]
) -> list[Group]:
    """Compiles, runs and compares groups; those calls of which one fails for whatever reason, to try them alone."""
    start, family = time.monotonic(), batch.get("family", "cpu")
    again: list[Group] = []
    ready: dict[str, tuple[Group, Prepared]] = {}
    for group in groups:
        say({"at": group.tally.entry.name})
        try:
            ready[group.name] = group, prepare(group.name, group.whole, family)
        except (CompileError, Crash) as error:
            _failed(group, error, again)
    middle = time.monotonic()
    folder, cache = Path(batch["folder"]) / str(round_), Path(batch["cache"])
    folder.mkdir(parents=True, exist_ok=True)
    say({"at": ""})
    for p, package in build_all([p for _, p in ready.values()], folder, cache, family):
        group = ready[p.name][0]
        say({"at": group.tally.entry.name})
        try:
            if isinstance(package, Exception):
                raise package
            found = run(p, package)
        except (RunError, Crash) as error:
            _failed(group, error, again)
        else:  # on a GPU torch draws other numbers than the CPU's eager
            _compare(group, found, family == "cuda" and draws_random_numbers(p.captured))
        say({"at": ""})  # perhaps another package is built now
    spent["prepare"] += middle - start
    spent["build"] += time.monotonic() - middle
    return again


def _failed(group: Group, error: Exception, again: list[Group]) -> None:
    if len(group.calls) > 1:
        again.extend(group.alone())
    elif isinstance(error, CompileError):
        group.tally.add("refused", reason(error))
    elif isinstance(error, RunError):
        group.tally.add("wrong", f"run: {reason(error)}")
    else:
        group.tally.add("crash", str(error))


def _interpret(tallies: Sequence[Tally], samples: int, say: Say) -> None:
    """The kernels of every entry, one entry after the other, through Triton's interpreter."""
    runner = device.Runner()
    for tally in tallies:
        say({"at": tally.entry.name})
        groups = _groups(tally, samples)
        for _ in range(2):
            groups = [one for group in groups for one in _interpreted(group, runner)]
        say(tally.row())
    runner.close()


def _interpreted(group: Group, runner: device.Runner) -> list[Group]:
    """Compares a group; its calls, to try them alone, when one of them fails or draws random numbers."""
    again: list[Group] = []
    try:
        launches = device.prepare(group.name, group.whole)
        if launches.random and len(group.calls) > 1:
            return group.alone()
        found = runner.run(launches, group.wants)
    except (CompileError, RunError, Crash) as error:
        _failed(group, error, again)
    else:
        _compare(group, found, launches.random)
    return again


def _compare(group: Group, found: Sequence[Sequence[Any]], random: bool = False) -> None:
    entry = RandomEntry(group.tally.entry.name, group.tally.entry.op) if random else group.tally.entry
    for i, (call, got, want) in enumerate(zip(group.calls, found, group.wants, strict=True), group.first):
        problem = disagreement(entry, call, got, want)
        group.tally.add("wrong" if problem else "right", f"sample {i}: {problem}" if problem else "")


def end_with_parent(parent: int) -> None:
    """Ends this process and all that it started, which are a session of their own, when its parent is gone: one that is
    killed cannot say so. The parent tells who it is: asked for here, it may be gone already, and another one is named.
    """
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    threading.Thread(target=end_with_parent, args=(int(sys.argv[1]),), daemon=True).start()
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

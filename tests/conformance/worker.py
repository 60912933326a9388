"""A process that compiles and compares entries of op_db: batches on standard input, rows on standard output.

in    {"dtype": "float32", "entries": ["abs", "add"], "kind": "samples", "folder": "...", "cache": "..."}
out   {"at": "abs"}                      before a call is prepared or run, so that a crash has a name
      {"at": ""}                         before a package is built
      {"entry": "abs", "dtype": "float32", "status": "right", "samples": 6, "right": 6, "reason": ""}
      {"done": true}                     the batch is through
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import resource
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mycc.compiler.model.random_operators import draws_random_numbers
from mycc.runtime.errors import CompileError, RunError

from . import device
from .catalog import DROPPING, DTYPES, calls, eager
from .compile import Crash, Prepared, build_all, prepare, run
from .edges import compare_exactly, groups_of_edges
from .gradients import SOURCE as GRADIENTS
from .gradients import groups_of_gradients
from .sources import entries_of
from .tally import SAMPLES, Group, Tally

Say = Callable[[dict[str, Any]], None]
#: the rows of an entry, by kind of results
SOURCES = {
    "samples": (SAMPLES,),
    "edges": ("reference", "special", "variants"),
    "modules": ("eval", "train", "special"),
    "gradients": (GRADIENTS,),
}
MEMORY = 10 << 30  # bytes that a process may take: sizes read from special values are large


def work(batch: dict[str, Any], say: Say) -> None:
    """One batch: everything that compiles goes into one package."""
    kind = batch.get("kind", "samples")
    tallies = [Tally(entries_of(kind)[name], batch["dtype"]) for name in batch["entries"]]
    start = time.monotonic()
    if batch.get("family") == "cuda" and not batch.get("device"):
        _interpret(tallies, batch["samples"], say)
        say({"done": True, "interpreted": round(time.monotonic() - start, 1)})
        return
    groups: list[Group] = []
    for tally in tallies:
        say({"at": tally.entry.name})
        groups += _groups_of(tally, kind, batch)
    spent = {"prepare": 0.0, "build": 0.0}
    for round_ in range(2):  # what does not work together is tried one by one
        groups = _through(groups, batch, round_, say, spent)
    for tally in tallies:
        for row in tally.rows(SOURCES[kind]):
            say(row)
    say({"done": True, **{name: round(seconds, 1) for name, seconds in spent.items()}})


def _groups_of(tally: Tally, kind: str, batch: dict[str, Any]) -> list[Group]:
    """The programs of an entry that torch itself takes."""
    if kind == "samples":
        return _groups(tally, batch["samples"])
    return groups_of_gradients(tally) if kind == "gradients" else groups_of_edges(tally, kind, batch)


def _groups(tally: Tally, samples: int) -> list[Group]:
    """The calls that torch itself takes, as one group."""
    found = list(_taken(tally, samples))
    group = Group(tally, tuple(c for c, _ in found), tuple(w for _, w in found), (SAMPLES,) * len(found))
    if tally.entry.name in DROPPING:
        return group.alone()
    return [group] if found else []


def _taken(tally: Tally, samples: int) -> Iterator[tuple[Any, list[Any]]]:
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
            again += group.failed(error)
    middle = time.monotonic()
    folder, cache = Path(batch["folder"]) / str(round_), Path(batch["cache"])
    folder.mkdir(parents=True, exist_ok=True)
    say({"at": ""})
    for p, package in build_all([p for _, p in ready.values()], folder, cache, family):
        group = ready[p.name][0]
        say({"at": group.tally.entry.name})
        again += _judged(group, p, package, batch)
        say({"at": ""})  # perhaps another package is built now
    spent["prepare"] += middle - start
    spent["build"] += time.monotonic() - middle
    return again


def _judged(group: Group, p: Prepared, package: Any, batch: dict[str, Any]) -> list[Group]:
    """Runs and compares a group; its calls, to try them alone, when one of them fails."""
    try:
        if isinstance(package, Exception):
            raise package
        # on a GPU torch draws other numbers than the CPU's eager
        random = batch.get("family", "cpu") == "cuda" and draws_random_numbers(p.captured)
        if batch.get("kind", "samples") in ("samples", "gradients"):
            group.compare(run(p, package), random)
        else:
            compare_exactly(group, p, package, random, "cuda" if batch.get("device") else "cpu")
    except (RunError, Crash) as error:
        return group.failed(error)
    return []


def _interpret(tallies: Sequence[Tally], samples: int, say: Say) -> None:
    """The kernels of every entry, one entry after the other, through Triton's interpreter."""
    runner = device.Runner()
    for tally in tallies:
        say({"at": tally.entry.name})
        groups = _groups(tally, samples)
        for _ in range(2):
            groups = [one for group in groups for one in _interpreted(group, runner)]
        say(tally.rows([SAMPLES])[0])
    runner.close()


def _interpreted(group: Group, runner: device.Runner) -> list[Group]:
    """Compares a group; its calls, to try them alone, when one of them fails or draws random numbers."""
    try:
        launches = device.prepare(group.name, group.whole)
        if launches.random and len(group.calls) > 1:
            return group.alone()
        group.compare(runner.run(launches, group.wants), launches.random)
    except (CompileError, RunError, Crash) as error:
        return group.failed(error)
    return []


def end_with_parent(parent: int) -> None:
    """Ends this process and all that it started, which are a session of their own, when its parent is gone: one that is
    killed cannot say so. The parent tells who it is: asked for here, it may be gone already, and another one is named.
    """
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    threading.Thread(target=end_with_parent, args=(int(sys.argv[1]),), daemon=True).start()
    if "--limit-memory" in sys.argv:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what torch prints does not belong among the answers
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)  # torch's word on programs that it refuses
    faulthandler.enable()  # names the call, of eager or of the package, that ends the process

    def say(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    for line in sys.stdin:
        work(json.loads(line), say)


if __name__ == "__main__":
    main()

"""What each optional pass of the schedule is worth: cases with the pass beside the same without it, in one run.

    python bench/passes.py [--only loops,views,convolutions,blocks,models] [--passes inline,fuse-rows] [--threads 1]
                           [--list] [--quick] [--jobs 2] [--side 1] [--json rows.json] [--known earlier.json]
                           [--folder packages]

Every case is scheduled once with all passes and once for each pass without it (`--set schedule.off=NAME`). Where the
kernels or their plans differ, both packages are built and, unless their sources are the same, timed in turns. A ratio
is the time without the pass over the time with it, the median of the turns: 1.10 says that the pass saves a tenth. A
pass is kept where it moves a model or a block by 2 %, or a loop, a view or a convolution by 10 %; the last lines name
those that move none so far on this machine. `--list` shows which cases each pass changes, and times none. `--quick`
takes the first two cases of each kind, to see that all runs. `--jobs` cases are built at once, and then `--side`
cases are timed at once, each on processors of its own. `--known` takes the rows of an earlier run on the same machine
into the summary, and leaves out the passes that were worth their lines there. Packages that lie in `--folder` are not
built again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import mycc
import torch
from cases import KINDS, QUICK, Case, cases
from forked import forked
from mycc.compiler.lower.core.driver import Lowered
from mycc.compiler.observe import Observer
from mycc.compiler.options import ScheduleOptions
from mycc.compiler.schedule import schedule
from mycc.compiler.schedule.passes import CPU_PASSES
from mycc.compiler.schedule.planning import CPU_PLANNING, OPTIONAL

ROUNDS = 15
#: a ratio from which a pass is worth its lines, for each kind of case
WORTH = {"loops": 1.10, "views": 1.10, "convolutions": 1.10, "blocks": 1.02, "models": 1.02}
WHOLE = "with all"


def optional_passes() -> tuple[str, ...]:
    """The passes for CPUs that can be switched off."""
    rewrites = [p.name for p in CPU_PASSES if not p.required]
    return tuple(dict.fromkeys([*rewrites, *(p.name for p in CPU_PLANNING if p.name in OPTIONAL)]))


@dataclass(frozen=True)
class Row:
    """A case that a pass changes. ratio: of the times without and with it; 1.0 where none was measured."""

    kind: str
    case: str
    name: str
    ratio: float

    def __str__(self) -> str:
        return f"{self.kind:13} {self.case:32} without {self.name:28} {self.ratio:.3f}"


class _LoweredError(BaseException):  # an Exception would become a fault of the compile
    """Ends a compile behind lowering. programs: what that made."""

    def __init__(self, programs: Sequence[Lowered]) -> None:
        super().__init__("lowered")
        self.programs = programs


class _UpToLowering(Observer):
    """Raises _LoweredError when lowering ended."""

    def stage_finished(self, name: str, seconds: float, summary: str, value: object) -> None:
        if name == "lower":
            assert isinstance(value, list)
            raise _LoweredError(value)


def build(case: Case, off: str, out: Path, observer: Observer | None = None) -> None:
    """Compiles a case without a pass ("": with all), in this process alone."""
    options = {"schedule.off": off} if off else {}
    mycc.compile(case.module, case.inputs, out=out, verify=False, options=options, jobs=1, progress=observer)


def changing(case: Case, passes: Sequence[str], out: Path) -> list[str]:
    """The passes without which the kernels of a case or their plans are others. out: of a package that is not made."""
    try:
        build(case, "", out, _UpToLowering())
    except _LoweredError as lowered:
        programs = [entry.program for entry in lowered.programs]
    before = [str(schedule(program)) for program in programs]
    return [p for p in passes if [str(schedule(q, ScheduleOptions(off=(p,)))) for q in programs] != before]


def sources(package: Path) -> str:
    with zipfile.ZipFile(package) as archive:
        names = sorted(n for n in archive.namelist() if n.startswith("src/") and "/kernels_" in n)
        return "".join(archive.read(n).decode() for n in names)


def seconds(entry: Any, inputs: Sequence[Any], runs: int) -> float:
    """Of one run, all kernels together."""
    return sum(entry.profile(list(inputs), runs)) / 1e9


def ratio(case: Case, with_it: Path, without: Path, threads: int) -> float:
    """The time without the pass over the time with it: the median of turns, each of which runs both."""
    pair = [mycc.load(p, threads=threads).entry("forward") for p in (with_it, without)]
    once = max(seconds(pair[0], case.inputs, 2), 1e-6)
    runs = max(3, min(200, math.ceil(0.02 / once)))
    spent: list[list[float]] = [[], []]
    for turn in range(ROUNDS):
        for i in (0, 1) if turn % 2 else (1, 0):
            spent[i].append(seconds(pair[i], case.inputs, runs))
    return statistics.median(without / with_all for with_all, without in zip(*spent, strict=True))


class Run:
    """The cases of a run, built and then timed, in processes of their own."""

    def __init__(self, options: argparse.Namespace, folder: Path, known: Sequence[Row]) -> None:
        self.options = options
        self.folder = folder
        self.passes = [name for name in options.passes.split(",") if name not in proved(known)]

    def cases(self) -> Iterator[Case]:
        for kind in self.options.only.split(","):
            yield from cases(kind, self.options.case, self.options.quick)

    def package(self, case: Case, name: str) -> Path:
        return self.folder / f"{case.kind}-{case.name}-{name}.pkg".replace("/", "_").replace(" ", "_")

    def changed(self) -> dict[tuple[str, str], list[str]]:
        """The passes that change each case, by its kind and name."""
        found = {}
        tasks = (
            ((c.kind, c.name), partial(changing, c, self.passes, self.package(c, WHOLE))) for c in self.cases()
        )  # fmt: skip
        for key, names in forked(tasks, self.options.jobs):
            found[key] = names
        return found

    def build(self, changed: dict[tuple[str, str], list[str]]) -> None:
        """Builds the cases that a pass changes, with all passes and without each of those."""
        tasks = (
            ((c.kind, c.name, name), partial(build, c, "" if name == WHOLE else name, self.package(c, name)))
            for c in self.cases()
            if (names := changed.get((c.kind, c.name), ()))
            for name in (WHOLE, *names)
            if not self.package(c, name).exists()
        )
        for _ in forked(tasks, self.options.jobs):
            pass

    def timed(self, changed: dict[tuple[str, str], list[str]]) -> Iterator[Row]:
        """Times the packages whose sources differ."""
        tasks = (
            ((c.kind, c.name, name), partial(ratio, c, whole, without, self.options.threads))
            for c in self.cases()
            for name in changed.get((c.kind, c.name), ())
            if (without := self.package(c, name)).exists() and (whole := self.package(c, WHOLE)).exists()
            if sources(without) != sources(whole)
        )
        for (kind, case, name), found in forked(tasks, self.options.side, self.options.threads):
            yield Row(kind, case, name, found)


def proved(rows: Sequence[Row]) -> set[str]:
    """The passes that are worth their lines."""
    return {row.name for row in rows if row.ratio >= WORTH[row.kind]}


def summary(rows: Sequence[Row], passes: Sequence[str], timed: bool) -> Iterator[str]:
    for name in sorted(passes):
        own = [row for row in rows if row.name == name]
        by_kind = {kind: [row.ratio for row in own if row.kind == kind] for kind in KINDS}
        parts = [
            f"{kind} {len(ratios)}: {statistics.geometric_mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            for kind, ratios in by_kind.items()
            if ratios
        ]
        yield f"{name:28} {'; '.join(parts) or 'changes nothing'}"
    if timed:
        idle = sorted(set(passes) - proved(rows))
        yield f"worth nothing on these cases: {', '.join(idle) or 'none'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds of cases, with commas between")
    parser.add_argument("--case", default="", help="cases whose name contains this")
    parser.add_argument("--passes", default=",".join(optional_passes()))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--quick", action="store_true", help=f"the first {QUICK} cases of each kind")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cases that are built at once")
    parser.add_argument("--side", type=int, default=1, help="cases that are timed at once")
    parser.add_argument("--json", type=Path, help="a file for the rows")
    parser.add_argument("--known", type=Path, help="rows of an earlier run")
    parser.add_argument("--folder", type=Path, help="where packages are kept")
    options = parser.parse_args()
    known = [Row(**row) for row in json.loads(options.known.read_text("utf-8"))] if options.known else []
    torch.set_num_threads(1)  # processes are forked
    with tempfile.TemporaryDirectory(prefix="mycc-passes-") as own, torch.inference_mode():
        folder = options.folder or Path(own)
        folder.mkdir(parents=True, exist_ok=True)
        run = Run(options, folder, known)
        changed = run.changed()
        if options.list:
            rows = [Row(kind, case, name, 1.0) for (kind, case), names in changed.items() for name in names]
            print("\n".join(map(str, rows)))
        else:
            run.build(changed)
            rows = known
            for row in run.timed(changed):
                print(row, flush=True)
                rows.append(row)
                if options.json:
                    options.json.write_text(json.dumps([vars(r) for r in rows], indent=1), encoding="utf-8")
    print("\n".join(summary(rows, options.passes.split(","), not options.list)))


if __name__ == "__main__":
    main()

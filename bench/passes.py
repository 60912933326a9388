"""What each optional pass of the schedule is worth: cases with the pass beside the same without it, in one run.

    python bench/passes.py [--only loops,convolutions,blocks,models] [--passes inline,fuse-rows] [--threads 1] [--list]
                           [--quick]

Every case is compiled once with all passes and once for each pass without it (`--set schedule.off=NAME`). Cases whose
kernels have the same source either way are not timed: the pass does nothing there. The others are timed in turns; a
ratio is the median time without the pass over the median with it, so that 1.10 says that the pass saves a tenth.
A pass is kept where it moves a model or a block by 2 %, or a loop or a convolution by 10 %; the last lines name those
that move none so far on this machine. `--list` shows which cases each pass changes, and times none. `--quick` takes the
first two cases of each kind, to see that all runs.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mycc
import torch
from cases import KINDS, QUICK, Case, cases
from mycc.compiler.schedule.passes import CPU_PASSES
from mycc.compiler.schedule.planning import CPU_PLANNING, OPTIONAL

ROUNDS = 9
#: a ratio from which a pass is worth its lines, for each kind of case
WORTH = {"loops": 1.10, "convolutions": 1.10, "blocks": 1.02, "models": 1.02}


def optional_passes() -> tuple[str, ...]:
    """The passes for CPUs that can be switched off."""
    rewrites = [p.name for p in CPU_PASSES if not p.required]
    return tuple(dict.fromkeys([*rewrites, *(p.name for p in CPU_PLANNING if p.name in OPTIONAL)]))


def compiled(case: Case, off: str, out: Path) -> str:
    """Compiles a case without a pass ("": with all) and returns the sources of its kernels."""
    options = {"schedule.off": off} if off else {}
    mycc.compile(case.module, case.inputs, out=out, verify=False, options=options)
    with zipfile.ZipFile(out) as package:
        names = sorted(n for n in package.namelist() if n.startswith("src/") and "/kernels_" in n)
        return "".join(package.read(n).decode() for n in names)


def seconds(entry: Any, inputs: Sequence[Any], runs: int) -> float:
    """Of one run, all kernels together."""
    return sum(entry.profile(list(inputs), runs)) / 1e9


def ratio(case: Case, with_it: Path, without: Path, threads: int) -> float:
    """The time without the pass over the time with it: medians of rounds in turns."""
    pair = [mycc.load(p, threads=threads).entry("forward") for p in (with_it, without)]
    once = max(seconds(pair[0], case.inputs, 2), 1e-6)
    runs = max(3, min(200, math.ceil(0.02 / once)))
    spent: list[list[float]] = [[], []]
    for turn in range(ROUNDS):
        for i in (0, 1) if turn % 2 else (1, 0):
            spent[i].append(seconds(pair[i], case.inputs, runs))
    return statistics.median(spent[1]) / statistics.median(spent[0])


def measure(case: Case, passes: Sequence[str], folder: Path, threads: int, timed: bool) -> Iterator[tuple[str, float]]:
    """For each pass that changes the case its ratio; 1.0 where none is timed."""
    whole = folder / "with.pkg"
    before = compiled(case, "", whole)
    for name in passes:
        without = folder / "without.pkg"
        if compiled(case, name, without) != before:
            yield name, ratio(case, whole, without, threads) if timed else 1.0


def summary(found: dict[str, list[tuple[Case, float]]], timed: bool) -> Iterator[str]:
    for name, rows in sorted(found.items()):
        by_kind = {kind: [r for c, r in rows if c.kind == kind] for kind in KINDS}
        parts = [
            f"{kind} {len(ratios)}: {statistics.geometric_mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            for kind, ratios in by_kind.items()
            if ratios
        ]
        yield f"{name:28} {'; '.join(parts) or 'changes nothing'}"
    if not timed:
        return
    idle = [name for name, rows in found.items() if all(r < WORTH[c.kind] for c, r in rows)]
    yield f"worth nothing on these cases: {', '.join(sorted(idle)) or 'none'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds of cases, with commas between")
    parser.add_argument("--case", default="", help="cases whose name contains this")
    parser.add_argument("--passes", default=",".join(optional_passes()))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--quick", action="store_true", help=f"the first {QUICK} cases of each kind")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    passes = options.passes.split(",")
    found: dict[str, list[tuple[Case, float]]] = {name: [] for name in passes}
    with tempfile.TemporaryDirectory(prefix="mycc-passes-") as folder, torch.inference_mode():
        for kind in options.only.split(","):
            for case in cases(kind, options.case, options.quick):
                for name, r in measure(case, passes, Path(folder), options.threads, not options.list):
                    found[name].append((case, r))
                    print(
                        f"{kind:13} {case.name:32} without {name:28} {'' if options.list else f'{r:.3f}'}", flush=True
                    )
    print("\n".join(summary(found, not options.list)))


if __name__ == "__main__":
    main()

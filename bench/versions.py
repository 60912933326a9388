"""Packages of two versions of mycc, run in turns by this one: what a change costs or saves.

    python bench/versions.py --build NEW --only models,blocks    # packages of bench/cases.py, by this version
    python bench/versions.py OLD NEW --threads 1,2               # folders of packages: medians, and new beside old

The other version builds its folder by this script with a Python of its own. A package of an older version loads in this
runtime. A case that either version cannot compile is named.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from pathlib import Path
from typing import Any

import mycc
import torch
from cases import KINDS, Case, cases

LEAST_TURNS = 10


def main() -> None:
    options = _options()
    kinds = options.only.split(",")
    if options.build:
        for kind in kinds:
            _build(Path(options.build) / kind, kind, options.case)
        return
    for threads in map(int, options.threads.split(",")):
        for kind in kinds:
            found = (_compared(options, case, threads) for case in cases(kind, options.case))
            ratios = [ratio for ratio in found if ratio is not None]
            if ratios:
                mean = statistics.geometric_mean(ratios)
                print(f"threads {threads}, {len(ratios)} {kind}: geometric mean of new / old {mean:.4f}", flush=True)


def _build(folder: Path, kind: str, part: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases(kind, part):
        start = time.perf_counter()
        try:
            mycc.compile(case.module.eval(), case.inputs, out=folder / _file(case), verify=False)
            print(f"{case.name:32} built in {time.perf_counter() - start:.1f} s", flush=True)
        except Exception as error:
            print(f"{case.name:32} not built: {str(error).splitlines()[0]}", flush=True)


def _file(case: Case) -> str:
    return f"{case.name.replace('/', '_').replace(' ', '_')}.pkg"


def _compared(options: argparse.Namespace, case: Case, threads: int) -> float | None:
    """Median time of the new package by that of the old one; each turn runs both, the other one first."""
    inputs = [x.numpy() if isinstance(x, torch.Tensor) else x for x in case.inputs]
    paths = [Path(folder) / case.kind / _file(case) for folder in options.folders]
    if not all(path.exists() for path in paths):
        print(f"{case.name:32} is not in both folders", flush=True)
        return None
    packages = [mycc.load(path, threads=threads) for path in paths]
    once = max(max(_seconds(package, inputs, 1) for package in packages), 1e-7)
    runs = max(1, math.ceil(options.least / once))
    times: tuple[list[float], list[float]] = ([], [])
    end, turn = time.perf_counter() + options.seconds, 0
    while time.perf_counter() < end or turn < LEAST_TURNS:
        for i in (0, 1) if turn % 2 else (1, 0):
            times[i].append(_seconds(packages[i], inputs, runs))
        turn += 1
    old, new = map(statistics.median, times)
    print(
        f"{case.name:32} {threads} threads  old {old * 1e3:9.3f} ms  new {new * 1e3:9.3f} ms  {new / old:.3f}",
        flush=True,
    )
    return new / old


def _seconds(package: Any, inputs: list[Any], runs: int) -> float:
    """Of one call, the mean of several."""
    start = time.perf_counter()
    for _ in range(runs):
        package(*inputs)
    return (time.perf_counter() - start) / runs


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="packages of two versions, in turns")
    parser.add_argument("folders", nargs="*", help="of the old version, of the new one")
    parser.add_argument("--build", help="build packages into this folder instead")
    parser.add_argument("--only", default="models,blocks", help=f"kinds of cases: {', '.join(KINDS)}")
    parser.add_argument("--case", default="", help="cases whose name contains this")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each case")
    parser.add_argument("--least", type=float, default=0.005, help="seconds of a turn of one package")
    options = parser.parse_args()
    if not options.build and len(options.folders) != 2:
        parser.error("two folders, or --build FOLDER")
    return options


if __name__ == "__main__":
    main()

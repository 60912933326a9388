"""Packages of two versions of mycc, run in turns by this one: what a change costs or saves in models.

    python bench/versions.py --build NEW                     # packages of the models of bench/zoo.py, by this version
    python bench/versions.py OLD NEW --threads 1,2           # folders of packages: medians, and new beside old

The other version builds its folder from its own checkout. A package of an older version loads in this runtime.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from pathlib import Path
from typing import Any

import mycc
from zoo import MODELS, ZOO

LEAST_TURNS = 10


def main() -> None:
    options = _options()
    models = options.models.split(",")
    if options.build:
        _build(Path(options.build), models)
        return
    for threads in map(int, options.threads.split(",")):
        ratios = [_compared(options, name, threads) for name in models]
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"threads {threads}: geometric mean of new / old {mean:.4f}", flush=True)


def _build(folder: Path, models: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in models:
        start = time.perf_counter()
        model = ZOO[name]
        mycc.compile(model.build(), model.inputs(), out=folder / f"{name}.pkg", verify=False)
        print(f"{name:12} built in {time.perf_counter() - start:.1f} s", flush=True)


def _compared(options: argparse.Namespace, name: str, threads: int) -> float:
    """Median time of the new package by that of the old one; each turn runs both, the other one first."""
    inputs = [x.numpy() for x in ZOO[name].inputs()]
    packages = [mycc.load(Path(folder) / f"{name}.pkg", threads=threads) for folder in options.folders]
    for package in packages:
        _seconds(package, inputs)
    times: tuple[list[float], list[float]] = ([], [])
    end, turn = time.perf_counter() + options.seconds, 0
    while time.perf_counter() < end or turn < LEAST_TURNS:
        for i in (0, 1) if turn % 2 else (1, 0):
            times[i].append(_seconds(packages[i], inputs))
        turn += 1
    old, new = map(statistics.median, times)
    print(f"{name:12} {threads} threads  old {old * 1e3:9.3f} ms  new {new * 1e3:9.3f} ms  {new / old:.3f}", flush=True)
    return new / old


def _seconds(package: Any, inputs: list[Any]) -> float:
    start = time.perf_counter()
    package(*inputs)
    return time.perf_counter() - start


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="packages of two versions, in turns")
    parser.add_argument("folders", nargs="*", help="of the old version, of the new one")
    parser.add_argument("--build", help="build packages into this folder instead")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each model")
    options = parser.parse_args()
    if not options.build and len(options.folders) != 2:
        parser.error("two folders, or --build FOLDER")
    return options


if __name__ == "__main__":
    main()

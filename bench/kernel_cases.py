"""What the benchmarks of CPU kernels share: building their C++ source, and timing a case in turns with torch.

Roof, kernel and torch are measured in turn within each row, so that a change of the clock meets all of them; the roof
is that of the ISA's registers on one core, times the threads.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from mycc.compiler.codegen.cpu.machine_header import render_machine
from mycc.compiler.codegen.cpu.micro import render_micro_kernels
from mycc.compiler.machine.targets import parse_targets, runs_here

ROOT = Path(__file__).resolve().parents[1]
FLAGS = "-std=c++17 -O2 -fno-exceptions -fno-rtti -fno-math-errno -fno-trapping-math -Wno-psabi".split()
ROUNDS = 4

Libraries = dict[str, ctypes.CDLL]


class Named(Protocol):
    @property
    def name(self) -> str: ...


Case = TypeVar("Case", bound=Named)
#: library, its host (NULL where it has none), repeats -> the least seconds of a run
Run = Callable[[ctypes.CDLL, ctypes.c_void_p, int], float]


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options that all of them take."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", default="x86-64-v3,x86-64-v4")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name contains this; several with commas between")
    parser.add_argument("--seconds", type=float, default=0.4, help="time spent on a case, about")
    return parser


def wanted(name: str, only: str) -> bool:
    """Whether --only asks for a case."""
    return any(text in name for text in only.split(","))


def build(isa: str, source: Path) -> ctypes.CDLL:
    """The compiled benchmark library `source` for an ISA level, as targets call it without "cpu:"."""
    (target,) = parse_targets(f"cpu:{isa}")
    if not runs_here(target):
        raise SystemExit(f"this machine does not run {target.name}")
    with tempfile.TemporaryDirectory(prefix="mycc-bench-") as folder:
        (Path(folder) / "micro_kernels.h").write_text(render_micro_kernels(target.tiles))
        (Path(folder) / "machine.h").write_text(render_machine(target.tiles))
        out = f"{folder}/bench.so"
        include = ["-I", folder, "-I", str(ROOT / "runtime" / "include"), "-I", str(ROOT)]
        command = ["g++", *FLAGS, "-shared", "-fPIC", "-pthread", *target.flags, *include, str(source), "-o", out]
        subprocess.run(command, check=True)
        library = ctypes.CDLL(out)
    library.bench_roof.restype = ctypes.c_double
    if hasattr(library, "bench_host"):
        library.bench_host.restype = ctypes.c_void_p
    return library


@dataclass(frozen=True)
class Times:
    """Least seconds by ISA and of "torch" (infinite where it did not run), and the roof in FLOP/s of one core."""

    best: dict[str, float]
    roof: dict[str, float]


def take_turns(
    libraries: Libraries, threads: int, run: Run, eager: Callable[[int], object] | None, repeats: int
) -> Times:
    """Measures `run` of every library and torch, ROUNDS times one after the other. eager: called with 0, 1, 2, ..."""
    hosts = {
        isa: ctypes.c_void_p(own.bench_host(threads)) for isa, own in libraries.items() if hasattr(own, "bench_host")
    }
    best = dict.fromkeys([*libraries, "torch"], float("inf"))
    roof = dict.fromkeys(libraries, 0.0)
    for _ in range(ROUNDS):
        if eager is not None:
            best["torch"] = min(best["torch"], least_time(eager, repeats))
        for isa, library in libraries.items():
            roof[isa] = max(roof[isa], library.bench_roof())
            best[isa] = min(best[isa], run(library, hosts.get(isa, ctypes.c_void_p()), repeats))
    for isa, host in hosts.items():
        libraries[isa].bench_host_free(host)
    return Times(best, roof)


def least_time(work: Callable[[int], object], repeats: int) -> float:
    """The least seconds of `repeats` calls."""
    least = float("inf")
    for i in range(repeats):
        begin = time.perf_counter()
        work(i)
        least = min(least, time.perf_counter() - begin)
    return least


def repeats_for(flops: float, threads: int, seconds: float, least: int = 3) -> int:
    """How often to run a case so that all of it takes about `seconds` at 100 GFLOP/s a core."""
    return max(least, min(500, int(seconds / ROUNDS / max(flops / 100e9 / threads, 1e-6))))


def row(name: str, flops: float, times: Times, threads: int) -> str:
    """A line of the table: microseconds, GFLOP/s, percent of the roof and how much faster than torch, for each ISA."""
    torch = times.best["torch"]
    cells = []
    for isa, roof in times.roof.items():
        best = times.best[isa]
        rate = flops / best
        faster = f"  x{torch / best:5.2f}" if torch < float("inf") else ""
        cells.append(f"{best * 1e6:9.1f} us {rate / 1e9:6.1f} {100 * rate / (roof * threads):4.0f} %{faster}")
    beside = f" | torch {flops / torch / 1e9:6.1f}" if torch < float("inf") else ""
    return f"{name:28}" + " |".join(cells) + beside


def header(libraries: Libraries) -> str:
    return f"{'':28}" + " |".join(f"{isa:>12} GFLOP/s  roof  vs torch" for isa in libraries)


def print_table(
    options: argparse.Namespace, source: Path, cases: Iterable[Case], measure: Callable[[Case, Libraries], str]
) -> None:
    """Builds `source` for the ISA levels that `options` asks for, and prints a line for each case that it asks for."""
    torch.set_num_threads(options.threads)
    libraries = {isa: build(isa, source) for isa in options.isa.split(",")}
    print(header(libraries))
    with torch.inference_mode():
        for case in cases:
            if wanted(case.name, options.only):
                print(measure(case, libraries), flush=True)

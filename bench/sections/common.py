"""What all sections share: figures, settings, packages that are made once, and processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parents[1]
ROOT = BENCH.parent
WORKERS = BENCH / "sections" / "workers"


@dataclass(frozen=True)
class Figure:
    """A measured number beside its goal.

    Attributes:
        section, name: which figure, e.g. "speed", "bert, 2 threads, eager / mycc".
        value, unit: the number; None when it could not be measured, `note` says why.
        goal: in words, "" for a figure that only informs.
        met: whether the goal is met; None where there is none.
        peers: the peers' numbers of the same kind.
    """

    section: str
    name: str
    value: float | None
    unit: str = ""
    goal: str = ""
    met: bool | None = None
    note: str = ""
    peers: dict[str, float] = field(default_factory=dict)

    def line(self) -> str:
        verdict = {True: "met", False: "NOT MET", None: ""}[self.met]
        value = "-" if self.value is None else f"{self.value:.4g} {self.unit}".rstrip()
        peers = ", ".join(f"{name} {number:.4g}" for name, number in self.peers.items())
        rest = "; ".join(part for part in (peers, self.note) if part)
        return f"  {self.name:<52} {value:>14}  {self.goal:<22} {verdict:<8} {rest}".rstrip()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def at_most(section: str, name: str, value: float, limit: float, unit: str = "", **others: Any) -> Figure:
    """A figure whose goal is not to be above `limit`."""
    return Figure(section, name, value, unit, f"<= {limit:g} {unit}".rstrip(), value <= limit, **others)


def holds(section: str, name: str, true: bool, goal: str, **others: Any) -> Figure:
    """A figure that is right or wrong."""
    return Figure(section, name, float(true), "", goal, true, **others)


@dataclass(frozen=True)
class Settings:
    """What to measure, and where the packages and objects of this run lie."""

    models: tuple[str, ...]
    threads: tuple[int, ...]
    folder: Path
    peers: tuple[str, ...] = ()
    full: bool = False
    seconds: float = 1.0  # of timed runs, per turn
    turns: int = 3

    def package(self, model: str, kind: str = "static") -> Path:
        """The package of a zoo model, "static" or "dynamic", compiled on first use."""
        path = self.folder / f"{model}-{kind}.pkg"
        if not path.exists():
            self.compile(model, kind, path)
        return path

    def facts(self, model: str, kind: str = "static") -> dict[str, Any]:
        """What the compile of `package(model, kind)` told: parameter_bytes, convolutions, stages."""
        return json.loads(self.package(model, kind).with_suffix(".json").read_text())  # type: ignore[no-any-return]

    def compile(self, model: str, kind: str, path: Path, cache: Path | None = None) -> dict[str, Any]:
        """Compiles in a process of its own; see workers/compile_model.py for the facts it returns."""
        facts = worker("compile_model", model, kind, path, cache or self.folder / "cache")
        path.with_suffix(".json").write_text(json.dumps(facts))
        return facts


def worker(name: str, *args: object, threads: int | None = None, python: Sequence[str] = ()) -> dict[str, Any]:
    """Runs workers/<name>.py in a process of its own; returns the JSON of the last line that it prints."""
    command = [sys.executable, *python, WORKERS / f"{name}.py", *args]
    environment = dict(os.environ, PYTHONPATH=str(BENCH), PYTHONWARNINGS="ignore")
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    done = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} {' '.join(map(str, args))} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])  # type: ignore[no-any-return]


def build_c(source: Path, out: Path, *flags: str) -> Path:
    """Compiles a C program. Raises RuntimeError with the compiler's words."""
    compiler = shutil.which(os.environ.get("CC", "gcc")) or shutil.which("cc")
    if compiler is None:
        raise RuntimeError("no C compiler found; set CC")
    command = [compiler, "-std=gnu11", "-O2", str(source), "-o", str(out), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{source.name} cannot be compiled:\n{done.stderr}")
    return out


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2

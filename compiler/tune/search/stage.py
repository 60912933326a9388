"""The choices of a compile: read from a lock file, measured on this machine, or none."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from ....runtime.errors import CompileError
from ....runtime.text import counted
from ...ir.structured import Attention, Conv, Gemm
from ...machine.targets import TARGETS, Family, Target, runs_here
from ...model.graph import ModelGraph
from ...observe import Observer, running_stage
from ...options import CompileOptions
from ...request import CompileRequest
from ...schedule import Schedule
from ..choices.choices import NO_CHOICES, Choice, Choices
from ..choices.keys import kernel_key
from ..choices.space import ALGORITHMS, Situation, candidates
from .lock import Lock, fit, write_lock
from .search import Draft, search

__all__ = ["Make", "MeasureGpu", "Tuned", "choose", "keys_of", "lock_path"]

#: writes the package of a request with these choices; returns its CPU schedules, one per entry point
Make = Callable[[CompileRequest, Choices], Sequence[Schedule]]
#: measures the kernels of a target on the GPU of this machine
MeasureGpu = Callable[[Sequence[ModelGraph], Target], Lock]


@dataclass(frozen=True)
class Tuned:
    """The choices of a compile. lock: where they are from, None for the cost model's; file: it was read from."""

    choices: Choices = NO_CHOICES
    lock: Lock | None = None
    file: Path | None = None

    def fitting(self, schedules: Mapping[str, Sequence[Schedule]], options: CompileOptions) -> tuple[Tuned, list[str]]:
        """The part that fits the compile's kernels, and what does not fit, a sentence each. Raises CompileError."""
        from .... import __version__

        if self.lock is None or self.file is None:
            return self, []
        chosen = [t for t in options.targets if t.name in self.lock.targets]
        every = (key for t in chosen for s in schedules[t.name] for key in keys_of(s, t.family))
        keys = sorted({key for key in every if key is not None})
        targets = [target.name for target in options.targets]
        choices, problems = fit(self.lock, self.file, __version__, targets, keys, ALGORITHMS[options.codegen.winograd])
        return replace(self, choices=choices), problems

    def manifest(self) -> dict[str, Any] | None:
        """The manifest's row: what differs from the cost model, and where that was measured."""
        if self.lock is None:
            return None
        machine, threads = dict(self.lock.machine), self.lock.threads
        return {"machine": machine, "threads": threads, "targets": self.choices.made()}

    def save(self, out: Path) -> Path | None:
        """Writes the lock beside the package when it was measured now; its path."""
        if self.lock is None or self.file is not None:
            return None
        path = lock_path(out)
        write_lock(self.lock, path)
        return path


def lock_path(out: Path) -> Path:
    """model.pkg -> model.pkg.lock"""
    return out.with_name(f"{out.name}.lock")


def keys_of(schedule: Schedule, family: Family = "cpu") -> tuple[str | None, ...]:
    """The key of every kernel in order; None for one without a choice."""
    tuned = (Gemm, Conv, Attention) if family == "cuda" else object
    return tuple(kernel_key(node) if isinstance(node, tuned) else None for node in schedule.program.nodes)


def choose(
    request: CompileRequest,
    captured: Sequence[ModelGraph],
    lock: Lock | None,
    make: Make,
    measure_gpu: MeasureGpu,
    observers: Sequence[Observer],
) -> Tuned:
    """The choices of a request: of `lock`, which was read from its file, or measured with `make` and `measure_gpu`, or
    none.

    Raises CompileError: no target of the request runs on this machine.
    """
    options = request.options
    if lock is not None:
        return Tuned(lock.choices(ALGORITHMS[options.codegen.winograd]), lock, options.lock)
    if not options.tuning:
        return Tuned()
    targets = _measured_targets(options.targets)
    with running_stage(observers, "tune") as stage:
        locks = [
            _measure(request, captured, make, t) if t.family == "cpu" else measure_gpu(captured, t) for t in targets
        ]
        lock = reduce(_merged, locks)
        stage.value = "\n".join(_text(lock, target.name) for target in targets)
        stage.summary = "; ".join(_summary(own, t.name) for own, t in zip(locks, targets, strict=True))
    return Tuned(lock.choices(), lock)


def _measured_targets(targets: Sequence[Target]) -> list[Target]:
    """The best CPU target that runs on this machine, and the GPU's."""
    running = [target for target in targets if runs_here(target)]
    if not running:
        raise CompileError(
            f"cannot tune: this machine runs none of {', '.join(target.name for target in targets)}",
            hint="Tune on a machine that runs it, then compile here with --lock model.pkg.lock.",
        )
    cpu = [target for target in running if target.family == "cpu"]
    best = [max(cpu, key=TARGETS.index)] if cpu else []
    return best + [target for target in running if target.family == "cuda" and not target.ptx]


def _merged(lock: Lock, other: Lock) -> Lock:
    """The locks of two targets as one; the times of the second carry its name."""
    (name,) = other.targets
    times = {f"{name} {what}": us for what, us in other.run_us.items()}
    machine = {**other.machine, **lock.machine}
    return replace(lock, targets={**lock.targets, **other.targets}, machine=machine, run_us={**lock.run_us, **times})


def _measure(request: CompileRequest, captured: Sequence[ModelGraph], make: Make, target: Target) -> Lock:
    from .... import __version__

    options = request.options
    threads = options.threads or len(os.sched_getaffinity(0))
    situation = Situation(threads, options.codegen.winograd)
    alone = replace(options, targets=(target,), verify=False, codegen=replace(options.codegen, sources=False))
    inputs = {graph.name: [example.detach() for example in graph.examples[: graph.n_arguments]] for graph in captured}
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(prefix=".mycc-tune-", dir=request.out.absolute().parent) as folder:

        def build(choices: Choices) -> Draft:
            path = Path(folder) / f"{next(numbers)}.pkg"
            schedules = make(replace(request, options=alone, out=path), choices)
            keys = {graph.name: keys_of(s) for graph, s in zip(captured, schedules, strict=True)}
            return Draft(path, keys, _candidates(schedules, situation), inputs)

        return search(build, target.name, threads, __version__)


def _candidates(schedules: Sequence[Schedule], situation: Situation) -> dict[str, tuple[Choice, ...]]:
    nodes = [node for s in schedules for node in s.program.nodes]
    return {key: candidates(node, situation) for node in nodes if (key := kernel_key(node)) is not None}


def _summary(lock: Lock, target: str) -> str:
    rows = lock.targets[target]
    changed = sum(bool(row.choice) for row in rows.values())
    share = lock.run_us["chosen"] / lock.run_us["cost_model"] if lock.run_us.get("cost_model") else 1.0
    speed = f"; a run takes {100 * share:.1f} % of the time" if changed else ""
    where = f"{target}, {counted(lock.threads, 'thread')}"
    return f"{changed} of {counted(len(rows), 'kernel')} differ from the cost model{speed}; {where}"


def _text(lock: Lock, target: str) -> str:
    """For a dump: every kernel with what was tried."""
    lines = []
    for key, row in lock.targets[target].items():
        lines.append(f"{key}: {row.choice}")
        lines += [f"  {'-' if t.us is None else format(t.us, '.1f')} us  {t.choice}" for t in row.tried]
    return "\n".join(lines) + "\n"

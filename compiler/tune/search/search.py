"""The tuner: builds a package for each round of candidates, times it in turns with the cost model's, keeps what wins.

Kernels are timed in context, by the profile of whole runs: a kernel alone would find other things in the caches. In
round i every kernel has its i-th candidate, so there are as many rounds as the longest list of candidates. What won
is then built together and measured again; a kernel that does not win there too goes back to the cost model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from ....runtime.loader import EntryPoint, Model, load
from ....runtime.roof import machine_facts
from ..choices.choices import NO_CHOICES, SHARED, Choice, Choices
from ..choices.space import split
from .lock import Lock, LockedKernel, Trial

__all__ = ["Build", "Draft", "Runner", "search"]

#: a candidate has to take at most this part of the cost model's time; together with the others at most CONFIRMED
BETTER, CONFIRMED = 0.97, 0.99
LEAST_GAIN = 0.2  # microseconds: below it a difference is noise
PAIR_SECONDS, LEAST_RUNS, MOST_RUNS = 1.0, 5, 200


@dataclass(frozen=True)
class Draft:
    """A package that was built to be measured.

    keys: of the kernels of each entry point, in order; None for kernels without a choice.
    candidates: by key. inputs: flat example tensors by entry point.
    """

    path: Path
    keys: Mapping[str, tuple[str | None, ...]]
    candidates: Mapping[str, tuple[Choice, ...]]
    inputs: Mapping[str, Sequence[Any]]


#: builds the package of some choices; loads a draft
Build = Callable[[Choices], Draft]
Start = Callable[[Draft], "Runner"]


def search(build: Build, target: str, threads: int, version: str, start: Start | None = None) -> Lock:
    """Measures the candidates of all kernels of a package on this machine, for one of its targets.

    start: loads a draft; by default for `target` with `threads` threads.
    """
    run = start or partial(Runner, target=target, threads=threads)
    base = build(NO_CHOICES)
    own = run(base)
    names = sorted({key for keys in base.keys.values() for key in keys if key is not None})
    trials: dict[str, list[tuple[Choice, float]]] = {key: [] for key in names}  # with the share of the base's time
    times: dict[str, float] = {}
    for i in range(max((len(c) for c in base.candidates.values()), default=0)):
        tried = {key: c[i] for key, c in base.candidates.items() if i < len(c)}
        draft = build(_choices(target, tried))
        for key, (plain, other) in own.beside(run(draft)).items():
            times[key] = min(plain, times.get(key, math.inf))
            if key in tried and plain > 0:
                trials[key].append((tried[key], other / plain))
        draft.path.unlink()
    best = {key: min(found, key=lambda trial: trial[1]) for key, found in trials.items() if found}
    won = {
        key: choice
        for key, (choice, share) in best.items()
        if share <= BETTER and times[key] * (1 - share) >= LEAST_GAIN
    }
    chosen, times_of_runs = _confirmed(build, run, own, target, won)
    rows = {key: _locked(chosen.get(key, Choice()), trials[key], times.get(key)) for key in names}
    base.path.unlink()
    shared = {key: row for key, row in rows.items() if split(row.choice, "lower")}
    targets = {target: rows, SHARED: shared} if shared else {target: rows}
    return Lock(version, targets, machine_facts(), threads, times_of_runs)


def _confirmed(
    build: Build, run: Start, own: Runner, target: str, won: dict[str, Choice]
) -> tuple[dict[str, Choice], dict[str, float]]:
    """What still wins when it is built together, and the times of a run in microseconds."""
    together = build(_choices(target, won))
    pairs = own.beside(run(together))
    kept = {key: choice for key, choice in won.items() if pairs[key][1] <= CONFIRMED * pairs[key][0]}
    if len(kept) < len(won):
        together.path.unlink()
        together = build(_choices(target, kept))
    plain, chosen = own.runs_beside(run(together))
    together.path.unlink()
    if not kept or chosen >= plain:  # faster kernels, slower runs: the cost model's package is the better one
        return {}, {"cost_model": plain, "chosen": plain}
    return kept, {"cost_model": plain, "chosen": chosen}


def _choices(target: str, chosen: Mapping[str, Choice]) -> Choices:
    return Choices({
        target: {key: choice for key, choice in chosen.items() if choice},
        SHARED: {key: part for key, choice in chosen.items() if (part := split(choice, "lower"))},
    })  # fmt: skip


def _locked(choice: Choice, trials: Sequence[tuple[Choice, float]], us: float | None) -> LockedKernel:
    measured = [Trial(Choice(), us), *(Trial(c, None if us is None else us * share) for c, share in trials)]
    return LockedKernel(choice, tuple(measured))


class Runner:
    """A draft that is loaded and warm."""

    def __init__(self, draft: Draft, target: str, threads: int) -> None:
        model: Model = load(draft.path, threads, target)
        self.draft = draft
        self.entries = [(model.entry(name), list(draft.inputs[name])) for name in draft.keys]
        for entry, inputs in self.entries:
            entry.run_flat(inputs)

    def beside(self, other: Runner) -> dict[str, tuple[float, float]]:
        """Microseconds of all kernels of a key in a run of each entry point, of this and the other.

        The fastest run of each kernel counts: what else runs on a machine only ever takes time.
        """
        found: dict[str, tuple[float, float]] = {}
        for (entry, inputs), (rival, rival_inputs) in zip(self.entries, other.entries, strict=True):
            pair = _interleaved(partial(entry.profile, inputs, 1), partial(rival.profile, rival_inputs, 1))
            plain, candidate = (
                _by_key(runner.draft.keys[entry.name], samples)
                for runner, samples in zip((self, other), pair, strict=True)
            )
            for key, us in plain.items():
                before = found.get(key, (0.0, 0.0))
                found[key] = before[0] + us, before[1] + candidate.get(key, math.inf)
        return found

    def runs_beside(self, other: Runner) -> tuple[float, float]:
        """Microseconds of a run of every entry point, of this and the other: the best."""
        total = [0.0, 0.0]
        for (entry, inputs), (rival, rival_inputs) in zip(self.entries, other.entries, strict=True):
            pair = _interleaved(partial(_run, entry, inputs), partial(_run, rival, rival_inputs))
            for side, samples in enumerate(pair):
                total[side] += min(samples)
        return total[0], total[1]


def _interleaved(mine: Callable[[], Any], theirs: Callable[[], Any]) -> tuple[list[Any], list[Any]]:
    """Samples of both, one after the other, for about PAIR_SECONDS; the first ones do not count."""
    mine()
    theirs()
    samples: tuple[list[Any], list[Any]] = ([], [])
    end = perf_counter() + PAIR_SECONDS
    while len(samples[0]) < LEAST_RUNS or (perf_counter() < end and len(samples[0]) < MOST_RUNS):
        samples[0].append(mine())
        samples[1].append(theirs())
    return samples


def _by_key(keys: Sequence[str | None], samples: Sequence[Sequence[int]]) -> dict[str, float]:
    """The best time of each kernel in microseconds, summed by key. samples: nanoseconds of each kernel, by run."""
    total: dict[str, float] = {}
    for key, nanoseconds in zip(keys, map(min, zip(*samples, strict=True)), strict=True):
        if key is not None:
            total[key] = total.get(key, 0.0) + nanoseconds / 1e3
    return total


def _run(entry: EntryPoint, inputs: Sequence[Any]) -> float:
    start = perf_counter()
    entry.run_flat(inputs)
    return 1e6 * (perf_counter() - start)

"""Measures a model compiled by mycc beside its peers: agreement first, then timings in turns."""

from __future__ import annotations

import math
import platform
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ...runtime.errors import InputError
from ...runtime.roof import machine_facts, measure_gflops
from ...runtime.text import counted
from ..observe import Observer, running_stage
from .peers import Peer, find_peers, missing_module
from .process import PeerFailed, Worker

if TYPE_CHECKING:
    from ..options import CompileOptions
    from .prepare import Prepared

__all__ = ["BenchRequest", "CaseResult", "Comparison", "PeerResult", "compare", "measure_cases"]

#: a peer agrees when its error is at most AGREE_FACTOR * eager's + AGREE_FLOOR
AGREE_FACTOR, AGREE_FLOOR = 20.0, 1e-5
#: of the cores' best multiply-adds, beside a turn that is not disturbed; rounds at most, times those asked for
QUIET, MOST_ROUNDS = 0.9, 4
#: turns or runs of one runtime that differ by more than this say nothing
UNEVEN = 2.0


@dataclass(frozen=True)
class BenchRequest:
    """What to measure.

    Attributes:
        source: the model (capture/source.py); inputs: examples that replace its own (x=f32[1,3,224,224]).
        against: names of peers.
        threads, batches: every pair of them is a case; no batches: the examples as they are.
        seconds, turns: of timed runs a turn, and how often the peers take turns (more often where turns are disturbed).
        tolerance: the largest relative error of a peer that agrees; None: from eager torch's own.
    """

    source: str
    against: tuple[str, ...]
    threads: tuple[int, ...]
    batches: tuple[int, ...] = ()
    inputs: tuple[str, ...] = ()
    seconds: float = 1.0
    turns: int = 3
    tolerance: float | None = None

    def __post_init__(self) -> None:
        find_peers(self.against)
        for name, values in (("threads", self.threads), ("batch", self.batches)):
            wrong = [value for value in values if value < 1]
            if wrong:
                raise InputError(f"{name} has to be at least 1, not {wrong[0]}")
        if not self.threads:
            raise InputError("there is no number of threads to measure with")
        if self.turns < 1 or not self.seconds > 0:
            raise InputError("turns and seconds have to be above 0")
        if self.tolerance is not None and not self.tolerance > 0:
            raise InputError(f"the tolerance has to be above 0, not {self.tolerance}")


@dataclass(frozen=True)
class PeerResult:
    """One way to run the model. Times are seconds of a run.

    Attributes:
        status: "ok"; "disagrees" (its outputs are wrong: timed, but no peer); "failed" and "missing", with the reason.
        median, best: of all turns; turns: the median of each.
        error: relative, against float64; build: seconds until it was ready.
        percent: of the roof of multiply-adds, measured before and after each turn: the median of the turns.
    """

    name: str
    title: str
    status: str
    reason: str = ""
    median: float | None = None
    best: float | None = None
    turns: tuple[float, ...] = ()
    error: float | None = None
    build: float | None = None
    percent: float | None = None

    @property
    def uneven(self) -> bool:
        """Whether its turns, or the runs of a turn, differ so much that their median means nothing."""
        if self.best is not None and self.median is not None and self.median > UNEVEN * self.best:
            return True
        return bool(self.turns) and max(self.turns) > UNEVEN * min(self.turns)


@dataclass(frozen=True)
class CaseResult:
    """All ways at one batch size with one number of threads. eager_error: of eager torch, against float64."""

    batch: int | None
    threads: int
    gflop: float
    roof: float | None  # GFLOP/s of multiply-adds, the median of what was measured beside the turns
    eager_error: float
    tolerance: float
    results: tuple[PeerResult, ...]

    def result(self, name: str) -> PeerResult | None:
        return next((r for r in self.results if r.name == name), None)

    @property
    def own(self) -> PeerResult:
        return self.results[0]

    @property
    def best_peer(self) -> PeerResult | None:
        """The fastest of the peers that agree."""
        counted = [r for r in self.results[1:] if r.status == "ok" and r.median is not None]
        return min(counted, key=lambda r: r.median or math.inf, default=None)

    @property
    def ratio(self) -> float | None:
        """The best peer's time over mycc's: above 1 mycc is the faster."""
        best, own = self.best_peer, self.own
        if best is None or best.median is None or own.median is None or own.status != "ok" or self.no_ratio:
            return None
        return best.median / own.median

    @property
    def no_ratio(self) -> str:
        """Why times that were measured give no ratio; "" where they do."""
        uneven = [r.title for r in (self.own, self.best_peer) if r is not None and r.uneven]
        if not uneven:
            return ""
        return (
            f"the times of {' and of '.join(uneven)} differ by more than {UNEVEN:g} times: measure on a quiet machine"
        )

    def speed(self, result: PeerResult) -> float | None:
        """The best peer's time over this one's."""
        best = self.best_peer
        if best is None or best.median is None or result.median is None:
            return None
        return best.median / result.median

    def as_dict(self) -> dict[str, Any]:
        best = self.best_peer
        results = [{**asdict(r), "error": _finite(r.error)} for r in self.results]
        return {**asdict(self), "results": results, "best_peer": best.name if best else None, "ratio": self.ratio}


@dataclass(frozen=True)
class Comparison:
    """All cases of a model, and where they were measured."""

    source: str
    cases: tuple[CaseResult, ...]
    machine: dict[str, Any] = field(default_factory=machine_facts)
    versions: dict[str, str] = field(default_factory=lambda: _versions())

    @property
    def accurate(self) -> bool:
        """Whether mycc's own outputs are within the tolerance everywhere."""
        return all(case.own.status == "ok" for case in self.cases)

    def as_dict(self) -> dict[str, Any]:
        cases = [case.as_dict() for case in self.cases]
        return {"source": self.source, "machine": self.machine, "versions": self.versions, "cases": cases}


def compare(
    request: BenchRequest,
    options: CompileOptions,
    observers: Sequence[Observer] = (),
    show: Callable[[CaseResult], None] = lambda case: None,
) -> Comparison:
    """Measures every case of a request; `show` gets each as it is done.

    Raises:
        CompileError: mycc cannot compile the model, or its examples cannot be made as asked.
    """
    cases = []
    with tempfile.TemporaryDirectory(prefix="mycc-bench-") as folder:
        for case in measure_cases(request, options, Path(folder), observers):
            show(case)
            cases.append(case)
    return Comparison(request.source, tuple(cases))


def measure_cases(
    request: BenchRequest,
    options: CompileOptions,
    folder: Path,
    observers: Sequence[Observer] = (),
    package: Path | None = None,
) -> Iterator[CaseResult]:
    """The cases, one after another; files of the peers go to `folder`, where a later call finds them again.

    package: of the model at its examples' sizes, when there is one already; for requests without batches.

    Raises CompileError.
    """
    from ..api import require_torch

    for batch in request.batches or (None,):
        place = folder / f"batch-{batch}"
        place.mkdir(parents=True, exist_ok=True)
        with running_stage(observers, "load") as stage:
            require_torch()
            from ..capture.source import describe
            from .prepare import load_model, prepare

            loaded = load_model(request.source, request.inputs, batch)
            stage.summary = describe(loaded)
        prepared = prepare(loaded, batch, place, options, observers, package)
        for threads in request.threads:
            yield _measure(request, prepared, batch, threads, observers)


def _measure(
    request: BenchRequest, prepared: Prepared, batch: int | None, threads: int, observers: Sequence[Observer]
) -> CaseResult:
    """Builds all peers, one after another, and then lets them take turns."""
    tolerance = request.tolerance or AGREE_FACTOR * prepared.eager + AGREE_FLOOR
    peers = (Peer("mycc", "mycc", (), _never), *find_peers(request.against))
    results: dict[str, PeerResult] = {}
    workers: dict[str, Worker] = {}
    with ExitStack() as stack:
        for peer in peers:
            job = _job(request, prepared, batch, threads, peer.name)
            with running_stage(observers, "peer") as stage:
                for observer in observers:
                    observer.stage_works_on("peer", f"{peer.title} prepares the model")
                try:
                    results[peer.name], workers[peer.name] = _build(peer, job, prepared, tolerance, stack)
                    stage.summary = f"{peer.title} is ready"
                except PeerFailed as failure:
                    status = "missing" if missing_module(peer) else "failed"
                    results[peer.name] = PeerResult(peer.name, peer.title, status, str(failure))
                    stage.summary = f"{peer.title}: {status}"
        with running_stage(observers, "turns") as stage:
            times = _turns(workers, request, results, threads)
            stage.summary = f"{counted(len(times), 'runtime')}, {counted(threads, 'thread')}"
    for name, turns in times.items():
        if results[name].status in ("ok", "disagrees"):
            results[name] = _timed(results[name], turns, prepared.flops)
    roofs = [turn.roof for turns in times.values() for turn in turns if turn.roof is not None]
    gflops = median(roofs) if roofs else None
    return CaseResult(prepared.batch, threads, prepared.flops / 1e9, gflops, prepared.eager, tolerance,
                      tuple(results[peer.name] for peer in peers))  # fmt: skip


def _never(job: Any) -> Any:
    raise AssertionError("mycc is built by prepare()")


def _job(request: BenchRequest, prepared: Prepared, batch: int | None, threads: int, peer: str) -> dict[str, Any]:
    """What worker.py reads."""
    outputs = prepared.folder / f"outputs-{peer}-{threads}.npz"
    return {
        "peer": peer, "source": request.source, "inputs": list(request.inputs), "batch": batch, "threads": threads,
        "folder": str(prepared.folder), "package": str(prepared.package), "outputs": str(outputs),
        "changes": prepared.changes,
    }  # fmt: skip


def _build(
    peer: Peer, job: dict[str, Any], prepared: Prepared, tolerance: float, stack: ExitStack
) -> tuple[PeerResult, Worker]:
    """The peer's process, built and stopped, and whether it agrees. Raises PeerFailed."""
    from .prepare import output_error

    module = missing_module(peer)
    if module is not None:
        raise PeerFailed(f"{module} is not installed")
    worker = stack.enter_context(Worker(job))
    seconds = worker.ready()
    error = output_error(Path(job["outputs"]), prepared.reference)
    Path(job["outputs"]).unlink()
    agrees = error <= tolerance
    reason = "" if agrees else f"its error against float64 is {error:.1e}, more than {tolerance:.1e}"
    return PeerResult(
        peer.name, peer.title, "ok" if agrees else "disagrees", reason, error=error, build=seconds
    ), worker


@dataclass(frozen=True)
class Turn:
    """What a peer reached in one of its turns: seconds of a run, and GFLOP/s of multiply-adds before and after it."""

    median: float
    best: float
    around: tuple[float, ...] = ()

    @property
    def roof(self) -> float | None:
        return sum(self.around) / len(self.around) if self.around else None

    @property
    def least(self) -> float:
        return min(self.around, default=0.0)


def _turns(
    workers: dict[str, Worker], request: BenchRequest, results: dict[str, PeerResult], threads: int
) -> dict[str, list[Turn]]:
    """The turns of every peer that count; each round starts with another one.

    A turn is disturbed when the cores gave less than QUIET of their best beside it, as where others use them too. There
    are more rounds until all have undisturbed turns enough, at most MOST_ROUNDS times as many.
    """
    times: dict[str, list[Turn]] = {name: [] for name in workers}
    names = list(workers)
    for turn in range(request.turns * MOST_ROUNDS):
        if turn >= request.turns and all(_enough(found, times, request.turns) for found in times.values()):
            break
        first = turn % len(names) if names else 0
        for name in names[first:] + names[:first]:
            if results[name].status == "failed":
                continue
            before = measure_gflops(threads)
            try:
                timing = workers[name].turn(request.seconds)
            except PeerFailed as failure:
                results[name] = replace(results[name], status="failed", reason=str(failure))
                times[name].clear()
                continue
            after = measure_gflops(threads)
            around = (before, after) if before and after else ()
            times[name].append(Turn(timing["median"], timing["best"], around))
    return {name: _quietest(found, request.turns) for name, found in times.items()}


def _enough(turns: Sequence[Turn], all_turns: dict[str, list[Turn]], wanted: int) -> bool:
    """Whether a peer has as many undisturbed turns as wanted; one that failed has none and wants none."""
    best = max((turn.least for found in all_turns.values() for turn in found), default=0.0)
    return not turns or sum(turn.least >= QUIET * best for turn in turns) >= wanted


def _quietest(turns: Sequence[Turn], wanted: int) -> list[Turn]:
    """So many turns, those beside which the cores gave most: it is not their own times that choose them."""
    chosen = sorted(range(len(turns)), key=lambda i: -turns[i].least)[:wanted]
    return [turns[i] for i in sorted(chosen)]


def _timed(result: PeerResult, turns: Sequence[Turn], flops: int) -> PeerResult:
    medians = tuple(turn.median for turn in turns)
    percents = [100 * flops / turn.median / 1e9 / turn.roof for turn in turns if turn.roof]
    percent = median(percents) if percents and flops else None
    best = min((turn.best for turn in turns), default=math.inf)
    return replace(result, median=median(medians), best=best, turns=medians, percent=percent)


def _finite(value: float | None) -> float | None:
    """JSON knows no infinity: an error that is none is null, and `reason` says why."""
    return value if value is not None and math.isfinite(value) else None


def _versions() -> dict[str, str]:
    """Of mycc, Python and what the peers are made of, where installed."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("mycc", "torch", "onnxruntime", "openvino"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

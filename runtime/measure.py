"""`mycc bench`: how long a package takes to load, to run first and to run again, and where the time goes."""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .arrays import as_tensor
from .devices import DeviceRoof, measure_device_roof
from .errors import InputError
from .execute import generated_inputs
from .formula import evaluate
from .launches import programs
from .loader import EntryPoint, Model, load
from .roof import Roof, measure_roof

__all__ = ["Timing", "bench_package", "kernel_medians", "kernel_sums", "most_lost", "products", "restorer", "time_runs",
           "timing"]  # fmt: skip

Timing = dict[str, Any]
Row = Mapping[str, Any]
Run = Callable[[], Any]

_WARM_UP = 3
_LEAST_RUNS, _MOST_RUNS, _LEAST_SECONDS = 10, 10_000, 1.0
_ROW = 20  # runs on a GPU between two waits
_PROFILES, _PROFILE_SECONDS = 200, 1.0  # of kernels: at most so many runs, and about so long
#: sizes that the values of a call decide
_OF_VALUES = re.compile(r"\bu\d+\b")
#: kernels whose operations are multiply-adds; those of others are estimates
PRODUCTS = ("gemm", "conv", "convchain", "attention")


def bench_package(
    path: str | os.PathLike[str],
    threads: int | None = None,
    sizes: Mapping[str, int] | None = None,
    runs: int | None = None,
    *,
    entry: str | None = None,
    target: str | None = None,
    device: str | None = None,
    kernels: bool = False,
) -> dict[str, Any]:
    """Measures a package on generated inputs, in this process. What a run changes (the model's state, arguments) is set
    back before the next, outside of its time. On a GPU the inputs lie on the device, and a run lasts until its result
    is there.

    Args:
        threads: threads of a run; None: one per core.
        sizes: values of the size symbols (default: those of the certificate).
        target, device: as of mycc.load.
        runs: number of timed runs; None: at least 10 and at least one second.
        kernels: also measure the machine's roof, and time each kernel beside it.

    Returns:
        path, target, device, threads, entry, sizes, runs, load_ms, first_run_ms, median_ms, min_ms, p90_ms
        (milliseconds), on a GPU also host_ms (until the call returns) and stream_ms (a run in a row of them), and
        with `kernels`: roof (Roof.as_dict(); None where it cannot be measured), gflops (of all products, in a run),
        percent (share of the FMA roof over the whole run), and kernels, a list of name, kind, ops, sources, choice (the
        tuner's, {} without), us (median microseconds of a run), share (of all kernels), gflops, gbytes (per second;
        None where the manifest does not say), percent (of the least time that the roof allows), lost (microseconds
        above that least time; None without a roof), bound ("compute" or "memory", whichever takes longer there); and
        sums, the kernels of one name together: name, count, us, share, lost.

    Raises:
        LoadError, InputError, RunError
    """
    if runs is not None and runs < 1:
        raise InputError(f"runs has to be at least 1, not {runs}")
    start = time.perf_counter()
    model = load(path, threads, target, device=device)
    loaded = time.perf_counter()
    function = model.entry(entry) if entry is not None else model
    arrays = generated_inputs(model, function, sizes)
    tensors = [as_tensor(a, port.dtype) for a, port in zip(arrays, function.signature.inputs, strict=True)]
    run = _runner(model, function, tensors)
    restore = restorer(model, function, tensors, arrays)
    first = _time_run(run)
    times = _times(run, restore, runs)
    values = function.sizes([array.shape for array in arrays])
    result: dict[str, Any] = {
        "path": os.fspath(path), "target": model.target, "device": model.device, "threads": model.threads,
        "entry": function.name,
        "sizes": values, "runs": len(times), "load_ms": 1e3 * (loaded - start), "first_run_ms": 1e3 * first,
        "median_ms": 1e3 * statistics.median(times), "min_ms": 1e3 * min(times),
        "p90_ms": 1e3 * sorted(times)[(len(times) * 9) // 10],
    }  # fmt: skip
    if model.device != "cpu":
        result |= _stream_times(model, function, tensors, restore)
    if kernels:
        function = model.variant(function, values)
        result["variant"] = function.name
        rows = _manifest_rows(model, function)
        roof = _roof(model)
        medians = kernel_medians(function, tensors, runs, restore)
        launched = [i for i, row in enumerate(rows) if "grid" not in row or programs(row, values)]
        rows, nanoseconds = [rows[i] for i in launched], [medians[i] for i in launched]
        weights = model.manifest["weights"]["size"]
        flops = products(rows, values)
        result["roof"] = roof.as_dict() if roof else None
        result["gflops"] = flops / 1e9
        busy = result.get("stream_ms", result["median_ms"])
        result["percent"] = 1e5 * flops / 1e9 / busy / roof.gflops if roof else None
        choices = model.manifest.get("tuning", {}).get("targets", {}).get(model.target, {})
        result["kernels"] = _kernel_rows(rows, nanoseconds, values, roof, weights, choices)
        result["sums"] = kernel_sums(result["kernels"])
    return result


def kernel_medians(
    function: EntryPoint, tensors: Sequence[Any], runs: int | None = None, restore: Run | None = None
) -> list[float]:
    """Nanoseconds of each kernel, in order of execution: medians over `runs` runs (None: about a second), `restore`
    called before each."""
    samples: list[list[int]] = []
    end = time.perf_counter() + _PROFILE_SECONDS
    most = (runs or _PROFILES) + 1  # the first does not count
    while len(samples) < most and (runs is not None or len(samples) < 4 or time.perf_counter() < end):
        if restore:
            restore()
        samples.append(function.profile(tensors, 1))
    del samples[0]
    return [statistics.median(column) for column in zip(*samples, strict=True)]


def products(rows: Sequence[Row], sizes: Mapping[str, int]) -> int:
    """The floating-point operations of all matrix products, convolutions and attentions of a run; kernels whose sizes
    the values of a call decide do not count."""
    wanted = (row["flops"] for row in rows if row.get("kind") in PRODUCTS and row.get("flops") not in (None, ""))
    return sum(evaluate(formula, sizes) for formula in wanted if not _waits_for_values(formula, sizes))


# -- times of runs, for every tool that takes them --------------------------------------------------------------------


def time_runs(run: Run, seconds: float, least: int = 3, most: int = 100_000, restore: Run | None = None) -> list[float]:
    """Seconds of each run, for about `seconds` in all; `restore` is called before each and does not count."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < least or (time.perf_counter() < end and len(times) < most):
        times.append(_time_run(run, restore))
    return times


def timing(times: Sequence[float]) -> Timing:
    """median, best and p90 of times, and how many there are."""
    ordered = sorted(times)
    return {"median": statistics.median(ordered), "best": ordered[0], "p90": ordered[(len(ordered) * 9) // 10],
            "runs": len(ordered)}  # fmt: skip


def restorer(model: Model, function: EntryPoint, tensors: list[Any], arrays: Sequence[Any]) -> Run | None:
    """What sets back all that a run changes, so that every run does the same: the model's state, and those of the
    `tensors` that are written to, to their values in `arrays`. None where a run changes nothing."""
    state, written = function.changed
    if not state and not written:
        return None
    saved = {i: arrays[i].copy() for i in written}
    inputs = function.signature.inputs

    def restore() -> None:
        if state:
            model.reset_state()
        for i, array in saved.items():
            tensor = as_tensor(array.copy(), inputs[i].dtype)
            tensors[i] = tensor if model.device == "cpu" else model.to_device(tensor)
        if model.device != "cpu":
            model.synchronize()

    return restore


def _runner(model: Model, function: EntryPoint, tensors: list[Any]) -> Callable[[], Any]:
    """A whole run. For a GPU the tensors are moved there."""
    if model.device == "cpu":
        return lambda: function.run_flat(tensors)
    tensors[:] = map(model.to_device, tensors)

    def run() -> None:
        function.run_flat(tensors)
        model.synchronize()

    return run


def _stream_times(model: Model, function: EntryPoint, tensors: Sequence[Any], restore: Run | None) -> Timing:
    """host_ms and stream_ms: runs in a row, until the calls have returned, and until the device is done; `restore` is
    called before each row."""
    host: list[float] = []
    stream: list[float] = []
    end = time.perf_counter() + _LEAST_SECONDS
    while len(host) < 3 or (time.perf_counter() < end and len(host) < _MOST_RUNS // _ROW):
        if restore:
            restore()
        start = time.perf_counter()
        for _ in range(_ROW):
            function.run_flat(tensors)
        host.append(time.perf_counter() - start)
        model.synchronize()
        stream.append(time.perf_counter() - start)
    return {"host_ms": 1e3 * statistics.median(host) / _ROW, "stream_ms": 1e3 * statistics.median(stream) / _ROW}


def _roof(model: Model) -> Roof | DeviceRoof | None:
    """The limits of what the model runs on."""
    if model.device == "cpu":
        return measure_roof(model.threads)
    row = next(row for row in model.manifest["targets"] if row["target"] == model.target)
    return measure_device_roof(int(model.device.partition(":")[2]), row["roof"]["tflops"]) if "roof" in row else None


def _manifest_rows(model: Model, function: EntryPoint) -> list[Row]:
    """What the manifest says of the kernels that `function.profile` times."""
    row = next(row for row in model.manifest["entry_points"] if row["name"] == function.name)
    found: list[Row] = row["kernels"] if model.device == "cpu" else row["launches"][model.target]
    return found


def _time_run(run: Run, restore: Run | None = None) -> float:
    if restore:
        restore()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _times(run: Run, restore: Run | None, runs: int | None) -> list[float]:
    for _ in range(_WARM_UP):
        _time_run(run, restore)
    if runs is not None:
        return [_time_run(run, restore) for _ in range(runs)]
    return time_runs(run, _LEAST_SECONDS, _LEAST_RUNS, _MOST_RUNS, restore)


# -- kernels beside the roof ------------------------------------------------------------------------------------------


def _kernel_rows(
    rows: Sequence[Row],
    nanoseconds: Sequence[float],
    sizes: Mapping[str, int],
    roof: Roof | DeviceRoof | None,
    weights: int,
    choices: Mapping[str, Any],
) -> list[dict[str, Any]]:
    total = sum(nanoseconds) or 1
    return [
        {
            "name": row["name"],
            "kind": row.get("kind", ""),
            "ops": row["ops"],
            "sources": row["sources"],
            "choice": choices.get(row.get("key", ""), {}),
            "us": spent / 1e3,
            "share": spent / total,
            "gflops": _rate(row.get("flops"), sizes, spent),
            "gbytes": _rate(row.get("bytes"), sizes, spent),
            **_beside_roof(row, sizes, spent, roof, weights),
        }
        for row, spent in zip(rows, nanoseconds, strict=True)
    ]


def _beside_roof(
    row: Row, sizes: Mapping[str, int], nanoseconds: float, roof: Roof | DeviceRoof | None, weights: int
) -> dict[str, Any]:
    """percent, lost and bound of one kernel."""
    if roof is None or nanoseconds <= 0 or "weights" not in row:
        return {"percent": None, "lost": None, "bound": None}
    work = [row[key] for key in ("flops", "bytes", "writes", "weights")]
    if any(_waits_for_values(formula, sizes) for formula in work):
        return {"percent": None, "lost": None, "bound": None}
    flops, moved, written, constant = (evaluate(formula, sizes) for formula in work)
    counted = flops if row["kind"] in PRODUCTS else 0
    memory = roof.seconds(0, moved - written - constant, written, constant, weights)
    least = roof.seconds(counted, moved - written - constant, written, constant, weights)
    lost = max(0.0, nanoseconds / 1e3 - 1e6 * least)
    return {"percent": 1e11 * least / nanoseconds, "lost": lost, "bound": "compute" if least > memory else "memory"}


def kernel_sums(kernels: Sequence[Row]) -> list[dict[str, Any]]:
    """The kernels of one name together: name, count, us, share, and lost, of those that have it (None: none has); the
    one that loses most first."""
    groups: dict[str, list[Row]] = {}
    for kernel in kernels:
        groups.setdefault(kernel["name"], []).append(kernel)
    sums = []
    for name, group in groups.items():
        lost = [kernel["lost"] for kernel in group if kernel["lost"] is not None]
        us, share = (sum(kernel[key] for kernel in group) for key in ("us", "share"))
        sums.append({"name": name, "count": len(group), "us": us, "share": share, "lost": sum(lost) if lost else None})
    return sorted(sums, key=most_lost)


def most_lost(row: Row) -> tuple[float, float]:
    """The order of kernels: those that lose most first, then those of which that is not known, by their times."""
    return -(row["lost"] if row["lost"] is not None else -1.0), -row["us"]


def _rate(formula: int | str | None, sizes: Mapping[str, int], nanoseconds: float) -> float | None:
    """Per nanosecond, which is giga per second."""
    if formula is None or formula == "" or nanoseconds <= 0 or _waits_for_values(formula, sizes):
        return None
    return evaluate(formula, sizes) / nanoseconds


def _waits_for_values(formula: int | str, sizes: Mapping[str, int]) -> bool:
    """Whether a formula names a size that the values of a call decide (u0, as torch.export calls them)."""
    return isinstance(formula, str) and any(name not in sizes for name in _OF_VALUES.findall(formula))

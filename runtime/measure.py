"""`mycc bench`: how long a package takes to load, to run first and to run again, and where the time goes."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .arrays import as_tensor
from .errors import InputError
from .execute import generated_inputs
from .formula import evaluate
from .loader import EntryPoint, load

__all__ = ["bench_package"]

_WARM_UP = 3
_LEAST_RUNS, _MOST_RUNS, _LEAST_SECONDS = 10, 10_000, 1.0


def bench_package(
    path: str | os.PathLike[str],
    threads: int | None = None,
    sizes: Mapping[str, int] | None = None,
    runs: int | None = None,
    *,
    entry: str | None = None,
    target: str | None = None,
    kernels: bool = False,
) -> dict[str, Any]:
    """Measures a package on generated inputs, in this process.

    Args:
        threads: threads of a run; None: one per core.
        sizes: values of the size symbols (default: those of the certificate).
        runs: number of timed runs; None: at least 10 and at least one second.
        kernels: also time each kernel.

    Returns:
        path, target, threads, entry, sizes, runs, load_ms, first_run_ms, median_ms, min_ms, p90_ms (milliseconds), and
        with `kernels` a list of name, ops, sources, us (microseconds a run), share (of all kernels), gflops, gbytes
        (per second; None where the manifest does not say).

    Raises:
        LoadError, InputError, RunError
    """
    if runs is not None and runs < 1:
        raise InputError(f"runs has to be at least 1, not {runs}")
    start = time.perf_counter()
    model = load(path, threads, target)
    loaded = time.perf_counter()
    function = model.entry(entry) if entry is not None else model
    arrays = generated_inputs(model, function, sizes)
    tensors = [as_tensor(a, port.dtype) for a, port in zip(arrays, function.signature.inputs, strict=True)]
    first = _time_run(function, tensors)
    times = _time_runs(function, tensors, runs)
    values = function.sizes([array.shape for array in arrays])
    result: dict[str, Any] = {
        "path": os.fspath(path), "target": model.target, "threads": model.threads, "entry": function.name,
        "sizes": values, "runs": len(times), "load_ms": 1e3 * (loaded - start), "first_run_ms": 1e3 * first,
        "median_ms": 1e3 * statistics.median(times), "min_ms": 1e3 * min(times),
        "p90_ms": 1e3 * sorted(times)[(len(times) * 9) // 10],
    }  # fmt: skip
    if kernels:
        row = next(row for row in model.manifest["entry_points"] if row["name"] == function.name)
        nanoseconds = function.profile(tensors, max(3, min(len(times), 50)))
        result["kernels"] = _kernel_times(row["kernels"], nanoseconds, values)
    return result


def _time_run(function: EntryPoint, tensors: Sequence[Any]) -> float:
    start = time.perf_counter()
    function.run_flat(tensors)
    return time.perf_counter() - start


def _time_runs(function: EntryPoint, tensors: Sequence[Any], runs: int | None) -> list[float]:
    for _ in range(_WARM_UP):
        function.run_flat(tensors)
    if runs is not None:
        return [_time_run(function, tensors) for _ in range(runs)]
    times: list[float] = []
    end = time.perf_counter() + _LEAST_SECONDS
    while len(times) < _LEAST_RUNS or (time.perf_counter() < end and len(times) < _MOST_RUNS):
        times.append(_time_run(function, tensors))
    return times


def _kernel_times(
    rows: Sequence[Mapping[str, Any]], nanoseconds: Sequence[int], sizes: Mapping[str, int]
) -> list[dict[str, Any]]:
    total = sum(nanoseconds) or 1
    return [
        {
            "name": row["name"],
            "ops": row["ops"],
            "sources": row["sources"],
            "us": spent / 1e3,
            "share": spent / total,
            "gflops": _rate(row.get("flops"), sizes, spent),
            "gbytes": _rate(row.get("bytes"), sizes, spent),
        }
        for row, spent in zip(rows, nanoseconds, strict=True)
    ]


def _rate(formula: int | str | None, sizes: Mapping[str, int], nanoseconds: int) -> float | None:
    """Per nanosecond, which is giga per second."""
    if formula in (None, "") or nanoseconds <= 0:
        return None
    return evaluate(formula, sizes) / nanoseconds

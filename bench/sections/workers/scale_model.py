"""scale_model PACKAGE SECONDS TURNS: one thread, two threads, and two callers with one thread each, in turns.

One JSON line: one, two, callers: median seconds of a call in each way; threads: the speed of two threads over one;
together: that of two callers over one. Speeds are medians over the turns, which are short: a shared machine is faster
in one second than in the next. Before them each way is warmed up for as long as a host may take to give a second thread
a core of its own.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import mycc
from mycc.runtime.arrays import as_tensor
from mycc.runtime.execute import generated_inputs
from mycc.runtime.measure import time_runs

WARM, SLICE = 1.5, 0.25  # seconds
WAYS = {"one": (1, 1), "two": (2, 1), "callers": (1, 2)}  # threads, callers

path, seconds, turns = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
models = {threads: mycc.load(path, threads=threads) for threads in (1, 2)}
ports = models[1].signature.inputs
inputs = [as_tensor(a, port.dtype) for a, port in zip(generated_inputs(models[1], models[1]), ports, strict=True)]
pool = ThreadPoolExecutor(1)


def calls(way: str, duration: float) -> list[float]:
    """Seconds of the calls of `duration`, of all callers."""
    threads, callers = WAYS[way]
    run = lambda: models[threads].run_flat(inputs)  # noqa: E731
    others = [pool.submit(time_runs, run, duration) for _ in range(callers - 1)]
    found = time_runs(run, duration)
    return [*found, *(one for other in others for one in other.result())]


times: dict[str, list[float]] = {way: [] for way in WAYS}
threads, together = [], []
for _ in range(turns):
    for way in WAYS:
        calls(way, WARM)
    for _ in range(max(1, round(seconds / SLICE))):
        latest = {way: calls(way, SLICE) for way in WAYS}
        for way, found in latest.items():
            times[way] += found
        one, two, callers = (median(latest[way]) for way in WAYS)
        threads.append(one / two)
        together.append(2 * one / callers)
facts = {way: median(found) for way, found in times.items()}
print(json.dumps({**facts, "threads": median(threads), "together": median(together)}))

"""scale_model PACKAGE SECONDS TURNS: one thread, two threads, and two callers with one thread each, in turns.

One JSON line: one, two, callers: median seconds of a call in each way. Each way is warmed up for as long as a host may
take to give a second thread a core of its own.
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

path, seconds, turns = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
models = {threads: mycc.load(path, threads=threads) for threads in (1, 2)}
ports = models[1].signature.inputs
inputs = [as_tensor(a, port.dtype) for a, port in zip(generated_inputs(models[1], models[1]), ports, strict=True)]


WARM = 1.5  # seconds


def calls(threads: int) -> list[float]:
    time_runs(lambda: models[threads].run_flat(inputs), WARM, least=1)
    return time_runs(lambda: models[threads].run_flat(inputs), seconds)


times: dict[str, list[float]] = {"one": [], "two": [], "callers": []}
with ThreadPoolExecutor(2) as pool:
    for _ in range(turns):
        times["one"] += calls(1)
        times["two"] += calls(2)
        for both in [pool.submit(calls, 1) for _ in range(2)]:
            times["callers"] += both.result()
print(json.dumps({name: median(found) for name, found in times.items()}))

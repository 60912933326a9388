"""decode_step PACKAGE PACKAGE THREADS SECONDS TURNS: a step of each package, in turns.

One JSON line: times (median seconds of a step, by package), bytes (that a step reads: weights and cached positions, by
package), bandwidth (GB/s of reading memory with so many threads, the best of all turns).
"""

from __future__ import annotations

import json
import sys
from statistics import median

import mycc
from mycc.runtime.arrays import as_tensor
from mycc.runtime.execute import generated_inputs
from mycc.runtime.formula import evaluate
from mycc.runtime.measure import time_runs
from mycc.runtime.roof import measure_roof

paths, threads, seconds, turns = sys.argv[1:3], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
models = [mycc.load(path, threads=threads) for path in paths]
runs, sizes = [], []
for model in models:
    ports = model.signature.inputs
    arrays = generated_inputs(model, model)
    tensors = [as_tensor(a, port.dtype) for a, port in zip(arrays, ports, strict=True)]
    runs.append(lambda model=model, tensors=tensors: model.run_flat(tensors))
    weights = sum(evaluate(row["weights"], {}) for row in model.manifest["entry_points"][0]["kernels"])
    sizes.append(weights + sum(a.nbytes for a in arrays))
times: list[list[float]] = [[] for _ in runs]
bandwidth = 0.0
for run in runs:
    run()
for _ in range(turns):
    for found, run in zip(times, runs, strict=True):
        run()
        found += time_runs(run, seconds)
    roof = measure_roof(threads)
    bandwidth = max(bandwidth, roof.memory if roof is not None else 0.0)
print(json.dumps({"times": [median(found) for found in times], "bytes": sizes, "bandwidth": bandwidth}))

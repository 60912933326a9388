"""decode_step PACKAGE PACKAGE THREADS SECONDS TURNS: a step of each package, in turns.

One JSON line: times (median seconds of a step, by package), bytes (that a step reads: weights and cached positions, by
package), bandwidth (GB/s of reading memory with so many threads), share (of the bandwidth that the first package's step
reaches); the last two are medians over the turns, measured beside the steps of each turn.
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
WARM = 1.5  # seconds: as long as a host may take to give a second thread a core of its own
bandwidths, shares = [], []
for _ in range(turns):
    for run in runs:
        time_runs(run, WARM, least=1)
    latest = [time_runs(run, seconds) for run in runs]
    for found, new in zip(times, latest, strict=True):
        found += new
    roof = measure_roof(threads)
    bandwidths.append(roof.memory if roof is not None else 0.0)
    shares.append(sizes[0] / median(latest[0]) / 1e9 / bandwidths[-1] if bandwidths[-1] else 0.0)
facts = {"times": [median(found) for found in times], "bytes": sizes}
print(json.dumps({**facts, "bandwidth": median(bandwidths), "share": median(shares)}))

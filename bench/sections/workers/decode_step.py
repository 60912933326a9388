"""decode_step PACKAGE PACKAGE THREADS SECONDS TURNS: a step of each package, in turns.

One JSON line: times (median seconds of a step, by package), bytes (that a step reads: weights and cached positions, by
package), bandwidth (GB/s of reading memory with so many threads), share (of the bandwidth that the first package's step
reaches). The bandwidth of a shared machine changes from one tenth of a second to the next, so steps and reading take
turns of that length; bandwidth and share are medians over them.
"""

from __future__ import annotations

import json
import math
import sys
from statistics import median

import mycc
from mycc.runtime.arrays import as_tensor
from mycc.runtime.execute import generated_inputs
from mycc.runtime.formula import evaluate
from mycc.runtime.measure import time_runs
from mycc.runtime.roof import MemoryReader

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
SLICE = 0.1
reader = MemoryReader(threads)
bandwidths, shares = [], []
for _ in range(turns):
    for run in runs:
        time_runs(run, WARM, least=1)
    for _ in range(max(1, round(seconds / SLICE))):
        latest = [time_runs(run, SLICE) for run in runs]
        for found, new in zip(times, latest, strict=True):
            found += new
        bandwidths.append(reader.measure(SLICE) or math.nan)
        shares.append(sizes[0] / median(latest[0]) / 1e9 / bandwidths[-1])
facts = {"times": [median(found) for found in times], "bytes": sizes}
print(json.dumps({**facts, "bandwidth": median(bandwidths), "share": median(shares)}))

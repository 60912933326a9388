"""load_once PACKAGE [hold]: import mycc, load and a first run in a fresh process, numpy imported before.

One JSON line: load (seconds of mycc.load), all (import of mycc, load and first run), resident (bytes at the end),
shared and private (resident bytes of the mapped package; private ones are this process's alone).
With `hold` the process runs the model, prints "loaded", and measures when it gets a line, so that two can be alive.
"""

from __future__ import annotations

import sys
from time import perf_counter

import numpy as np

start = perf_counter()
import mycc  # noqa: E402

imported = perf_counter()
model = mycc.load(sys.argv[1])
loaded = perf_counter()
(port,) = model.signature.inputs
x = np.ones(tuple(int(size) for size in port.shape), {"f32": np.float32, "i64": np.int64}[port.dtype])
ready = perf_counter()
model(x)
done = perf_counter()

import json  # noqa: E402


def resident() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def mapped(path: str) -> tuple[int, int]:
    """(shared, private) resident bytes of the mappings of this file."""
    shared = private = 0
    inside = False
    with open("/proc/self/smaps") as rows:
        for row in rows:
            key, _, rest = row.partition(" ")
            if not key.endswith(":"):
                inside = row.rstrip().endswith(path)
            elif inside and key.startswith("Shared_"):
                shared += int(rest.split()[0]) * 1024
            elif inside and key.startswith("Private_"):
                private += int(rest.split()[0]) * 1024
    return shared, private


rss = resident()
if len(sys.argv) > 2:
    print("loaded", flush=True)
    sys.stdin.readline()
shared, private = mapped(sys.argv[1])
facts = {"load": loaded - imported, "all": (loaded - start) + (done - ready), "resident": rss}
print(json.dumps({**facts, "shared": shared, "private": private}), flush=True)
if len(sys.argv) > 2:
    sys.stdin.readline()

"""plan_memory PACKAGE SIZES: the arena and the largest sum of live bytes at [[batch, sequence], ...], in bytes."""

from __future__ import annotations

import json
import sys

import mycc
import numpy as np

model = mycc.load(sys.argv[1])
(port,) = model.signature.inputs
rows = []
for batch, sequence in json.loads(sys.argv[2]):
    sizes = {"batch": batch, "seq": sequence}
    shape = tuple(sizes.get(size, size) for size in port.shape)
    x = np.zeros(tuple(int(size) for size in shape), {"f32": np.float32, "i64": np.int64}[port.dtype])
    rows.append([batch, sequence, *model.memory([x])])
print(json.dumps({"rows": rows}))

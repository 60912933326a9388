"""call_small PACKAGE: seconds of a call with small tensors from Python, as numpy arrays and as torch tensors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import mycc
import numpy as np

CALLS, ROUNDS = 2000, 25


def median_call(call: Callable[[Any], Any], x: Any) -> float:
    rounds = []
    for _ in range(ROUNDS):
        start = perf_counter()
        for _ in range(CALLS):
            call(x)
        rounds.append((perf_counter() - start) / CALLS)
    return sorted(rounds)[ROUNDS // 2]


model = mycc.load(sys.argv[1])
x = np.ones((1, 8), np.float32)
facts = {"numpy": median_call(model, x)}
try:
    import torch
except ImportError:
    pass
else:
    facts["torch"] = median_call(model, torch.from_numpy(x))
print(json.dumps(facts))

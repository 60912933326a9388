"""compare_model MODEL PACKAGE static|dynamic SIZES: errors against float64, beside eager's, and bit equality.

SIZES is JSON: [[batch, sequence], ...]. One JSON line: a list of rows with batch, sequence, error, eager (a number per
output), and same (whether one and two threads, a second run and four callers at once gave the same bits).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mycc
import torch
from mycc.compiler.capture.export import capture
from mycc.compiler.verify.compare import errors
from mycc.compiler.verify.reference import reference
from zoo import ZOO

CALLERS = 4


def outputs_of(value: Any) -> list[torch.Tensor]:
    return torch.utils._pytree.tree_leaves(value)


def same_bits(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    return all(
        a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes() for a, b in zip(left, right, strict=True)
    )


def main() -> None:
    name, package, kind, sizes = sys.argv[1:]
    zoo = ZOO[name]
    module = zoo.build()
    graph = capture(module, zoo.inputs(batch=1), None, zoo.dynamic_shapes() if kind == "dynamic" else None)
    packages = [mycc.load(package, threads=threads) for threads in (1, 2)]
    rows = []
    for batch, sequence in json.loads(sizes):
        args = zoo.inputs(batch, sequence or 128, seed=batch + sequence)
        found = outputs_of(packages[0](*args))
        repeated = [outputs_of(model(*args)) for model in (*packages, packages[1])]
        with ThreadPoolExecutor(CALLERS) as pool:
            calls = [pool.submit(packages[1], *args) for _ in range(CALLERS)]
            repeated += [outputs_of(call.result()) for call in calls]
        same = all(same_bits(found, other) for other in repeated)
        del repeated
        with torch.no_grad():
            eager = outputs_of(module(*args))
            wanted = reference(graph, args)
        rows.append({"batch": batch, "sequence": sequence, "error": errors(found, wanted),
                     "eager": errors(eager, wanted), "same": same})  # fmt: skip
    print(json.dumps({"rows": rows}))


main()

"""One peer in a process of its own: `python -m mycc.compiler.bench.worker`.

Its first line of standard input is a job (JSON, see process.job_of). It builds the peer, runs it three times, writes
the outputs to a file, and answers {"ready": seconds}, or {"failed": reason}. After that each line is a number of
seconds: it runs the model for about that long and answers with the timing (runtime.measure.timing). The end of standard
input ends it. Everything that the model or the peer prints goes to standard error.

The process of mycc does not import torch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, TextIO

import numpy as np

from ...runtime.measure import time_runs, timing

Job = Mapping[str, Any]
Run = Callable[[], Any]
Arrays = Callable[[Any], list[Any]]  # the arrays of a run's result


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a peer prints is not an answer
    job = json.loads(sys.stdin.readline())
    try:
        _serve(job, answers)
    except Exception as error:
        import traceback

        traceback.print_exc()
        lines = str(error).strip().splitlines()
        _answer(answers, {"failed": f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]})


def _serve(job: Job, answers: TextIO) -> None:
    start = perf_counter()
    run, arrays_of = _mycc(job) if job["peer"] == "mycc" else _peer(job)
    ready = perf_counter() - start
    np.savez(job["outputs"], *arrays_of(run()))
    for _ in range(2):
        run()
    _answer(answers, {"ready": ready})
    for line in sys.stdin:
        run()  # the caches are another process's
        _answer(answers, timing(time_runs(run, float(line))))


def _answer(answers: TextIO, value: Mapping[str, Any]) -> None:
    print(json.dumps(value), file=answers, flush=True)


def _mycc(job: Job) -> tuple[Run, Arrays]:
    from ...runtime.arrays import as_array, as_tensor
    from ...runtime.loader import load

    model = load(job["package"], job["threads"])
    ports = model.signature
    with np.load(Path(job["folder"]) / "inputs.npz") as arrays:
        inputs = [as_tensor(arrays[name], port.dtype) for name, port in zip(arrays, ports.inputs, strict=True)]
    return lambda: model.run_flat(inputs), lambda found: [
        as_array(output, port.dtype) for output, port in zip(found, ports.outputs, strict=True)
    ]


def _peer(job: Job) -> tuple[Run, Arrays]:
    import torch

    from .peers import PEERS, PeerJob
    from .prepare import load_model

    torch.set_num_threads(job["threads"])
    torch.set_grad_enabled(False)
    source = load_model(job["source"], job["inputs"], job["batch"])
    folder = Path(job["folder"])
    return PEERS[job["peer"]].build(PeerJob(source.model, source.args, source.kwargs, job["threads"], folder)), _tensors


def _tensors(result: Any) -> list[Any]:
    """The tensors of a result in order, as arrays (bfloat16 widened to float32)."""
    import torch

    leaves = torch.utils._pytree.tree_leaves(result)
    kept = [torch.as_tensor(leaf).detach() for leaf in leaves if isinstance(leaf, (torch.Tensor, np.ndarray))]
    return [(t.float() if t.dtype == torch.bfloat16 else t).numpy() for t in kept]


if __name__ == "__main__":
    main()

"""One peer in a process of its own: `python -m mycc.compiler.bench.worker`.

Its first line of standard input is a job (JSON, see process.job_of). It builds the peer, runs it three times, writes
the outputs of the first run to a file, and answers {"ready": seconds}, or {"failed": reason}. After that each line is a
number of seconds: it runs the model for about that long and answers with the timing (runtime.measure.timing). What a
run changes (the model's state, arguments) is set back before the next, outside of its time. The end of standard input
ends it. Everything that the model or the peer prints goes to standard error.

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

from ...runtime.measure import restorer, time_runs, timing

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
    run, restore, arrays_of = _mycc(job) if job["peer"] == "mycc" else _peer(job)
    ready = perf_counter() - start
    np.savez(job["outputs"], *arrays_of(run()))
    time_runs(run, 0.0, 2, restore=restore)
    _answer(answers, {"ready": ready})
    for line in sys.stdin:
        time_runs(run, 0.0, 1, restore=restore)  # the caches are another process's
        _answer(answers, timing(time_runs(run, float(line), restore=restore)))


def _answer(answers: TextIO, value: Mapping[str, Any]) -> None:
    print(json.dumps(value), file=answers, flush=True)


def _mycc(job: Job) -> tuple[Run, Run | None, Arrays]:
    from ...runtime.arrays import as_array, as_tensor
    from ...runtime.loader import load

    model = load(job["package"], job["threads"])
    ports = model.signature
    with np.load(Path(job["folder"]) / "inputs.npz") as arrays:
        given = [arrays[name] for name in arrays]
    inputs = [as_tensor(array, port.dtype) for array, port in zip(given, ports.inputs, strict=True)]
    restore = restorer(model, model, inputs, given)
    return (
        lambda: model.run_flat(inputs),
        restore,
        lambda found: [as_array(output, port.dtype) for output, port in zip(found, ports.outputs, strict=True)],
    )


def _peer(job: Job) -> tuple[Run, Run | None, Arrays]:
    import torch

    from .peers import PEERS, PeerJob
    from .prepare import load_model

    torch.set_num_threads(job["threads"])
    torch.set_grad_enabled(False)
    source = load_model(job["source"], job["inputs"], job["batch"])
    peer = PEERS[job["peer"]]
    if job["changes"] and not peer.shares_state:
        raise NotImplementedError("the model changes its state or an argument, which cannot be set back here")
    given = PeerJob(source.model, source.args, source.kwargs, job["threads"], Path(job["folder"]))
    restore = given.restorer() if job["changes"] else None
    return peer.build(given), restore, _tensors


def _tensors(result: Any) -> list[Any]:
    """The tensors of a result in order, as arrays (bfloat16 widened to float32)."""
    import torch

    leaves = torch.utils._pytree.tree_leaves(result)
    kept = [torch.as_tensor(leaf).detach() for leaf in leaves if isinstance(leaf, (torch.Tensor, np.ndarray))]
    return [(t.float() if t.dtype == torch.bfloat16 else t).numpy() for t in kept]


if __name__ == "__main__":
    main()

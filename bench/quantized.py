"""Milliseconds of whole models in float32 and in int8, beside three peers: interleaved, medians, one process.

    python bench/quantized.py [--models bert,vit,resnet50,mobilenetv2] [--threads 1,2] [--batch 1,8] [--rounds 15]
                              [--peers ort,openvino,torchao] [--folder F]

mycc quantises by `quantize="int8-dynamic"` and, calibrated on the inputs of the measurement, `quantize="int8"`.
quantized_peers.py says how the peers quantise the same float32 model. Each is called twice in its turn, and the second
call counts: threads of the one before still look for work when the first one begins. The error is the largest
difference from the float32 model, as a share of its largest output. With --folder what is compiled is kept there, and
--prepare only compiles.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import torch
import zoo
from quantized_peers import PEERS, Run
from turns import timed

FORMS = {"float32": {}, "int8-dynamic": {"quantize": "int8-dynamic"}, "int8": {"quantize": "int8"}}


def mycc_runs(model: Any, args: tuple[Any, ...], folder: Path, threads: int) -> dict[str, Run]:
    found: dict[str, Run] = {}
    arrays = [a.numpy() for a in args]
    for name, given in FORMS.items():
        path = folder / f"{name}.pkg"
        if not path.exists():
            calibrate = {"calibrate": [args]} if name == "int8" else {}
            mycc.compile(model, args, out=path, verify=False, **given, **calibrate)
        package = mycc.load(path, threads=threads)
        found[f"mycc {name}"] = lambda package=package: package(*arrays)
    return found


def first(result: Any) -> np.ndarray[Any, Any]:
    while isinstance(result, list | tuple):
        result = result[0]
    return np.asarray(result)


def measure(name: str, batch: int, threads: int, folder: Path, peers: list[str], rounds: int) -> None:
    """A model at a batch and a number of threads: a line for each runtime."""
    model, args = zoo.ZOO[name].build(), zoo.ZOO[name].inputs(batch)
    torch.set_num_threads(threads)
    runs = mycc_runs(model, args, folder, threads)
    for peer in peers:
        runs |= PEERS[peer](model, args, folder, threads)
    if not rounds:
        return
    wanted = first(runs["mycc float32"]())
    spent = timed(runs, rounds, again=True)
    for label, time in spent.items():
        error = float(np.abs(first(runs[label]()) - wanted).max() / np.abs(wanted).max())
        faster = spent["mycc float32"] / time
        where = f"{name:12} batch {batch} {threads} threads"
        print(f"{where}  {label:21} {time:9.2f} ms  {faster:5.2f} times  error {error:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="bert,vit,resnet50,mobilenetv2")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--peers", default="ort,openvino,torchao")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--prepare", action="store_true")
    options = parser.parse_args()
    peers = [peer for peer in options.peers.split(",") if peer]
    with tempfile.TemporaryDirectory(prefix="mycc-quantized-") as own, torch.no_grad():
        for name in options.models.split(","):
            for batch in map(int, options.batch.split(",")):
                folder = (options.folder or Path(own)) / f"{name}-{batch}"
                folder.mkdir(parents=True, exist_ok=True)
                for threads in map(int, options.threads.split(",")):
                    measure(name, batch, threads, folder, peers, 0 if options.prepare else options.rounds)


if __name__ == "__main__":
    main()

"""serve_model MODEL PEER THREADS FOLDER: one peer on one zoo model, timed in turns.

Loads, warms up and prints a JSON line with `first` (a checksum of the output). Then for every line on standard input,
a number of seconds, it runs the model for about that long and prints the median and smallest time of a run (seconds).
The process of mycc does not import torch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

Run = Callable[[], Any]


def serve_mycc(name: str, threads: int, folder: Path) -> Run:
    import mycc

    model = mycc.load(folder / f"{name}-static.pkg", threads=threads)
    (port,) = model.signature.inputs
    random = np.random.default_rng(0)
    shape = tuple(int(size) for size in port.shape)
    x = random.integers(0, 1000, shape) if port.dtype == "i64" else random.standard_normal(shape, np.float32)
    return lambda: model(x)


def serve_eager(name: str, threads: int, folder: Path) -> Run:
    model, args = _zoo(name, threads)
    return lambda: model(*args)


def serve_aoti(name: str, threads: int, folder: Path) -> Run:
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
    import torch

    model, args = _zoo(name, threads)
    path = folder / f"{name}.pt2"
    if not path.exists():
        program = torch.export.export(model, args, strict=False)
        torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs={"freezing": True})
    compiled = torch._inductor.aoti_load_package(str(path))
    return lambda: compiled(*args)


def serve_ort(name: str, threads: int, folder: Path) -> Run:
    import onnxruntime

    path, x = _onnx(name, threads, folder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: x}
    return lambda: session.run(None, feed)


def serve_openvino(name: str, threads: int, folder: Path) -> Run:
    import openvino

    path, x = _onnx(name, threads, folder)
    core = openvino.Core()
    hints = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    core.set_property("CPU", hints)
    request = core.compile_model(core.read_model(str(path)), "CPU").create_infer_request()
    return lambda: request.infer([x], share_inputs=True, share_outputs=True)


def _zoo(name: str, threads: int) -> tuple[Any, tuple[Any, ...]]:
    import torch
    from zoo import ZOO

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return ZOO[name].build(), ZOO[name].inputs(batch=1)


def _onnx(name: str, threads: int, folder: Path) -> tuple[Path, Any]:
    import torch

    model, args = _zoo(name, threads)
    path = folder / f"{name}.onnx"
    if not path.exists():
        torch.onnx.export(model, args, str(path), dynamo=True, verbose=False)
    return path, args[0].numpy()


def measure(run: Run, seconds: float) -> dict[str, float]:
    times: list[float] = []
    end = perf_counter() + seconds
    while len(times) < 3 or (perf_counter() < end and len(times) < 100_000):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    times.sort()
    return {"median": times[len(times) // 2], "best": times[0]}


def main() -> None:
    name, peer, threads, folder = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a peer prints is not an answer
    serve = {"mycc": serve_mycc, "eager": serve_eager, "aoti": serve_aoti, "ort": serve_ort, "openvino": serve_openvino}
    start = perf_counter()
    run = serve[peer](name, int(threads), Path(folder))
    ready = perf_counter() - start
    for _ in range(3):
        run()
    print(json.dumps({"ready": ready}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(run, float(line))), file=answers, flush=True)


main()

"""A process of bench/gpu_check.py: one package or one peer on one GPU, made ready and then timed whenever it is asked.

    gpu_worker.py '{"peer": "graph", "model": "bert", "batch": 1, ...}'      # all fields of `Task`

A line of JSON on standard output says that it is ready, {"eager_error": ...}. Every word on standard input is answered
by another: "time" by {"call_ms": ..., "time_ms": ...}, "profile" by {"kernels": ...}. It ends with its input.
"""

from __future__ import annotations

import fcntl
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CHANNELS_LAST = ("resnet50", "mobilenetv2")


@dataclass(frozen=True)
class Task:
    """What a worker measures.

    Attributes:
        peer: "mycc", "eager", "graph", "compile" or "compile:MODE"; "package:DIR" is the package of this task in
            another folder, as an older version built it.
        model: name in bench/zoo.py.
        dynamic: dynamic dimensions of the package, "batch,sequence" or a part of it.
        mode, target, options: of mycc.compile.
        folder: where packages are; one that is there is not built again.
        gpu: number of the device, for the lock of those that tune on it.
    """

    peer: str
    model: str
    batch: int
    sequence: int
    dtype: str
    dynamic: str
    mode: str
    target: str
    options: tuple[str, ...]
    folder: str
    gpu: int

    @property
    def package(self) -> Path:
        form = f"-dynamic-{self.dynamic.replace(',', '-')}" if self.dynamic else ""
        folder = self.peer.partition(":")[2] if self.peer.startswith("package:") else self.folder
        return Path(folder) / f"{self.model}-{self.batch}-{self.sequence}-{self.dtype}{form}.pkg"

    @property
    def of_mycc(self) -> bool:
        return self.peer == "mycc" or self.peer.startswith("package:")


def main() -> None:
    fields = json.loads(sys.argv[1])
    task = Task(**{**fields, "options": tuple(fields["options"])})
    sys.path.insert(0, str(HERE))
    import torch

    with torch.no_grad():
        call, given, ready = _prepare(task)
        _answer(ready)
        for line in sys.stdin:
            if line.strip() == "time":
                call_ms, time_ms = _times(call)
                _answer({"call_ms": call_ms, "time_ms": time_ms})
            elif line.strip() == "profile":
                _answer({"kernels": _profile(task.package, given)})


def _answer(fields: dict[str, Any]) -> None:
    print(json.dumps(fields), flush=True)


def _prepare(task: Task) -> tuple[Callable[[], Any], tuple[Any, ...], dict[str, Any]]:
    """What is measured, its inputs on the device, and how right it is: errors against float64."""
    import torch
    from zoo import ZOO

    result: dict[str, Any] = {}
    model = ZOO[task.model]
    inputs = model.inputs(task.batch, task.sequence)
    if task.peer == "mycc":
        _build(task, model, inputs, result)
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[task.dtype]
    torch.backends.cuda.matmul.allow_tf32 = False
    module = model.build().cuda().to(dtype)
    given = tuple(x.cuda().to(dtype) if x.is_floating_point() else x.cuda() for x in inputs)
    eager = module(*given)
    wanted = module.double()(*(x.double() if x.is_floating_point() else x for x in given))
    module.to(dtype)
    result["eager_error"] = _error(eager, wanted)
    if task.model in CHANNELS_LAST and not task.of_mycc:
        module = module.to(memory_format=torch.channels_last)
        given = tuple(x.to(memory_format=torch.channels_last) for x in given)
    call = _callable(task, module, given, result)
    found = _tensor(call())
    result["error_"] = _error(found, wanted)
    result["same_bits"] = bool(torch.equal(found.clone(), _tensor(call())))
    torch.cuda.synchronize()
    return call, given, result


def _build(task: Task, model: Any, inputs: tuple[Any, ...], result: dict[str, Any]) -> None:
    import mycc

    start = time.perf_counter()
    if not task.package.exists():
        mycc.compile(
            model.build(), inputs, out=task.package, target=task.target, dtype=task.dtype, mode=task.mode,
            dynamic_shapes=_dynamic(model, task.dynamic), options=list(task.options), verify=False,
            cache_dir=Path(task.folder) / "cache",
        )  # fmt: skip
    result["build_s"], result["megabytes"] = time.perf_counter() - start, task.package.stat().st_size / 1e6


def _dynamic(model: Any, wanted: str) -> Any:
    """The dynamic shapes of a model's inputs, those of `wanted` dimensions; None for none."""
    kept = {{"batch": 0, "sequence": 1}[name] for name in wanted.split(",") if name}
    if not kept:
        return None
    return tuple({d: size for d, size in dims.items() if d in kept} for dims in model.dynamic_shapes())


def _callable(task: Task, module: Any, given: tuple[Any, ...], result: dict[str, Any]) -> Callable[[], Any]:
    """What is measured, called until it has compiled."""
    start = time.perf_counter()
    if task.of_mycc:
        import mycc

        loaded = mycc.load(task.package)
        result["load_s"], result["target"] = time.perf_counter() - start, loaded.target
        return lambda: loaded(*given)
    if task.peer == "eager":
        return lambda: module(*given)
    if task.peer == "graph":
        return _in_graph(module, given)
    call = _compiled(task, module, given)
    result["compile_s"] = time.perf_counter() - start
    return call


def _compiled(task: Task, module: Any, given: tuple[Any, ...]) -> Callable[[], Any]:
    """The module through torch.compile in the mode that the peer names, weights as constants."""
    import torch
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.runtime.benchmarking import benchmarker

    # before its workers are there, it compiles candidates one by one
    AsyncCompile.warm_pool()
    AsyncCompile.wait_pool_ready()
    lock = Path(tempfile.gettempdir()) / f"gpu_check_{task.gpu}.lock"
    benchmarker.benchmark_gpu = _one_at_a_time(benchmarker.benchmark_gpu, lock)  # type: ignore[method-assign]
    torch._inductor.config.freezing = True
    compiled = torch.compile(module, mode=task.peer.partition(":")[2] or None)
    for _ in range(3):  # the second and third run record the graph
        compiled(*given)
    return lambda: compiled(*given)


def _one_at_a_time(function: Callable[..., Any], lock: Path) -> Callable[..., Any]:
    """The function, called by one of all processes with this lock at a time: those that tune on one device would
    measure each other."""
    held = threading.RLock()
    depth = [0]

    @wraps(function)
    def locked(*args: Any, **options: Any) -> Any:
        with held, open(lock, "w") as file:
            depth[0] += 1
            try:
                if depth[0] == 1:
                    fcntl.flock(file, fcntl.LOCK_EX)
                return function(*args, **options)
            finally:
                depth[0] -= 1

    return locked


def _in_graph(module: Any, given: tuple[Any, ...]) -> Callable[[], Any]:
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            module(*given)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = module(*given)

    def replay() -> Any:
        graph.replay()
        return output

    return replay


def _tensor(value: Any) -> Any:
    import torch

    return value if isinstance(value, torch.Tensor) else torch.from_dlpack(value)


def _error(found: Any, wanted: Any) -> float:
    return float((found.double() - wanted).norm() / wanted.norm())


def _times(call: Callable[[], Any]) -> tuple[float, float]:
    """Milliseconds: of a call until its result is there, one at a time; and of a call among many, on the device."""
    import torch

    for _ in range(20):
        call()
    torch.cuda.synchronize()
    alone = []
    for _ in range(50):
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        alone.append(time.perf_counter() - start)
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for _ in range(100):
        call()
    last.record()
    torch.cuda.synchronize()
    return statistics.median(alone) * 1e3, first.elapsed_time(last) / 100


def _profile(package: Path, given: tuple[Any, ...]) -> list[list[Any]]:
    """[kernel, launches, microseconds] of every kernel, the longest first."""
    import mycc

    model = mycc.load(package)
    rows = model.manifest["entry_points"][0]["launches"][model.target]
    total: dict[str, list[float]] = {}
    for row, nanoseconds in zip(rows, model.profile(list(given), 10), strict=True):
        total.setdefault(row["name"], []).append(nanoseconds / 1e3)
    return [
        [name, len(times), round(sum(times), 1)]
        for name, times in sorted(total.items(), key=lambda item: -sum(item[1]))
    ]


if __name__ == "__main__":
    main()

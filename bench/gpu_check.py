"""Whole models on the GPU of this machine: packages built, run, compared with float64 and timed beside torch.

    python bench/gpu_check.py                                        # bert, llama, resnet50, vit at batch 1 and 32
    python bench/gpu_check.py --models all --batches 1 --peers graph
    python bench/gpu_check.py --dynamic --models all --batches 4 --peers ""      # dynamic batch and sequence

Needs torch with CUDA and transformers beside mycc; no network. Packages are built first, side by side, without the GPU.
Then a process each measures a package or a peer; references and peers are made side by side, but while one is timed
nothing else works on the device. Every line says the error against float64 (weights as stored) beside eager's in the
same dtype, the time of a call alone from the host, and the time of a call among many. The exit code is 1 when a package
is wrong or slower than every peer.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DEFAULT_MODELS = ("bert", "llama", "resnet50", "vit")
CHANNELS_LAST = ("resnet50", "mobilenetv2")
SEQUENCE = 128
#: error of a package, as a multiple of eager's
FACTOR = 1.2
PEERS = "graph,compile:reduce-overhead,compile:max-autotune"
WORKER_SECONDS = 560


def main() -> int:
    options = _options()
    if options.worker:
        print(json.dumps(_work(options.worker, options)), flush=True)
        return 0
    folder = Path(options.folder or tempfile.mkdtemp(prefix="gpu_check_"))
    folder.mkdir(parents=True, exist_ok=True)
    cases = [(model, batch) for model in _models(options.models) for batch in map(int, options.batches.split(","))]
    with ThreadPoolExecutor(options.jobs) as pool:
        start = time.perf_counter()
        built = dict(zip(cases, pool.map(lambda c: _run("build", c, folder, options), cases), strict=True))
        for case, result in built.items():
            _print(case, "build", result)
        print(f"built {len(cases)} packages in {time.perf_counter() - start:.0f} s", flush=True)
        rows = [(case, peer) for case in cases for peer in ("mycc", *filter(None, options.peers.split(",")))]
        rows.sort(key=lambda row: row[1] != "mycc")
        found: dict[tuple[tuple[str, int], str], dict[str, Any]] = {}
        for packages in (True, False):  # peers take long to compile
            jobs = {r: pool.submit(_run, r[1], r[0], folder, options) for r in rows if (r[1] == "mycc") == packages}
            for row, job in jobs.items():
                found[row] = job.result()
                _print(*row, found[row])
    return _report(cases, built, found, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(DEFAULT_MODELS), help="names of bench/zoo.py, or all")
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--sequence", type=int, default=SEQUENCE)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument(
        "--dynamic",
        nargs="?",
        const="batch,sequence",
        default="",
        help="dynamic dimensions of packages, both by default",
    )
    parser.add_argument("--mode", default="reduce-overhead", help="of mycc.compile")
    parser.add_argument("--peers", default=PEERS, help="eager, graph, compile[:MODE], with commas between")
    parser.add_argument("--set", action="append", default=[], help="an option of mycc.compile, as in schedule.fuse=no")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--jobs", type=int, default=4, help="processes at once")
    parser.add_argument("--folder", help="where packages go; those that are there are used again")
    parser.add_argument("--json", help="a file for all figures")
    parser.add_argument("--profile", action="store_true", help="print the time of every kernel of each package")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    return parser.parse_args()


def _models(names: str) -> list[str]:
    if names != "all":
        return names.split(",")
    sys.path.insert(0, str(HERE))
    from zoo import MODELS

    return list(MODELS)


def _run(peer: str, case: tuple[str, int], folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The answer of a worker process, or {"error": ...}."""
    command = [sys.executable, str(HERE / "gpu_check.py"), "--worker", peer, "--case", f"{case[0]}:{case[1]}"]
    command += ["--sequence", str(options.sequence), "--dtype", options.dtype, "--mode", options.mode]
    command += ["--folder", str(folder), "--target", options.target]
    command += [f"--dynamic={options.dynamic}"] * bool(options.dynamic) + ["--profile"] * options.profile
    command += [word for value in options.set for word in ("--set", value)]
    threads = str(max(2, (os.cpu_count() or 2) // options.jobs))  # of torch.compile: each costs an import of torch
    environment = {"TORCHINDUCTOR_COMPILE_THREADS": threads, **os.environ}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=WORKER_SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        return {"error": f"took longer than {WORKER_SECONDS} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"error": (done.stderr or done.stdout)[-1500:]}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def _work(peer: str, options: argparse.Namespace) -> dict[str, Any]:
    """One build or one measurement, in this process."""
    sys.path.insert(0, str(HERE))
    import torch
    from zoo import ZOO

    name, _, batch = options.case.partition(":")
    model = ZOO[name]
    inputs = model.inputs(int(batch), options.sequence)
    form = f"-dynamic-{options.dynamic.replace(',', '-')}" if options.dynamic else ""
    package = Path(options.folder) / f"{name}-{batch}-{options.sequence}-{options.dtype}{form}.pkg"
    if peer == "build":
        return _build(model, inputs, package, options)
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[options.dtype]
    torch.backends.cuda.matmul.allow_tf32 = False
    module = model.build()
    with torch.no_grad():
        with _device(alone=False):
            call, given, result = _prepare(peer, name, module, inputs, dtype, package)
        with _device(alone=True):
            result["call_ms"], result["time_ms"] = _times(call)
        if peer == "mycc" and options.profile:
            with _device(alone=True):
                result["kernels"] = _profile(package, given)
    return result


@contextmanager
def _device(alone: bool) -> Iterator[None]:
    """The GPU among the workers: alone for what is timed, else together with all that is not. Work of another process
    takes its turns on the device, and would count twice."""
    import torch

    with open(Path(tempfile.gettempdir()) / "gpu_check.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
        torch.cuda.synchronize()


def _prepare(
    peer: str, name: str, module: Any, inputs: tuple[Any, ...], dtype: Any, package: Path
) -> tuple[Callable[[], Any], tuple[Any, ...], dict[str, Any]]:
    """What is measured, its inputs on the device, and how right it is."""
    import torch

    module = module.cuda().to(dtype)
    given = tuple(x.cuda().to(dtype) if x.is_floating_point() else x.cuda() for x in inputs)
    eager = module(*given)
    wide = module.double()
    wanted = wide(*(x.double() if x.is_floating_point() else x for x in given))
    module.to(dtype)
    result: dict[str, Any] = {"eager_error": _error(eager, wanted)}
    if name in CHANNELS_LAST and peer != "mycc":
        module = module.to(memory_format=torch.channels_last)
        given = tuple(x.to(memory_format=torch.channels_last) for x in given)
    call = _callable(peer, module, given, package, result)
    found = _tensor(call())
    result["error_"] = _error(found, wanted)
    result["same_bits"] = bool(torch.equal(found.clone(), _tensor(call())))
    return call, given, result


def _build(model: Any, inputs: tuple[Any, ...], package: Path, options: argparse.Namespace) -> dict[str, Any]:
    import mycc

    start = time.perf_counter()
    if not package.exists():
        mycc.compile(
            model.build(), inputs, out=package, target=options.target, dtype=options.dtype, mode=options.mode,
            dynamic_shapes=_dynamic(model, options.dynamic), options=options.set, verify=False,
            cache_dir=Path(options.folder) / "cache",
        )  # fmt: skip
    return {"seconds": time.perf_counter() - start, "megabytes": package.stat().st_size / 1e6}


def _dynamic(model: Any, wanted: str) -> Any:
    """The dynamic shapes of a model's inputs, those of `wanted` dimensions; None for none."""
    kept = {{"batch": 0, "sequence": 1}[name] for name in wanted.split(",") if name}
    if not kept:
        return None
    return tuple({d: size for d, size in dims.items() if d in kept} for dims in model.dynamic_shapes())


def _callable(
    peer: str, module: Any, given: tuple[Any, ...], package: Path, result: dict[str, Any]
) -> Callable[[], Any]:
    """What is measured, called once."""
    import torch

    start = time.perf_counter()
    if peer == "mycc":
        import mycc

        loaded = mycc.load(package)
        result["load_s"], result["target"] = time.perf_counter() - start, loaded.target
        return lambda: loaded(*given)
    if peer == "eager":
        return lambda: module(*given)
    if peer == "graph":
        return _in_graph(module, given)
    mode = peer.partition(":")[2] or None
    torch._inductor.config.freezing = True
    compiled = torch.compile(module, mode=mode)
    compiled(*given)
    compiled(*given)
    result["compile_s"] = time.perf_counter() - start
    return lambda: compiled(*given)


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

    for _ in range(10):
        call()
    torch.cuda.synchronize()
    for _ in range(20):
        call()
    torch.cuda.synchronize()
    alone = []
    for _ in range(100):
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        alone.append(time.perf_counter() - start)
    many = []
    for _ in range(3):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        for _ in range(100):
            call()
        last.record()
        torch.cuda.synchronize()
        many.append(first.elapsed_time(last) / 100)
    return statistics.median(alone) * 1e3, min(many)


def _profile(package: Path, given: tuple[Any, ...]) -> list[list[Any]]:
    """[kernel, microseconds] of every launch, the longest first, those of one name together."""
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


def _print(case: tuple[str, int], peer: str, result: dict[str, Any]) -> None:
    label = f"{case[0]:<12} batch {case[1]:<3} {peer:<24}"
    if "error" in result:
        print(f"{label} failed: {result['error']}", flush=True)
    elif peer == "build":
        print(f"{label} {result['seconds']:.1f} s, {result['megabytes']:.1f} MB", flush=True)
    else:
        bits = "" if result["same_bits"] else "  DIFFERENT BITS"
        print(
            f"{label} {result['time_ms']:8.4f} ms  alone {result['call_ms']:8.4f} ms  "
            f"error {result['error_']:.2e} (eager {result['eager_error']:.2e}){bits}",
            flush=True,
        )
        for name, count, microseconds in result.get("kernels", []):
            print(f"    {microseconds:9.1f} us  {count:3} x {name}", flush=True)


def _report(
    cases: list[tuple[str, int]],
    built: dict[tuple[str, int], dict[str, Any]],
    found: dict[tuple[tuple[str, int], str], dict[str, Any]],
    options: argparse.Namespace,
) -> int:
    """The ratios to the best peer, and whether all is well."""
    good, ratios = True, []
    print(f"\n{'model':<12} batch   mycc ms   best peer ms  ratio  error / eager's")
    for case in cases:
        own = found[case, "mycc"]
        peers = {p: r["time_ms"] for (c, p), r in found.items() if c == case and p != "mycc" and "time_ms" in r}
        if "time_ms" not in own:
            print(f"{case[0]:<12} {case[1]:<5}   failed")
            good = False
            continue
        best = min(peers.values(), default=float("nan"))
        ratio, accuracy = best / own["time_ms"], own["error_"] / own["eager_error"]
        ratios.append(ratio)
        good &= accuracy <= FACTOR and own["same_bits"] and not ratio < 1
        print(f"{case[0]:<12} {case[1]:<5} {own['time_ms']:9.4f} {best:12.4f} {ratio:9.2f} {accuracy:9.2f}")
    if ratios:
        print(f"geometric mean of the ratios: {statistics.geometric_mean(ratios):.2f}")
    if options.json:
        rows = [{"model": c[0], "batch": c[1], "peer": p, **r} for (c, p), r in found.items()]
        rows += [{"model": c[0], "batch": c[1], "peer": "build", **r} for c, r in built.items()]
        Path(options.json).write_text(json.dumps(rows, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="inductor_"))
    sys.exit(main())

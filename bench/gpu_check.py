"""Whole models on the GPUs of this machine: packages built, run, compared with float64 and timed beside torch.

    python bench/gpu_check.py                                        # bert, llama, resnet50, vit at batch 1 and 32
    python bench/gpu_check.py --models all --batches 1 --peers graph
    python bench/gpu_check.py --dynamic --models all --batches 4 --peers ""      # dynamic batch and sequence
    python bench/gpu_check.py --devices 0,1 --jobs 32 --deadlines 300,450 --json rows.json

Needs torch with CUDA and transformers beside mycc; no network. Packages that lie in --folder are used as they are.

A process for every package and peer (bench/gpu_worker.py) makes itself ready, all side by side. At a deadline, or when
all are ready, those that still compile are stopped, and the others are timed, on each device one after another with
nothing beside it: the package and the peers of a case in turns, three rounds. Then those that compile go on until the
next deadline, and their cases are timed again. Rows are printed, and --json is written, when a case is done. A row says
the error against float64 (weights as stored) beside eager's in the same dtype, the time of a call alone from the host,
and the time of a call among many on the device. The exit code is 1 when a package is wrong or slower than a peer.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from gpu_processes import TORCH_CACHE, Worker, launched
from gpu_worker import HERE, Task

DEFAULT_MODELS = ("bert", "llama", "resnet50", "vit")
SEQUENCE = 128
#: error of a package, as a multiple of eager's
FACTOR = 1.2
PEERS = "graph,compile:reduce-overhead,compile:max-autotune"
ROUNDS = 3
#: what torch's tuner found, in its cache folder; without the kernels themselves
TUNED = ("**/*.best_config", "*/cache/*")


def main() -> int:
    options = _options()
    folder = Path(options.folder or tempfile.mkdtemp(prefix="gpu_check_"))
    folder.mkdir(parents=True, exist_ok=True)
    workers = [Worker(task) for task in _tasks(options, folder)]
    begin = time.monotonic()
    with _tuning(options.tuning), launched(workers, options.jobs, options.worker, _environment(options)) as pending:
        for deadline in map(float, options.deadlines.split(",")):
            pending.wait(begin + deadline - time.monotonic())
            print(
                f"{time.monotonic() - begin:.0f} s: {sum(w.ready for w in workers)} of {len(workers)} ready", flush=True
            )
            with pending.paused() as ready:
                _measure(workers, ready, options)
            if pending.done:
                break
    for worker in workers:
        if worker.failure:
            print(f"{worker.label} failed: {worker.failure}")
    return _report(workers)


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
    parser.add_argument(
        "--peers",
        default=PEERS,
        help="eager, graph, compile[:MODE], package:DIR (packages of another version), with commas between",
    )
    parser.add_argument("--set", action="append", default=[], help="an option of mycc.compile, as in schedule.fuse=no")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--jobs", type=int, default=8, help="processes that become ready at once")
    parser.add_argument("--devices", default="0", help="numbers of the GPUs over which the cases are spread")
    parser.add_argument("--deadlines", default="540", help="seconds from the start at which what is ready is timed")
    parser.add_argument(
        "--threads", type=int, help="of each torch.compile; by default all cores over --jobs, at least 4"
    )
    parser.add_argument("--folder", help="where packages go; those that are there are used again")
    parser.add_argument(
        "--tuning", type=Path, help="a .tar.gz of what torch's tuner found: read, if there, and written"
    )
    parser.add_argument("--json", help="a file for all figures")
    parser.add_argument("--profile", action="store_true", help="print the time of every kernel of each package")
    parser.add_argument("--worker", default=str(HERE / "gpu_worker.py"), help=argparse.SUPPRESS)
    return parser.parse_args()


def _tasks(options: argparse.Namespace, folder: Path) -> Iterator[Task]:
    """One for every package and peer, packages first; the cases of a device are of all sizes."""
    batches = [int(batch) for batch in options.batches.split(",")]
    devices = [int(device) for device in options.devices.split(",")]
    cases = [(model, batch) for model in _models(options.models) for batch in batches]
    for peer in ("mycc", *filter(None, options.peers.split(","))):
        for i, (model, batch) in enumerate(cases):
            yield Task(
                peer, model, batch, options.sequence, options.dtype, options.dynamic, options.mode, options.target,
                tuple(options.set), str(folder), devices[(i + i // len(devices)) % len(devices)],
            )  # fmt: skip


def _models(names: str) -> list[str]:
    if names != "all":
        return names.split(",")
    from zoo import MODELS

    return list(MODELS)


def _environment(options: argparse.Namespace) -> dict[str, str]:
    threads = options.threads or max(4, (os.cpu_count() or 4) // options.jobs)
    return {"TORCHINDUCTOR_COMPILE_THREADS": str(threads), **os.environ}


@contextmanager
def _tuning(archive: Path | None) -> Iterator[None]:
    """With what an earlier run found for torch.compile; what this one finds is kept for the next."""
    cache = TORCH_CACHE
    if archive and archive.exists():
        with tarfile.open(archive) as tar:
            tar.extractall(cache, filter="data")
    try:
        yield
    finally:
        if archive:
            archive.parent.mkdir(parents=True, exist_ok=True)
            with tarfile.open(archive, "w:gz") as tar:
                for path in sorted({path for pattern in TUNED for path in cache.glob(pattern) if path.is_file()}):
                    tar.add(path, path.relative_to(cache))


def _measure(workers: list[Worker], ready: list[Worker], options: argparse.Namespace) -> None:
    """Times the cases in which something has become ready, the devices side by side."""
    cases: dict[tuple[str, int], list[Worker]] = {}
    for worker in ready:
        cases.setdefault(worker.case, []).append(worker)
    output = threading.Lock()

    def device(gpu: int) -> None:
        for case in cases.values():
            if case[0].task.gpu == gpu and not all(worker.times for worker in case):
                _turns(case, options.profile)
                with output:
                    print("\n".join(line for worker in case for line in _rows(worker)), flush=True)
                    _write(workers, options.json)

    devices = {worker.task.gpu for worker in ready}
    with ThreadPoolExecutor(max(len(devices), 1)) as pool:
        list(pool.map(device, devices))


def _turns(case: list[Worker], profile: bool) -> None:
    for _ in range(ROUNDS):
        for worker in case:
            if times := worker.ask("time"):
                worker.times.append((times["call_ms"], times["time_ms"]))
    if profile and case[0].task.peer == "mycc":
        case[0].figures.update(case[0].ask("profile"))


def _rows(worker: Worker) -> list[str]:
    """The lines of a package or a peer."""
    if not worker.times:
        return [f"{worker.label} failed: {worker.failure}"]
    figures = worker.figures
    built = f"  built in {figures['build_s']:.0f} s" if "build_s" in figures else ""
    built += f"  compiled in {figures['compile_s']:.0f} s" if "compile_s" in figures else ""
    bits = "" if figures["same_bits"] else "  DIFFERENT BITS"
    line = (
        f"{worker.label} {worker.time_ms:8.4f} ms  alone {worker.call_ms:8.4f} ms  "
        f"error {figures['error_']:.2e} (eager {figures['eager_error']:.2e}){bits}{built}"
    )
    kernels = figures.get("kernels", [])
    return [line, *(f"    {microseconds:9.1f} us  {count:3} x {name}" for name, count, microseconds in kernels)]


def _write(workers: list[Worker], path: str | None) -> None:
    """All figures so far."""
    if not path:
        return
    rows = []
    for worker in workers:
        row = {"model": worker.task.model, "batch": worker.task.batch, "peer": worker.task.peer, **worker.figures}
        if worker.times:
            row |= {"time_ms": worker.time_ms, "call_ms": worker.call_ms, "rounds": worker.times}
        rows.append(row | ({"error": worker.failure} if worker.failure else {}))
    Path(path + ".new").write_text(json.dumps(rows, indent=1))
    os.replace(path + ".new", path)


def _report(workers: list[Worker]) -> int:
    """The ratios to the best peer, on the device and from the host, and whether all is well."""
    good, ratios = True, []
    print(f"\n{'model':<12} batch   mycc ms   best peer ms  ratio  alone  error / eager's  best peer")
    for own in (w for w in workers if w.task.peer == "mycc"):
        label = f"{own.task.model:<12} {own.task.batch:<5}"
        peers = [w for w in workers if w.case == own.case and w is not own and w.times]
        if not own.times:
            print(f"{label}   failed")
            good = False
            continue
        best = min(peers, key=lambda w: w.time_ms, default=None)
        ratio = best.time_ms / own.time_ms if best else float("nan")
        alone = min((w.call_ms for w in peers), default=float("nan")) / own.call_ms
        accuracy = own.figures["error_"] / own.figures["eager_error"]
        ratios.append(ratio)
        good &= accuracy <= FACTOR and own.figures["same_bits"] and not ratio < 1
        print(
            f"{label} {own.time_ms:9.4f} {best.time_ms if best else float('nan'):12.4f} {ratio:9.2f} {alone:6.2f} "
            f"{accuracy:9.2f}        {best.task.peer if best else ''}"
        )
    if ratios:
        print(f"geometric mean of the ratios: {statistics.geometric_mean(ratios):.2f}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

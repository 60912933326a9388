"""`backend="mycc"` beside torch.compile's own backend: a call of a small graph, and the start of a process whose graphs
are in the caches.

    python bench/backend_calls.py [--rounds 40] [--starts 5] [--threads 1]

The graph is an MLP of 8 x 8 matrices, so that a call is what the backend does around its kernels. Calls and starts take
turns, medians are compared; the line says the machine's load. A start is what a program waits for after `import torch`:
from torch.compile to the first result, in training with its backward; in seconds that the processor worked, and by the
clock. Goals: a call at most 1.5 times inductor's, a start at most 0.5 times. Beside both starts stands the one of
torch's backend "eager", which compiles nothing: no backend can start sooner than TorchDynamo itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BACKENDS = ("mycc", "inductor")
STARTED = (*BACKENDS, "eager")
CALL, START = 1.5, 0.5
CALLS = 200  # of a round


def small() -> tuple[Any, Any]:
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    return model, torch.randn(2, 8)


def runs_of(backend: str) -> dict[str, Callable[[], Any]]:
    """A call for inference and one with its backward."""
    import torch

    model, x = small()
    function = torch.compile(model, backend=backend)

    def inference() -> Any:
        with torch.no_grad():
            return function(x)

    return {"inference": inference, "training": lambda: function(x).sum().backward()}


def start(backend: str, case: str) -> None:
    """What a process of its own prints: seconds of the processor and of the clock to the first result."""
    import torch  # noqa: F401  a program that is compiled has it anyway

    worked, began = time.process_time(), time.perf_counter()
    runs_of(backend)[case]()
    print(json.dumps([time.process_time() - worked, time.perf_counter() - began]))


def microseconds(run: Callable[[], Any]) -> float:
    spent = []
    for _ in range(CALLS):
        began = time.perf_counter_ns()
        run()
        spent.append(time.perf_counter_ns() - began)
    return statistics.median(spent) / 1e3


def measure_calls(rounds: int) -> None:
    runs = {backend: runs_of(backend) for backend in BACKENDS}
    for case in ("inference", "training"):
        found: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
        for backend in BACKENDS:
            microseconds(runs[backend][case])
        for _ in range(rounds):
            for backend in BACKENDS:
                found[backend].append(microseconds(runs[backend][case]))
        ratio = statistics.median(a / b for a, b in zip(*found.values(), strict=True))
        times = "  ".join(f"{backend} {statistics.median(own):7.1f} us" for backend, own in found.items())
        report(f"call {case:9}  {times}", ratio, CALL)


def measure_starts(count: int, folder: Path) -> None:
    environment = {**os.environ, "MYCC_CACHE_DIR": str(folder / "mycc"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "own")}
    for case in ("inference", "training"):
        found: dict[str, list[list[float]]] = {backend: [] for backend in STARTED}
        for turn in range(count + 1):
            for backend in STARTED:
                command = [sys.executable, __file__, "--start", backend, case]
                said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
                if turn:  # the first one fills the caches
                    found[backend].append(json.loads(said.splitlines()[-1]))
        for i, what in enumerate(("processor", "clock")):
            own = {backend: statistics.median(row[i] for row in rows) for backend, rows in found.items()}
            times = "  ".join(f"{backend} {spent:6.2f} s" for backend, spent in own.items())
            report(f"start {case:9} {what:9}  {times}", own["mycc"] / own["inductor"], START)


def report(text: str, ratio: float, goal: float) -> None:
    met = "met" if ratio <= goal else "missed"
    print(f"{text}  {ratio:5.2f} x, goal {goal}: {met}  (load {os.getloadavg()[0]:.1f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--start", nargs=2, metavar=("BACKEND", "CASE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.start:
        start(*options.start)
        return
    import torch

    torch.set_num_threads(options.threads)
    if options.rounds:
        measure_calls(options.rounds)
    if options.starts:
        with tempfile.TemporaryDirectory(prefix="mycc-backend-") as folder:
            measure_starts(options.starts, Path(folder))


if __name__ == "__main__":
    main()

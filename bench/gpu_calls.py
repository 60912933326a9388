"""Host time of a call on a GPU, from Python: how long the caller is busy, and how long until the result is there.

    python bench/gpu_calls.py [OUT.json]

Needs a GPU and torch. Beside the packages stands what no caller can avoid: torch.empty for the output, and eager.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import torch
from torch import nn

CALLS, ROUNDS = 200, 15


class Stack(nn.Module):
    """As many products as asked for, each of 64 x 64."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(layers)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def host_us(call: Callable[[], Any]) -> float:
    """Microseconds that the caller is busy with a call; the device is never far behind."""
    for _ in range(20):
        call()
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - start) / CALLS)
    torch.cuda.synchronize()
    return 1e6 * statistics.median(times)


def result_us(call: Callable[[], Any]) -> float:
    """Microseconds from a call to its result on the device."""
    times = []
    for _ in range(ROUNDS * 20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times)


def driver_us() -> dict[str, float]:
    """Microseconds of the driver's functions that a call uses, through ctypes (the first row is ctypes itself)."""
    cuda = ctypes.CDLL("libcuda.so.1")
    event, number, long = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_ulonglong()
    cuda.cuEventCreate(ctypes.byref(event), 2)
    stream = ctypes.c_void_p(None)
    calls: dict[str, Callable[[], Any]] = {
        "cuDriverGetVersion": lambda: cuda.cuDriverGetVersion(ctypes.byref(number)),
        "cuCtxGetCurrent": lambda: cuda.cuCtxGetCurrent(ctypes.byref(event_of)),
        "cuStreamIsCapturing": lambda: cuda.cuStreamIsCapturing(stream, ctypes.byref(number)),
        "cuStreamGetId": lambda: cuda.cuStreamGetId(stream, ctypes.byref(long)),
        "cuEventRecord": lambda: cuda.cuEventRecord(event, stream),
        "cuEventQuery": lambda: cuda.cuEventQuery(event),
    }
    event_of = ctypes.c_void_p()
    return {name: host_us(call) for name, call in calls.items()}


def main() -> None:
    end = time.perf_counter() + 1
    spin = torch.randn(64, 64, device="cuda")
    while time.perf_counter() < end:  # until the clocks are up
        spin = spin @ spin
    x = torch.randn(4, 64, device="cuda")
    other = torch.randn(4, 64, device="cuda")
    rows: dict[str, Any] = {f"driver {name}": {"host_us": us} for name, us in driver_us().items()}
    rows |= {
        "torch.empty": {"host_us": host_us(lambda: torch.empty(4, 64, device="cuda"))},
        "x + 1": {"host_us": host_us(lambda: x + 1), "result_us": result_us(lambda: x + 1)},
    }
    for layers in (1, 2, 3, 4, 16, 60):
        module = Stack(layers).eval()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "stack.pkg"
            mycc.compile(module, (torch.randn(4, 64),), out=path, target="cuda", verify=False)
            for launch in ("auto", "direct", "graph"):
                model = mycc.load(path, launch=launch)
                turn = [x, other]

                def alternating(model: Any = model, turn: list[torch.Tensor] = turn) -> Any:
                    turn.reverse()
                    return model(turn[0])

                def steady(model: Any = model) -> Any:
                    return model(x)

                name = f"{layers} layers, {len(model.kernels)} launches, {launch}"
                flat = model.run_flat
                rows[name] = {
                    "host_us": host_us(steady),
                    "flat_us": host_us(lambda flat=flat: flat((x,))),
                    "other_input_us": host_us(alternating),
                    "result_us": result_us(steady),
                }
        moved = module.cuda()
        with torch.inference_mode():
            rows[f"{layers} layers, eager"] = {
                "host_us": host_us(lambda moved=moved: moved(x)),
                "result_us": result_us(lambda moved=moved: moved(x)),
            }
    for name, row in rows.items():
        print(f"{name:36}" + "  ".join(f"{key} {value:7.2f}" for key, value in row.items()), flush=True)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

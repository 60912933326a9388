"""Kernels over rows on a GPU, on large inputs: bytes moved in a second beside a copy's, in one run.

    python bench/gpu_rows.py [--json FILE] [--only NAME,...]

Each kernel is generated, compiled and launched as a package would have it, compared with float64, and timed in a CUDA
graph. Its bytes are those of its input and its output, once each. Needs torch and triton, and mycc importable.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from gpu_kernels import CAPABILITY, Runner, alone, compile_all, timed
from mycc.compiler.capture.export import CaptureRequest, capture_request
from mycc.compiler.codegen.cuda.generate import DeviceCode, generate_device
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.dtypes import to_torch
from mycc.compiler.lower import lower
from mycc.compiler.machine.gpu import device_of
from mycc.compiler.schedule import Schedule, schedule
from mycc.compiler.schedule.schedule import DEFAULTS
from torch import nn

#: error against float64, relative in the norm, by element type
TOLERANCE = {torch.bfloat16: 5e-3, torch.float32: 2e-6}
#: part of a copy's bandwidth that is good enough
GOOD = 0.85
#: of a kernel in a graph, whose own start takes some microseconds
LAUNCHES = 8


@dataclass(frozen=True)
class Case:
    """A function of one tensor of `shape`."""

    name: str
    function: Callable[[torch.Tensor], torch.Tensor]
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.bfloat16


def cases() -> list[Case]:
    """Norms, softmax and sums at short, usual and long rows, and along the other dimension."""
    bf16, f32 = torch.bfloat16, torch.float32
    wide, long, short, many = (16384, 4096), (2048, 50257), (1048576, 64), (131072, 768)
    found = [
        Case(f"{name} {'x'.join(map(str, shape))} {str(dtype)[6:]}", function, shape, dtype)
        for name, function in (
            ("softmax", lambda x: torch.softmax(x, -1)),
            ("layer_norm", lambda x: F.layer_norm(x, x.shape[-1:])),
            ("rms_norm", lambda x: F.rms_norm(x, x.shape[-1:])),
            ("sum", lambda x: x.sum(-1)),
            ("log_softmax", lambda x: torch.log_softmax(x, -1)),
            ("argmax", lambda x: x.argmax(-1)),
        )
        for shape, dtype in ((wide, bf16), (wide, f32), (many, bf16), (long, bf16), (short, bf16))
    ]
    return [
        *found,
        *(Case(f"argmax {n}", lambda x: x.argmax(-1), (1 << 26 >> n.bit_length() - 1, n)) for n in (128, 256, 512)),
        Case("sum of all", lambda x: x.sum(), wide),
        Case("sum of columns", lambda x: x.sum(0), wide),
        Case("mean of pixels", lambda x: x.mean((1, 2)), (256, 56, 56, 256)),
        Case("gelu", lambda x: F.gelu(x), wide),
        Case("add and relu", lambda x: torch.relu(x + 1), wide),
        Case("transpose", lambda x: x.mT.contiguous(), (16384, 4096)),
        Case("max of columns", lambda x: x.amax(0), wide),
        Case("var", lambda x: x.var(-1), wide),
    ]


class _Of(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def code_of(case: Case) -> tuple[Schedule, DeviceCode]:
    """The launches of a case."""
    example = torch.empty(case.shape, dtype=case.dtype)
    graph = run_graph_passes(capture_request(CaptureRequest(_Of(case.function), (example,), {}, None)))
    planned = schedule(lower(graph, None, "cuda").program, DEFAULTS, device_of(CAPABILITY))
    return planned, generate_device([graph], [planned], device_of(CAPABILITY))


def measure(case: Case, planned: Schedule, code: DeviceCode) -> dict[str, object]:
    """Microseconds and bytes of a case, and its error."""
    generator = torch.Generator(device="cuda").manual_seed(1)
    x = torch.randn(case.shape, generator=generator, device="cuda", dtype=torch.float32).to(case.dtype)
    memory: dict[Buffer, torch.Tensor] = {planned.program.inputs[0]: x.reshape(-1)}
    (out,) = planned.program.outputs
    for launch in code.entries[0].launches:
        for arg in launch.args:
            buffer = getattr(arg, "buffer", None)
            if buffer is not None and buffer not in memory:
                size, dtype = buffer.size.evaluate({}), to_torch(buffer.dtype)
                memory[buffer] = torch.zeros(max(size, 1), dtype=dtype, device="cuda")
    shared = {
        "work": torch.empty(64 << 20, device="cuda"),
        "zeros": torch.zeros(1 << 16, dtype=torch.int32, device="cuda"),
    }
    runner = Runner(code.entries[0].launches, memory, shared)
    runner()
    wanted = case.function(x.double()).reshape(-1).double()
    error = float((memory[out].double() - wanted).norm() / wanted.norm())
    moved = x.nbytes + memory[out].nbytes
    us = timed([runner] * LAUNCHES)
    return {"case": case.name, "us": us, "bytes": moved, "error": error, "launches": len(code.entries[0].launches)}


def copy_bandwidth() -> float:
    """Bytes in a microsecond, read and written, of a large copy."""
    source = torch.randn(1 << 28, device="cuda").to(torch.bfloat16)
    target = torch.empty_like(source)
    start, end = torch.cuda.Event(True), torch.cuda.Event(True)
    times = []
    for _ in range(20):
        start.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return 2 * source.nbytes / min(times)


def _measure_all(made: Mapping[Case, tuple[Schedule, DeviceCode]]) -> tuple[list[dict[str, object]], bool]:
    """All cases, and whether all are right and fast enough."""
    roof, rows, good = copy_bandwidth(), [], True
    print(f"copy: {roof / 1e6:.2f} TB/s", flush=True)
    for case, (planned, code) in made.items():
        row = measure(case, planned, code)
        part = row["bytes"] / row["us"] / roof  # type: ignore[operator]
        rows.append(row | {"part": part})
        right = row["error"] <= TOLERANCE[case.dtype]  # type: ignore[operator]
        good &= right and part >= GOOD
        print(f"{case.name:34} {row['us']:9.1f} us {100 * part:5.0f} % of a copy  error {row['error']:.1e}", flush=True)
    return rows, good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    import triton

    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    wanted = tuple(options.only.split(","))
    made = {case: code_of(case) for case in cases() if case.name.startswith(wanted)}
    failures = compile_all({k: None for _, code in made.values() for k in code.kernels}, os.cpu_count() or 2)
    print(f"{len(failures)} kernels did not compile {failures[:2]}", flush=True)
    with alone():
        rows, good = _measure_all(made)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""The host program of a GPU target: a golden, and what C++ thinks of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from mycc.compiler.codegen.cuda.kernel import (
    BufferArg,
    KernelParam,
    Launch,
    LaunchArg,
    SizeArg,
    StatusArg,
    TritonKernel,
    WorkArg,
    ZerosArg,
)
from mycc.compiler.codegen.host.cuda_program import CompiledKernel, CudaEntrySource, pack_images, render_cuda_program
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.index import ONE, Index, Size, as_index, of
from mycc.compiler.ir.nodes import Origin
from mycc.compiler.schedule.memory.plan import Lifetime, MemoryPlan
from mycc.runtime import __file__ as runtime_file
from torch import nn

from ..helpers.programs import scheduled

GEMM = TritonKernel(
    "gemm_f32",
    "",
    tuple(KernelParam(n, t)
          for n, t in (("x", "*fp32"), ("w", "*fp32"), ("y", "*fp32"), ("m", "i32"), ("c", "*i32"), ("p", "*fp32"))),
    pdl=True,
)  # fmt: skip
GATHER = TritonKernel(
    "gather_f32",
    "",
    tuple(KernelParam(n, t) for n, t in (("y", "*fp32"), ("z", "*fp32"), ("n", "i64"), ("s", "*i32"), ("l", "i32"))),
)
KERNELS = (
    CompiledKernel("gemm_f32", b"cubin" * 20, 128, 49152, 256, 128),
    CompiledKernel("gather_f32", b"ptx\0", 64, 0),
)


def program() -> str:
    """Two launches over the schedule of a linear layer and a softmax, with a dynamic number of rows."""
    linear = nn.Linear(40, 24)
    s = scheduled(lambda up, a: torch.softmax(up(a), -1), torch.randn(4, 6, 40), parts=(linear,), dynamic=True)
    (x,), (y,), rows = s.program.inputs, s.program.outputs, of(Size(s.program.sizes[0]))
    const = next(b for node in s.program.nodes for b in node.reads() if b.kind == "const")
    temp = s.memory.lifetimes[0]
    work = Buffer("work", "f32", rows * 7, "work")
    memory = MemoryPlan((temp, Lifetime(work, 0, 1)), None, 0, 0)
    origin = Origin(("aten.linear",), ("model.py:3",))
    launches = (
        Launch(GEMM, (rows * 3, as_index(2), ONE), (
            BufferArg(x, rows * 24), BufferArg(const, as_index(8)), BufferArg(temp.buffer), SizeArg(rows * 6),
            ZerosArg(rows * 4), WorkArg(rows * 28),
        ), origin),
        Launch(GATHER, (rows, ONE, ONE), (
            BufferArg(temp.buffer), BufferArg(y), SizeArg(rows), StatusArg(), LaunchArg(),
        ), Origin(("aten.embedding",), ('mo"del.py:4',))),
    )  # fmt: skip
    shapes: tuple[tuple[Index, ...], ...] = ((rows, as_index(6), as_index(24)),)
    schedule = type(s)(**{**s.__dict__, "memory": memory})
    source = CudaEntrySource(schedule, launches, (0, 1), ((rows, as_index(6), as_index(40)),), shapes)
    return render_cuda_program([source], KERNELS, "cuda:sm_90", {const: 4096}, (4096, 8192))


def test_host_program(golden: Callable[[str], None]) -> None:
    golden(program())


@pytest.mark.parametrize("warnings", [("-Wall", "-Wextra", "-Werror")])
def test_the_program_is_plain_c_plus_plus(tmp_path: Path, warnings: tuple[str, ...]) -> None:
    (tmp_path / "program.cpp").write_text(program())
    root = Path(runtime_file).parent.parent
    include = [f"-I{root / 'runtime' / 'include'}", f"-I{root}"]
    command = ["g++", "-std=c++17", "-fsyntax-only", *warnings, *include, str(tmp_path / "program.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_equal_images_are_packed_once() -> None:
    packed, offsets = pack_images([*KERNELS, CompiledKernel("again", b"cubin" * 20, 128, 0)])
    assert offsets == (0, 128, 0)
    assert packed[128:] == b"ptx\0"
    assert len(packed) == 132

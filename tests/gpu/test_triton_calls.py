"""Triton kernels that models call: captured without a GPU, compiled into packages for GPUs, refused on CPUs."""

from __future__ import annotations

import runpy
import zipfile
from pathlib import Path

import mycc
import pytest
import torch
import triton
import triton.language as tl
from mycc import CompileError
from mycc.compiler.capture.export import CaptureRequest, capture_request

from ..helpers.device_programs import program_of, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter
from .triton_models import MODELS, sum_kernel

X, Y = torch.randn(4, 100), torch.randn(4, 100)
ROWS = {0: torch.export.Dim("rows", min=2, max=64)}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", MODELS)
def test_as_it_says(name: str, dynamic: bool, interpreter: TritonInterpreter) -> None:
    model, meaning = MODELS[name]
    request = CaptureRequest(Call1(model), (X, Y), {}, ((ROWS, ROWS),) if dynamic else None)
    program = program_of(capture_request(request))
    memory: dict[object, torch.Tensor] = {}
    x, y = (torch.randn(7, 100), torch.randn(7, 100)) if dynamic else (X, Y)
    (found,) = run_interpreted(program, interpreter, (x.clone(), y.clone()), memory)  # type: ignore[arg-type]
    result, *changed = meaning(x, y)
    torch.testing.assert_close(found, result)
    for wanted in changed:
        torch.testing.assert_close(memory[program.schedule.program.inputs[0].root].reshape(wanted.shape), wanted)


def test_a_fresh_result_is_not_copied_before() -> None:
    program = program_of(capture_request(CaptureRequest(Call1(MODELS["plain"][0]), (X, Y), {}, None)))
    names = [launch.kernel.symbol for launch in program.code.entries[0].launches]
    assert len(names) == 2
    assert names[0].startswith("add_kernel")
    assert program.code.kernels[0].num_warps == 2


def test_the_first_configuration_is_taken() -> None:
    program = program_of(capture_request(CaptureRequest(Call1(MODELS["tuned"][0]), (X, Y), {}, None)))
    (kernel,) = (k for k in program.code.kernels if dict(k.constants))
    assert dict(kernel.constants) == {"BLOCK": 128, "DTYPE": ("tl", "float32")}
    assert kernel.num_warps == 4
    assert "SHIFT = tl.constexpr(3)" in kernel.source
    assert "def twice(x):" in kernel.source


def test_a_package(tmp_path: Path) -> None:
    entries = {name: (Call1(model), (X, Y)) for name, (model, _) in MODELS.items()}
    path = mycc.compile(entries, out=tmp_path / "kernels.pkg", target="cuda:sm_90,cuda:sm_80")
    names = zipfile.ZipFile(path).namelist()
    assert any("src/cuda-sm_90/scale_kernel" in name for name in names)
    program = zipfile.ZipFile(path).read("src/cuda-sm_90/program.cpp").decode()
    assert ", 2.5f, true)" in program


def test_the_example(interpreter: TritonInterpreter) -> None:
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "triton_kernel.py"))
    model, shapes = example["model"], example["dynamic_shapes"]
    program = program_of(capture_request(CaptureRequest(model, example["example_inputs"], {}, shapes)))
    x = torch.randn(5, 256)
    left, right = model.up(x).chunk(2, -1)
    wanted = model.down(torch.nn.functional.silu(left) * right)
    (found,) = run_interpreted(program, interpreter, (x,))
    torch.testing.assert_close(found, wanted.detach(), rtol=1e-4, atol=1e-5)


def test_cpus_refuse_it_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        mycc.compile(Call1(MODELS["plain"][0]), (X, Y), out=tmp_path / "model.pkg", target="cpu")
    text = str(caught.value)
    assert "the Triton kernel add_kernel runs on GPUs alone" in text
    assert "triton_models.py:" in text


TABLE = [1, 2]


@triton.jit
def table_kernel(x, n, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), len(TABLE))


def _gap(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty(4)
    part = x[:, :50]
    sum_kernel[(4,)](part, out, 50, part.stride(0), part.stride(1), BLOCK=64)
    return out


def _outside(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty(64)
    table_kernel[(1,)](out, 64, BLOCK=64)
    return out


@pytest.mark.parametrize(
    ("model", "words"),
    [(_gap, "leaves out parts of its memory"), (_outside, "uses TABLE, a list")],
)
def test_what_is_refused(model: object, words: str) -> None:
    with pytest.raises(CompileError) as caught:
        program_of(capture_request(CaptureRequest(Call1(model), (X, Y), {}, None)))  # type: ignore[arg-type]
    assert words in str(caught.value)
    assert "test_triton_calls.py:" in str(caught.value)

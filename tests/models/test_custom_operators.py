"""Operators of the user's own: lowerings, C++ kernels, Triton kernels, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc.compiler.lower.core.builder import call, number
from torch.export import Dim

from ..helpers.command_server import CommandServer
from ..helpers.device_programs import device_program, run_interpreted
from ..helpers.scripts import load_script
from ..helpers.triton_interpreter import TritonInterpreter

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "custom_op"

PAIR = """
#include "mycc/custom.h"

// (weight * x[i][j] + y[j][i], sum of x): of views with any strides
extern "C" void pair_kernel(const mycc_host *host, const mycc_tensor *outputs, const mycc_tensor *inputs,
                            const mycc_number *numbers) {
  const mycc_tensor &x = inputs[0], &y = inputs[1];
  double *sum = mycc::data<double>(outputs[1]);
  if (numbers[1].integer < 0) return mycc::fail(host, "sign of pair must not be negative");
  *sum = 0;
  for (int64_t i = 0; i < x.shape[0]; ++i)
    for (int64_t j = 0; j < x.shape[1]; ++j) {
      const float own = mycc::data<const float>(x)[i * x.strides[0] + j * x.strides[1]];
      const float other = mycc::data<const float>(y)[j * y.strides[0] + i * y.strides[1]];
      mycc::data<float>(outputs[0])[i * x.shape[1] + j] = static_cast<float>(numbers[0].real) * own + other;
      *sum += own;
    }
}
"""


@torch.library.custom_op("mycctest::pair", mutates_args=())
def pair(x: torch.Tensor, y: torch.Tensor, weight: float, sign: int) -> tuple[torch.Tensor, torch.Tensor]:
    return weight * x + y.mT, x.double().sum()


@pair.register_fake
def _(x: torch.Tensor, y: torch.Tensor, weight: float, sign: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x, memory_format=torch.contiguous_format), x.new_empty((), dtype=torch.float64)


@torch.library.custom_op("mycctest::badly_lowered", mutates_args=())
def badly_lowered(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@badly_lowered.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("mycctest::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@unknown.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    sys.path.insert(0, str(EXAMPLE))
    module = load_script(EXAMPLE / "soft_clip.py")
    sys.path.remove(str(EXAMPLE))
    return module


def test_the_example_as_a_command_and_without_torch(server: CommandServer, tmp_path: Path) -> None:
    done = server.mycc("compile", EXAMPLE / "soft_clip.py", "--out", "clip.pkg", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    x = np.random.default_rng(1).standard_normal((7, 16), np.float32)
    np.save(tmp_path / "x.npy", x)
    code = (
        f"import sys; sys.path.insert(0, {str(HERE)!r}); import without_torch_hook, mycc, numpy as np\n"
        "np.save('y.npy', mycc.load('clip.pkg')(np.load('x.npy')))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    y = np.load(tmp_path / "y.npy")
    assert y.shape == (7, 16)
    assert (np.diff(y, axis=1) >= 0).all()
    assert (np.abs(y) <= 0.75).all()
    assert (y >= -0.5).all()


def test_the_example_on_a_gpu(example: ModuleType, interpreter: TritonInterpreter) -> None:
    """The lowering is fused into the product; the Triton kernel runs as it was written."""
    program = device_program(example.model, example.example_inputs, example.dynamic_shapes)
    assert len(program.code.kernels) == 2
    assert "def running_best_f32(x, y, columns, START" in program.code.kernels[1].source
    x = torch.randn(5, 16)
    (found,) = run_interpreted(program, interpreter, (x,))
    torch.testing.assert_close(found, example.model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("strided", [False, True])
def test_a_cpp_kernel(strided: bool, tmp_path: Path) -> None:
    mycc.cpp_kernel("mycctest::pair", PAIR, "pair_kernel", strided=strided)

    def model(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        a, total = pair(x[:, 1:], (y + 1)[:, 1:].mT, 0.5, 1)
        return a - 1, total

    rows = {"x": {0: Dim("rows", max=50)}}
    loaded = mycc.load(mycc.compile(model, (torch.randn(3, 5),), out=tmp_path / "pair.pkg", dynamic_shapes=rows))
    for n in (3, 1, 40):
        x = torch.randn(n, 5)
        for found, wanted in zip(loaded(x), model(x), strict=True):
            torch.testing.assert_close(found, wanted)


def test_a_kernel_that_fails(tmp_path: Path) -> None:
    mycc.cpp_kernel("mycctest::pair", PAIR, "pair_kernel")
    path = tmp_path / "fails.pkg"
    mycc.compile(lambda x: pair(x, x.mT, 1.0, -1), (torch.ones(2, 2),), out=path, verify=False)
    with pytest.raises(mycc.RunError, match="sign of pair must not be negative"):
        mycc.load(path)(torch.ones(2, 2))


def test_a_wrong_kernel_is_no_package(tmp_path: Path) -> None:
    mycc.cpp_kernel("mycctest::pair", PAIR.replace("+ other", "- other"), "pair_kernel")
    with pytest.raises(mycc.CompileError, match="not as accurate as eager"):
        mycc.compile(lambda x: pair(x, x.mT, 1.0, 1), (torch.rand(2, 2),), out=tmp_path / "wrong.pkg")
    assert not list(tmp_path.glob("*.pkg"))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda ctx, x: None, "has to return 1 Tensor, not NoneType"),
        (lambda ctx, x: (x, x), "has to return 1 Tensor, not Tensor, Tensor"),
        (lambda ctx, x: x.nothing, r"raised AttributeError: .*nothing.* \(test_custom_operators.py:\d+ "),
        (lambda ctx, y, z: y, "raised TypeError: .* missing 1 required"),
        (
            lambda ctx, x: ctx.builder.map((x.shape[0],), "f32", lambda i: number(1.0, "f32")),
            r"gives a result of shape \[2\], the operator's fake implementation says \[2, 2\]",
        ),
        (
            lambda ctx, x: ctx.map(lambda i: call("add", x.at(i), number(1, "i64"))),
            "is no loop IR: operands of different types f32, i64",
        ),
    ],
)
def test_lowerings_that_are_wrong(function: Any, message: str, tmp_path: Path) -> None:
    mycc.lowering("mycctest::badly_lowered")(function)

    def model(x: torch.Tensor) -> torch.Tensor:
        return badly_lowered(x) + 1  # the model

    with pytest.raises(mycc.CompileError, match=rf"the lowering of mycctest::badly_lowered {message}(.|\n)*model"):
        mycc.compile(model, (torch.ones(2, 2),), out=tmp_path / "a.pkg")


def test_refusals(tmp_path: Path) -> None:
    x = (torch.ones(2, 2),)
    text = r"mycctest.unknown.default\(f32\[2, 2\]\) .*test_custom_operators.py:\d+(.|\n)*" + (
        r'@mycc.lowering\("mycctest::unknown"\)(.|\n)*docs/custom-operators.md'
    )
    with pytest.raises(mycc.CompileError, match=text):
        mycc.compile(lambda x: unknown(x), x, out=tmp_path / "a.pkg")
    with pytest.raises(mycc.CompileError, match=r'is no operator\'s name\n  It looks like "ns::op"'):
        mycc.lowering("no name")
    with pytest.raises(mycc.CompileError, match=r"does not define pair\(\)"):
        mycc.cpp_kernel("mycctest::pair", PAIR)
    mycc.cpp_kernel("mycctest::pair", PAIR.replace("*sum = 0;", "*sum = nothing;"), "pair_kernel")
    with pytest.raises(
        mycc.CompileError, match=r"custom_pair_kernel.cpp: the C\+\+ kernel of a custom operator did not"
    ):
        mycc.compile(lambda x: pair(x, x.mT, 1.0, 1), x, out=tmp_path / "b.pkg")
    foreign = PAIR.replace("#include", 'extern "C" int puts(const char *);\n#include', 1)
    mycc.cpp_kernel("mycctest::pair", foreign.replace("*sum = 0;", '*sum = puts("x");'), "pair_kernel")
    with pytest.raises(mycc.CompileError, match=r"may call libm and nothing else, not puts"):
        mycc.compile(lambda x: pair(x, x.mT, 1.0, 1), x, out=tmp_path / "c.pkg")
    with pytest.raises(mycc.CompileError, match=r"mycctest::pair has no kernel for a target of this kind \(cuda\)"):
        mycc.compile(lambda x: pair(x, x.mT, 1.0, 1), x, out=tmp_path / "d.pkg", target="cuda:sm_90")

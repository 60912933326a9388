"""Random numbers of GPU kernels: torch's CUDA generator's, through Triton's interpreter and on a device."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mycc.compiler.build.compile import BuildOptions
from mycc.compiler.build.triton_compile import compile_kernels
from mycc.compiler.machine.gpu import DEVICES
from mycc.compiler.machine.targets import parse_targets
from torch.utils import _pytree as pytree

from ..helpers.cuda_generator import CudaGenerator
from ..helpers.device_programs import RESIDENT, device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter

SEED = (7 << 40) + 42
X = torch.linspace(0.1, 0.9, 35).reshape(7, 5)
#: more than the threads of a device, so that they take several turns
MANY = RESIDENT * 256 * 5 + 77

Wanted = Callable[[CudaGenerator], torch.Tensor]
#: a function of X, and its first result, flat, from the generator
CASES: dict[str, tuple[Callable[[torch.Tensor], Any], Wanted]] = {
    "rand": (lambda x: torch.rand(3, 11), lambda g: g.unit(33)),
    "rand_half": (lambda x: torch.rand(300, dtype=torch.float16), lambda g: _below_one(g.unit(300).half())),
    "rand_double": (lambda x: torch.rand(300, dtype=torch.float64), lambda g: g.unit64(300)),
    "rand_of_many": (lambda x: torch.rand(MANY)[::50000], lambda g: g.unit(MANY)[::50000]),
    "double_of_many": (
        lambda x: torch.rand(MANY, dtype=torch.float64)[::50000],
        lambda g: g.unit64(MANY)[::50000],
    ),
    "rand_like_transposed": (lambda x: torch.rand_like(x.t()).t().contiguous(), lambda g: g.unit(35)),
    "uniform": (lambda x: x.clone().uniform_(-3, 5), lambda g: g.unit(35) * 8 - 3),
    "randn": (lambda x: torch.randn(5, 7), lambda g: g.normal(35)),
    "randn_half": (lambda x: torch.randn(500, dtype=torch.float16), lambda g: g.normal(500).half()),
    "randn_double": (lambda x: torch.randn(300, dtype=torch.float64), lambda g: g.normal64(300)),
    "randn_of_many": (lambda x: torch.randn(MANY)[::50000], lambda g: g.normal(MANY)[::50000]),
    "normal": (lambda x: x.clone().normal_(3, 0.5), lambda g: g.normal(35) * 0.5 + 3),
    "normal_tensors": (lambda x: torch.normal(x, x * 2), lambda g: g.normal(35) * (X * 2).reshape(-1) + X.reshape(-1)),
    "log_normal": (lambda x: x.clone().log_normal_(1, 0.5), lambda g: (g.normal(35) * 0.5 + 1).exp()),
    "exponential": (lambda x: x.clone().exponential_(2.5), lambda g: g.unit(35).double().log() / -2.5),
    "cauchy": (lambda x: x.clone().cauchy_(2, 3), lambda g: 2 + 3 * (np.pi * (g.unit(35).double() - 0.5)).tan()),
    "geometric": (lambda x: x.clone().geometric_(0.3), lambda g: (g.unit(35).log() / np.log(0.7)).ceil()),
    "bernoulli": (lambda x: x.clone().bernoulli_(0.3), lambda g: g.unit(35) < 0.3),
    "bernoulli_of_each": (lambda x: torch.bernoulli(x), lambda g: g.of_probabilities(35) <= X.reshape(-1)),
    "randint": (lambda x: torch.randint(-5, 1000, (40,)), lambda g: _of(g.words(40) % np.uint64(1005)) - 5),
    "randint_wide": (lambda x: torch.randint(3 << 40, (40,)), lambda g: _of(g.wide(40) % np.uint64(3 << 40))),
    "random_": (lambda x: x.to(torch.int32).random_(), lambda g: _of(g.words(35) % np.uint64(1 << 31))),
    "dropout": (lambda x: F.dropout(x, 0.4, True), lambda g: _dropped(g.dropout(35, 4), X, 0.4)),
    "dropout_in_fours": (
        lambda x: F.dropout(x[:4] + 1, 0.4, True), lambda g: _dropped(g.dropout(20, 4), X[:4] + 1, 0.4)
    ),
    "dropout_of_a_view": (lambda x: F.dropout(x[:4, :4], 0.4, True), lambda g: _dropped(g.unit(16), X[:4, :4], 0.4)),
    "dropout_of_halves": (
        lambda x: F.dropout(torch.ones(MANY // 8 * 8, dtype=torch.float16), 0.5, True)[::50000],
        lambda g: ((g.dropout(MANY // 8 * 8, 2) < 0.5).half() * 2)[::50000],
    ),
    "dropout_of_channels": (
        lambda x: F.dropout2d(x.expand(2, 3, 7, 5), 0.4, True)[:, :, 0, 0],
        lambda g: _dropped(g.unit(6), X[0, 0].expand(6), 0.4),
    ),
    "rrelu": (lambda x: F.rrelu(-x, 0.1, 0.3, True), lambda g: -X.reshape(-1) * (g.unit(35) * 0.2 + 0.1)),
    "choice": (lambda x: torch.multinomial(x, 1), lambda g: (X / -g.unit(35).log().reshape(7, 5)).argmax(1)),
    "behind_none": (lambda x: (torch.rand(x.shape[0] - 7, 3), torch.rand(5))[::-1], lambda g: g.unit(5)),
    "behind_others": (
        lambda x: (torch.rand(MANY)[:3], torch.randn(9), torch.bernoulli(x), torch.randint(9, (8,)))[::-1],
        lambda g: [g.unit(MANY), g.normal(9), g.of_probabilities(35), _of(g.words(8) % np.uint64(9))][-1],
    ),
}  # fmt: skip


def _of(words: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(words.astype(np.int64))


def _below_one(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x == 1, 0, x)


def _dropped(u: torch.Tensor, x: torch.Tensor, p: float) -> torch.Tensor:
    return (u < 1 - p) * x.reshape(-1) / (1 - p)


def check(found: Any, wanted: torch.Tensor) -> None:
    y = pytree.tree_leaves(found)[0].reshape(-1).cpu().double()
    torch.testing.assert_close(y, wanted.reshape(-1).double(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_the_generator_of_torch(name: str, interpreter: TritonInterpreter) -> None:
    function, wanted = CASES[name]
    program = device_program(Call1(function).eval(), (X,))
    found = run_interpreted(program, interpreter, (X,), seed=SEED)
    check(found, wanted(CudaGenerator(SEED, RESIDENT)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(64, 96), (3, 5, 4), (7, 5)])
def test_neighbours_share_a_block(shape: tuple[int, ...], dtype: torch.dtype, interpreter: TritonInterpreter) -> None:
    """Four elements take the words of one block where torch has their threads do so."""
    x = torch.ones(shape, dtype=dtype)
    program = device_program(Call1(lambda x: torch.native_dropout(x, 0.4, True)[1]).eval(), (x,))
    (kernel,) = program.code.kernels
    count, width = x.numel(), 16 // dtype.itemsize
    together = width if count % width == 0 else 4 if count % 4 == 0 else 1
    assert ("random_fours" in kernel.source) == (together > 1)
    (found,) = run_interpreted(program, interpreter, (x,), seed=SEED)
    wanted = CudaGenerator(SEED, RESIDENT).dropout(count, dtype.itemsize) < 0.6
    assert torch.equal(found.reshape(-1), wanted.reshape(-1))


def test_seeds_draw_other_numbers(interpreter: TritonInterpreter) -> None:
    program = device_program(Call1(lambda x: torch.randn_like(x)).eval(), (X,))
    one, two, again = (run_interpreted(program, interpreter, (X,), seed=seed)[0] for seed in (1, 2, 1))
    assert torch.equal(one, again)
    assert float((one - two).abs().min()) > 0


def test_a_permutation_has_every_number(interpreter: TritonInterpreter) -> None:
    """Its order is not torch's."""
    (found,) = run_interpreted(device_program(Call1(lambda x: torch.randperm(50)).eval(), (X,)), interpreter, (X,))
    assert sorted(found.tolist()) == list(range(50)) != found.tolist()


def test_the_host_passes_what_the_numbers_depend_on(tmp_path: Path) -> None:
    package = tmp_path / "random.pkg"
    mycc.compile(Call1(CASES["randn_of_many"][0]).eval(), (X,), out=package, target="cuda:sm_90")
    with zipfile.ZipFile(package) as members:
        program = members.read("src/cuda-sm_90/program.cpp").decode()
    assert "size_random_blocks = call->blocks;" in program
    assert "i64(size_random_call), i32(size_random_blocks)" in program


def test_the_generator_compiles(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> Any:
        return (
            torch.rand_like(x),
            torch.randn_like(x),
            torch.randn(9, dtype=torch.float64),
            x.clone().cauchy_().exponential_(),
        )

    kernels = device_program(Call1(function).eval(), (X,), device=DEVICES[90]).code.kernels
    (target,) = parse_targets("cuda:sm_90")
    built = compile_kernels(kernels, target, BuildOptions())
    assert not any(image.facts["spills"] for image in built.images)


@pytest.mark.gpu
def test_the_numbers_of_torch_on_a_device(tmp_path: Path) -> None:
    """As eager on the device draws them; normal numbers to the accuracy of the chip's sines."""
    entries = {name: (Call1(function).eval(), (X,)) for name, (function, _) in CASES.items()}
    package = mycc.load(mycc.compile(entries, out=tmp_path / "random.pkg", target="cuda"))
    with torch.device("cuda"):
        for name, (function, _) in CASES.items():
            torch.cuda.manual_seed(SEED)
            wanted = pytree.tree_leaves(function(X.cuda()))
            found = pytree.tree_leaves(package.entry(name)(X.cuda(), seed=SEED))
            for y, w in zip(found, wanted, strict=True):
                torch.testing.assert_close(y, w, rtol=2e-6, atol=2e-7, msg=lambda text, name=name: f"{name}: {text}")

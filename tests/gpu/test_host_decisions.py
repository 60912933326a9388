"""Programs whose host decides by what the device has computed: sizes that the run finds, branches and loops, as Triton
kernels through the interpreter, and the host program that launches them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.capture.export import CaptureRequest, capture_request
from mycc.compiler.capture.state import share_state
from mycc.runtime.errors import RunError
from torch.utils import _pytree as pytree

from ..helpers.cuda_generator import CudaGenerator
from ..helpers.device_programs import RESIDENT, program_of, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter
from ..models.control_models import DYNAMIC, MODELS, SIZE, make
from ..models.test_control_flow import other_inputs
from ..ops.test_data_sizes import CASES

#: of the CPU's cases: each operator once
SIZES = [name for name in CASES if "nothing" not in name and name not in ("numbers as results", "unique values")]


def tensors(values: object) -> list[torch.Tensor]:
    return [v for v in pytree.tree_leaves(values) if isinstance(v, torch.Tensor)]


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_the_run_finds(name: str, interpreter: TritonInterpreter) -> None:
    function, arguments = CASES[name]
    program = program_of(capture(Call1(function), arguments))
    found = run_interpreted(program, interpreter, [a.clone() for a in arguments])
    wanted = tensors(function(*arguments))
    assert len(found) >= len(wanted)  # sizes among the results are tensors here
    for y, r in zip(found, wanted, strict=False):
        torch.testing.assert_close(y.to(r.dtype), r, equal_nan=True)


@pytest.mark.parametrize("n", [1, 5000, 70001])
def test_places_in_a_long_mask(n: int, interpreter: TritonInterpreter) -> None:
    torch.manual_seed(n)
    rows = ({0: torch.export.Dim("rows", min=0, max=1 << 24)},)
    request = CaptureRequest(Call1(lambda x: (x.nonzero(), x[x > 0.5])), (torch.rand(40),), {}, (rows,))
    program = program_of(capture_request(request))
    x = torch.rand(n) * (torch.rand(n) > 0.3)
    places, values = run_interpreted(program, interpreter, [x])
    torch.testing.assert_close(places, x.nonzero())
    torch.testing.assert_close(values, x[x > 0.5])


def test_rows_in_order(interpreter: TritonInterpreter) -> None:
    x = torch.randint(-2, 3, (300, 3), generator=torch.Generator().manual_seed(0))
    function = lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True)  # noqa: E731
    found = run_interpreted(program_of(capture(Call1(function), (x,))), interpreter, [x])
    for y, r in zip(found, function(x), strict=True):
        torch.testing.assert_close(y, r)


@pytest.mark.parametrize("repeats", [[1, -1], [3, 9]])
def test_sizes_out_of_range(repeats: list[int], interpreter: TritonInterpreter) -> None:
    def function(x: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        y = torch.repeat_interleave(x, r)
        torch._check(y.shape[0] <= 10)
        return y + 1

    program = program_of(capture(Call1(function), (torch.ones(2), torch.tensor([2, 3]))))
    with pytest.raises(RunError):
        run_interpreted(program, interpreter, [torch.ones(2), torch.tensor(repeats)])


@pytest.mark.parametrize("name", [name for name in MODELS if name != "noisy"])
def test_branches_and_loops(name: str, interpreter: TritonInterpreter) -> None:
    request = CaptureRequest(make(name), MODELS[name][1], {}, DYNAMIC.get(name))
    (graph,) = share_state([capture_request(request)])
    program = program_of(graph)
    for turn in range(2):
        inputs = other_inputs(name, turn)
        with torch.no_grad():
            wanted = tensors(make(name)(*[t.clone() for t in inputs]))
        found = run_interpreted(program, interpreter, [t.clone() for t in inputs])
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shift", [-2.0, 2.0])
def test_random_numbers_go_on_from_body_to_body(shift: float, interpreter: TritonInterpreter) -> None:
    """As torch's generator on a device would, whichever branch is taken."""
    (graph,) = [capture_request(CaptureRequest(make("noisy"), MODELS["noisy"][1], {}, None))]
    x, n = torch.randn(4, SIZE) + shift, torch.tensor(2)
    found = run_interpreted(program_of(graph), interpreter, [x, n], seed=77)
    generator = CudaGenerator(77, RESIDENT)
    x = x + generator.unit(SIZE)
    taken = x.sum() > SIZE / 2
    x = x + generator.normal(SIZE) if taken else x * generator.unit(3).sum()
    carried, rows = x[0], []
    for row in x:
        rows.append(carried)
        carried = carried + row * generator.unit(SIZE)
    for _ in range(int(n)):
        x = x + generator.normal(4 * SIZE).reshape(4, SIZE)
    wanted = [carried, torch.stack(rows), x, generator.unit(3)]
    for y, r in zip(found, wanted, strict=True):
        torch.testing.assert_close(y, r.to(y.dtype), rtol=1e-4, atol=1e-5)


class Both(torch.nn.Module):
    """A size, a branch and a loop."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        kept = x[x > 0]
        scaled = torch.cond(x.sum() > 0, lambda x: x * x[x > 1].cumsum(0).sum(), lambda x: x - 1, (x,))
        start = torch.zeros((), dtype=torch.int64)
        _, y = torch.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 0.5), (start, scaled))
        return kept.sum() + y


def test_the_host_program(tmp_path: Path) -> None:
    """C++ and Triton compile it; the device is asked where the host needs to know."""
    path = mycc.compile(Both(), (torch.randn(8), torch.tensor(3)), out=tmp_path / "both.pkg", target="cuda:sm_90")
    text = zipfile.ZipFile(path).read("src/cuda-sm_90/program.cpp").decode()
    for words in (
        "size_u0 = number(call, ",
        "size_u1 = number(call, ",
        "if (holds(call, ",
        "if (!(holds(call, ",
        "kPrefetches[] = {1}",
    ):
        assert words in text, words

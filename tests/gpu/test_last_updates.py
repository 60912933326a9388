"""Updates of one place in several steps: programs side by side, of which one writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.ir.nodes import Scatter
from mycc.compiler.ir.plans.gpu import ScatterPlan

from ..helpers.device_programs import DeviceProgram, device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter

#: of few digits, so that sums are exact
CACHE, NEW = torch.arange(216.0).reshape(2, 3, 9, 4), (8 * torch.randn(2, 3, 6, 4)).round() / 8
AT = torch.tensor([1, 3, -1, 3, 8, 1])


def put(x: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[:, :, at] = new
    return x


def put_by_two(x: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[at % 2, at % 3] = new[0, 0, :, :1, None].expand(-1, 9, 4)
    return x


#: function, and the form of its updates
CASES: dict[str, tuple[Callable[..., torch.Tensor], str]] = {
    "rows of an index": (put, "last"),
    "two indices": (put_by_two, "last"),
    "index_copy": (lambda x, at, new: x.index_copy(2, at % 9, new), "last"),
    "few added": (lambda x, at, new: x.index_add(2, at % 9, new), "ordered"),
    "added": (lambda x, at, new: x.index_add(2, at.repeat(9) % 9, new.repeat(1, 1, 9, 1)), "first"),
    "added in half precision": (
        lambda x, at, new: x.half().index_add(2, at.repeat(9) % 9, (4 * new).round().half().repeat(1, 1, 9, 1)).float(),
        "first",
    ),
    "many added to one": (
        lambda x, at, new: x.index_add(2, at.repeat(90) // 9 * 0 + 3, new.repeat(1, 1, 90, 1)),
        "first",
    ),
    "many added to some": (
        lambda x, at, new: x.index_add(2, (at.repeat(50) % 2) * 5, new.repeat(1, 1, 50, 1)),
        "first",
    ),
    "many added to elements": (
        lambda x, at, new: x[0, 0, :, 0].index_add(0, at.repeat(90) % 2, new[0, 0, :, 0].repeat(90)),
        "first",
    ),
    "multiplied by what is there": (
        lambda x, at, new: x.index_reduce(2, at.repeat(3) % 5, new.repeat(1, 1, 3, 1), "prod"),
        "first",
    ),
    "added to counts": (
        lambda x, at, new: x.long().index_add(2, at.repeat(9) % 9, new.repeat(1, 1, 9, 1).long()),
        "first",
    ),
    "flags": (
        lambda x, at, new: (x > 90).index_put(
            (at.repeat(4) % 2,), (new[0, 0, :, 0] > 0).repeat(4)[:, None, None, None], True
        ),
        "first",
    ),
    "an index of each element": (
        lambda x, at, new: x.scatter(2, (new.abs() * 5).long() % 9, new + at.sum()),
        "ordered",
    ),
}


def forms(program: DeviceProgram) -> list[str]:
    kernels = zip(program.schedule.program.nodes, program.schedule.plans, strict=True)
    return [p.form for n, p in kernels if isinstance(n, Scatter) and isinstance(p, ScatterPlan)]


@pytest.mark.parametrize("name", CASES)
def test_one_program_writes_each_place(name: str, interpreter: TritonInterpreter) -> None:
    function, form = CASES[name]
    model, inputs = Call1(function).eval(), (CACHE, AT, NEW)
    program = device_program(model, inputs)
    assert forms(program) == [form]
    (found,) = run_interpreted(program, interpreter, inputs)
    torch.testing.assert_close(found, model(*inputs))


@pytest.mark.parametrize("name", ["added", "many added to elements", "flags"])
def test_kernels_compile(name: str, tmp_path: Path) -> None:
    """The interpreter asks for no types."""
    out = mycc.compile(
        Call1(CASES[name][0]).eval(), (CACHE, AT, NEW), out=tmp_path / "p.pkg", target="cuda:sm_90", verify=False
    )
    assert out.exists()


def test_a_number_of_steps_that_is_not_known(interpreter: TritonInterpreter) -> None:
    model = Call1(put).eval()
    steps = torch.export.Dim("steps", max=4000)
    program = device_program(model, (CACHE, AT, NEW), ((None, {0: steps}, {2: steps}),))
    for count in (0, 1, 6, 1500):
        at = torch.randint(-9, 9, (count,))
        inputs = (CACHE, at, torch.randn(2, 3, count, 4))
        (found,) = run_interpreted(program, interpreter, inputs)
        assert torch.equal(found, model(*inputs))

"""Updates that overwrite: programs side by side, of which the one of the last step at a place writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from mycc.compiler.ir.nodes import Scatter
from mycc.compiler.ir.plans.gpu import ScatterPlan

from ..helpers.device_programs import DeviceProgram, device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter

CACHE, NEW = torch.arange(216.0).reshape(2, 3, 9, 4), torch.randn(2, 3, 6, 4)
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
    "added": (lambda x, at, new: x.index_add(2, at % 9, new), "ordered"),
    "an index of each element": (
        lambda x, at, new: x.scatter(2, (new.abs() * 5).long() % 9, new + at.sum()),
        "ordered",
    ),
}


def forms(program: DeviceProgram) -> list[str]:
    kernels = zip(program.schedule.program.nodes, program.schedule.plans, strict=True)
    return [p.form for n, p in kernels if isinstance(n, Scatter) and isinstance(p, ScatterPlan)]


@pytest.mark.parametrize("name", CASES)
def test_the_last_update_counts(name: str, interpreter: TritonInterpreter) -> None:
    function, form = CASES[name]
    model, inputs = Call1(function).eval(), (CACHE, AT, NEW)
    program = device_program(model, inputs)
    assert forms(program) == [form]
    (found,) = run_interpreted(program, interpreter, inputs)
    torch.testing.assert_close(found, model(*inputs))


def test_a_number_of_steps_that_is_not_known(interpreter: TritonInterpreter) -> None:
    model = Call1(put).eval()
    steps = torch.export.Dim("steps", max=4000)
    program = device_program(model, (CACHE, AT, NEW), ((None, {0: steps}, {2: steps}),))
    for count in (0, 1, 6, 1500):
        at = torch.randint(-9, 9, (count,))
        inputs = (CACHE, at, torch.randn(2, 3, count, 4))
        (found,) = run_interpreted(program, interpreter, inputs)
        assert torch.equal(found, model(*inputs))

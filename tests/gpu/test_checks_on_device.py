"""Assertions, indices out of range and kernels that write to their arguments, on a GPU."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc.runtime.errors import RunError
from torch import nn

from ..helpers.programs import Call1
from ..models.assertion_models import EXPORTED, IDS, X, looked_up
from ..models.test_writing_operators import add_to, steps

pytestmark = pytest.mark.gpu


class Counted(nn.Module):
    """A temporary, a buffer and an argument are written to."""

    sums: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> Any:
        y = x * 2
        old = y + 1
        add_to(y, 3.0)
        add_to(self.sums, 1.0)
        add_to(x, 0.5)
        return y, old, self.sums + x


def on_device(values: Any) -> Any:
    return [v.cuda() for v in values]


def waited_for(model: Any, entry: Any, inputs: Any) -> None:
    entry(*on_device(inputs))
    model.synchronize()


def test_assertions(tmp_path: Path) -> None:
    """A call of arrays on the host fails itself, one on the device the next time that it is asked; then all is well."""
    cases = {f"case{i}": case for i, case in enumerate(EXPORTED.values())}
    entries = {name: (Call1(case.function), case.right[0]) for name, case in cases.items()}
    model = mycc.load(mycc.compile(entries, out=tmp_path / "a.pkg", target="cuda"))
    for name, case in cases.items():
        entry = model.entry(name)
        for inputs, message in case.wrong:
            with pytest.raises(RunError, match=message):
                entry(*inputs)
            with pytest.raises(RunError, match=message):
                waited_for(model, entry, inputs)
            for right in case.right:
                torch.testing.assert_close(entry(*on_device(right)).cpu(), case.function(*right))
            model.synchronize()


def test_an_assertion_is_told_before_what_follows_from_it(tmp_path: Path) -> None:
    """Rows that are not there fail the assertion about them and then the lookup; the first failure counts."""
    model = mycc.load(mycc.compile(looked_up, (IDS, X), out=tmp_path / "a.pkg", target="cuda"))
    for _ in range(3):  # launched one by one, then as a graph
        with pytest.raises(RunError, match=re.escape("ids: no such row")):
            model(IDS + 1, X)
        torch.testing.assert_close(model(IDS, X), looked_up(IDS, X))


def test_kernels_that_write_to_their_arguments(tmp_path: Path) -> None:
    from ..models.writing_kernels import launch_momentum

    mycc.triton_kernel("mycctest_writes::momentum")(launch_momentum)
    inputs = tuple(torch.randn(5, 30) for _ in range(3))
    model = mycc.load(mycc.compile(steps, inputs, out=tmp_path / "steps.pkg", target="cuda"))
    for _ in range(3):
        own, moved = [x.clone() for x in inputs], on_device(inputs)
        wanted = steps(*own)
        for found, expected in zip([*model(*moved), *moved], [*wanted, *own], strict=True):
            torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-5)


def test_operators_that_write_to_buffers(tmp_path: Path) -> None:
    eager = Counted()
    loaded = mycc.load(mycc.compile(Counted(), (torch.randn(3, 4),), out=tmp_path / "a.pkg", target="cuda"))
    for _ in range(3):
        x = torch.randn(3, 4)
        moved = x.cuda()
        with torch.no_grad():
            wanted = eager(x)
        for found, expected in zip([*loaded(moved), moved], [*wanted, x], strict=True):
            torch.testing.assert_close(found.cpu(), expected)

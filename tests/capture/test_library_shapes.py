"""An operator of a library whose shapes nobody tells fixes no dynamic size."""

from __future__ import annotations

import pytest
import torch
from mycc.compiler.capture import library_shapes
from torch._library.simple_registry import singleton

from ..helpers.programs import Call1


def one_by_one(x: torch.Tensor, y: torch.Tensor) -> None:
    for i in range(int(x.shape[0])):
        y[i] = x[i] * 2


def test_an_operator_without_shapes_fixes_no_size(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "mycc_library_shapes::double"
    with torch.library._scoped_library("mycc_library_shapes", "FRAGMENT") as library:
        library.define("double(Tensor x, Tensor(a!) y) -> ()")
        library.impl("double", one_by_one, "CompositeExplicitAutograd")

        def model(x: torch.Tensor) -> torch.Tensor:
            y = torch.zeros_like(x)
            torch.ops.mycc_library_shapes.double(x, y)
            return y + 1

        monkeypatch.setattr(library_shapes, "_FAKES", {name: lambda *_: None, "mycc_library_shapes::none": None})
        with library_shapes.library_shapes():
            program = torch.export.export(
                Call1(model), (torch.ones(3),), dynamic_shapes=(({0: torch.export.Dim("n", max=9)},),)
            )
        assert len(program.range_constraints) == 1
        assert singleton.find(name).fake_impl.kernel is None

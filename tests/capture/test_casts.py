"""int() and float() of sizes and len() of tensors leave them symbolic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.capture.casts import noting_casts, symbolic_casts
from mycc.runtime.errors import CompileError
from torch.export import Dim

MODELS: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "int of a size": (lambda x: x.new_ones(int(x.shape[0])), "s0"),
    "int of a fraction": (lambda x: x.new_ones(int(x.shape[0] * 0.5) + 1), "TruncToInt(0.5*ToFloat(s0)) + 1"),
    "int of a quotient": (lambda x: x.new_ones(int(x.shape[0] / 2) + 1), "TruncToInt(IntTrueDiv(s0, 2)) + 1"),
    "float of a size": (lambda x: x.new_ones(int(float(x.shape[0]) * 2.0)), "TruncToInt(2.0*ToFloat(s0))"),
    "length": (lambda x: x.new_ones(len(x) + len([1])), "s0 + 1"),
    "elements of a shape": (lambda x: x.new_ones(x.shape.numel() + x[:, None].size()[:-1].numel()), "2*s0"),
    "least": (lambda x: x.new_ones(min(x.shape[0], 5)), "Min(5, s0)"),
    "largest of a list": (lambda x: x.new_ones(max([5, int(x.shape[0] / 2)])), "Max(5, TruncToInt(IntTrueDiv(s0, 2)))"),
    "beside the class": (lambda x: x.new_ones(int("2") + int(x.shape[0])) if isinstance(2, int) else x, "s0 + 2"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_size_stays_symbolic(name: str) -> None:
    model, size = MODELS[name]
    graph = capture(model, (torch.randn(8),), dynamic_shapes=({0: Dim("n", min=2, max=64)},))
    assert [s.name for s in graph.symbols] == ["n"]
    assert str(graph.outputs[0].shape[0]).replace(str(graph.symbols[0].symbol), "s0") == size
    assert "int" not in globals()


def test_a_number_is_still_refused() -> None:
    """What no size can be: the length of a Python list."""
    with pytest.raises(CompileError, match=r"the model fixes a dimension|does not work for all sizes"):
        capture(
            lambda x: sum(x[i] for i in range(int(x.shape[0]))),
            (torch.randn(8),),
            dynamic_shapes=({0: Dim("n", min=2, max=64)},),
        )


def test_a_number_that_the_run_finds() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        n = int(x.sum().item())
        torch._check(n >= 0)
        torch._check(n <= x.shape[0])
        return x[:n] * 2

    graph = capture(forward, (torch.ones(8, dtype=torch.int64),))
    assert [c.name for c in graph.computed] == ["u0"]


def test_stand_ins_are_the_classes_for_all_else() -> None:
    space: dict[str, Any] = {"float": None}
    with symbolic_casts([space]):
        assert space["float"] is None
        assert space["int"]("7", 8) == 7
        assert type(space["int"](2.5)) is int
        assert isinstance(True, space["int"])
        assert issubclass(bool, space["int"])
        assert not isinstance(2.5, space["int"])
        assert space["int"].from_bytes(b"\1", "big") == 1
        assert space["len"]("abc") == 3
        with pytest.raises(TypeError):
            space["len"](torch.tensor(1))
    assert space == {"float": None}


def test_the_least_of_what_the_run_finds() -> None:
    graph = capture(lambda x: x[x > 0].topk(min(4, len(x[x > 0]))).values, (torch.ones(8),))
    (size,) = graph.outputs[0].shape
    assert str(size).startswith("Min(4, ")


def test_only_casts_of_sizes_are_noted() -> None:
    with noting_casts() as found:
        int(2.5)
    assert not found

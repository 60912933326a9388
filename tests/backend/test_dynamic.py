"""Sizes that change from call to call: dynamic=True, mark_dynamic, numbers as sizes; one compile serves them all."""

from __future__ import annotations

import copy

import pytest
import torch
from mycc.compiler.backend import compile as compile_module
from torch import nn

from .models import mlp
from .support import Compiled, compiled, error, step


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many graphs were compiled or found."""
    calls: list[int] = []
    original = compile_module.load_graph
    from mycc.compiler.backend import graph_compiler

    def load(*args: object) -> object:
        calls.append(1)
        return original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(graph_compiler, "load_graph", load)
    return calls


def _agree(model: nn.Module, own: nn.Module, function: Compiled, rows: int) -> None:
    x = torch.randn(rows, 8)
    assert error(step(own, (x,), function), step(model, (x,), model)) < 1e-5


def test_one_compile_serves_all_batches(count: list[int]) -> None:
    torch.manual_seed(0)
    model, _ = mlp()
    own = copy.deepcopy(model)
    function = compiled(own, dynamic=True)
    for rows in (3, 7, 2, 33):
        _agree(model, own, function, rows)
    assert len(count) == 2


def test_marked_dimensions(count: list[int]) -> None:
    torch.manual_seed(0)
    function = compiled(lambda x: (x @ x.t()).softmax(-1), fullgraph=True)
    for rows in (4, 9, 5):
        x = torch.randn(rows, 6)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(function(x), (x @ x.t()).softmax(-1))
    assert len(count) == 1


def test_numbers_are_sizes(count: list[int]) -> None:
    def pieces(x: torch.Tensor, n: int) -> tuple[torch.Tensor, int]:
        return x[:n] * n + torch.arange(n), n * 2

    function = compiled(pieces, dynamic=True, fullgraph=True)
    x = torch.randn(12)
    for n in (4, 7, 11):
        got, wanted = function(x, n), pieces(x, n)
        torch.testing.assert_close(got[0], wanted[0])
        assert got[1] == wanted[1]
    assert len(count) == 1


def test_graphs_that_take_numbers_alone(count: list[int]) -> None:
    def places(n: int, m: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        return torch.arange(n).float()[:, None] * torch.arange(m) + n, torch.ones(3, dtype=torch.bfloat16), n * m

    function = compiled(places, {"strict": True}, dynamic=True, fullgraph=True)
    for n, m in ((5, 9), (3, 4), (12, 2)):
        got, wanted = function(n, m), places(n, m)
        for own, right in zip(got[:2], wanted[:2], strict=True):
            assert own.dtype == right.dtype
            assert torch.equal(own, right)
        assert got[2] == wanted[2]
    assert len(count) == 1


def test_a_fallback_between_dynamic_parts() -> None:
    function = compiled(lambda x: nn.functional.dropout(x * 2, 0.5) + x.shape[0], dynamic=True)
    for rows in (4, 9):
        x = torch.randn(rows, 6)
        torch.manual_seed(1)
        got = function(x)
        torch.manual_seed(1)
        torch.testing.assert_close(got, nn.functional.dropout(x * 2, 0.5) + rows)


@pytest.mark.parametrize(
    "function",
    [lambda x: x[x > 0] * 2, lambda x: (x.nonzero(), x.nonzero().shape[0]), lambda x: x * x.sum().item()],
    ids=["mask", "nonzero", "item"],
)
def test_sizes_and_numbers_that_the_run_finds(function: Compiled) -> None:
    whole = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}
    with torch._dynamo.config.patch(**whole):
        call = compiled(function, fullgraph=True)
        for rows in (4, 4, 7):
            x = torch.randn(rows, 5)
            torch.testing.assert_close(call(x), function(x))

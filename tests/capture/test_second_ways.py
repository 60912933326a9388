"""Models that torch.export's first way refuses: what another takes agrees with the model, the others say why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from mycc import CompileError
from mycc.compiler.capture import ModelGraph, capture
from torch import nn
from torch.export import Dim

X = torch.randn(3, 4)
ROWS = {0: Dim("rows", min=1, max=9)}


def agrees(graph: ModelGraph, model: nn.Module, *args: torch.Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(graph.module(*args)[0], model(*args))


class WithNumpy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, scale: dict[str, torch.Tensor]) -> torch.Tensor:
        self.calls.add_(1)
        return torch.from_numpy(np.sin(self.layer(x).numpy())) * scale["by"] + self.calls


def test_numpy_in_forward() -> None:
    """With dynamic sizes, names of weights, arguments in a dict and a buffer that calls change."""
    model = WithNumpy()
    with torch.no_grad():
        graph = capture(model, (X, {"by": X}), dynamic_shapes=(ROWS, {"by": ROWS}))
    assert set(graph.constants) == {"layer_weight", "layer_bias"}
    assert [change.name for change in graph.in_place] == ["calls"]
    assert float(model.calls) == 0
    x = torch.randn(5, 4)
    with torch.no_grad():
        found, calls = graph.module(x, x, torch.zeros(()))
        torch.testing.assert_close(found, model(x, {"by": x}))
    assert float(calls) == 1


class Row(nn.Module):
    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return (x * 2 - 1)[i]


class WithRow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.row = torch.fx.symbolic_trace(Row())

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return self.row(torch.from_numpy(np.sin(x.numpy())), i)


def test_numbers_that_the_model_does_not_take_are_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    """torch prints what fails in modules of fx: here an index that is one more than the example's."""
    model, i = WithRow(), torch.tensor([2, 0])
    agrees(capture(model, (X, i)), model, torch.randn(3, 4), i)
    assert capsys.readouterr().err == ""


class Counted(nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return torch.arange(int(n)) * x.sum()


def test_numbers_of_tensors_as_sizes() -> None:
    graph = capture(Counted(), (X, torch.tensor(5)))
    assert [size.min for size in graph.computed] == [0]
    for n in (0, 1, 7):
        agrees(graph, Counted(), torch.randn(3, 4), torch.tensor(n))


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x * 2
        return x * 3


def test_a_branch_on_values_is_refused_with_each_reason() -> None:
    """draft_export would take that of the example for all."""
    with pytest.raises(CompileError, match="depends on the values of a tensor") as error:
        capture(Branch(), (X,))
    reasons = [line for line in error.value.details if "test_second_ways" not in line.split(":")[0]]
    assert [line.split(":")[0] for line in reasons] == [
        "strict=True",
        "dynamo_graph_capture_for_export",
        "draft_export",
        "make_fx",
    ]
    assert "it would do for all values what those of the example choose (test_second_ways.py:" in reasons[2]


class Chosen(nn.Module):
    """Programs whose number of a tensor chooses what is computed: by name."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        k: Any = n.item()
        if self.form == "if":
            return x * k if k > 3 else x - k
        if self.form == "is":
            return x * (3 if k == 2 else 4)
        if self.form == "loop":
            for _ in range(k):
                x = x * 2
            return x
        if self.form == "list":
            return [x, x * 2, x * 3][k]
        if self.form == "table":
            return x * {2: 4}.get(k, 5)
        return x.sum(k - 1)


@pytest.mark.parametrize("form", ["if", "is", "loop", "list", "table", "dimension"])
def test_what_a_number_of_an_integer_chooses_is_refused(form: str) -> None:
    """torch's tracer of bytecode keeps such conditions beside the graph: for other numbers the graph is wrong."""
    with pytest.raises(CompileError, match="cannot be exported") as error:
        capture(Chosen(form), (X, torch.tensor(2)))
    said = "dynamo_graph_capture_for_export: it would take for all values that"
    assert any(said in line for line in error.value.details), error.value.details


class Assigns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = self.last + 1
        return torch.from_numpy(np.sin(x.numpy())) + self.last


def test_what_calls_keep_is_never_lost() -> None:
    """The other ways do not see an attribute that is replaced."""
    model = Assigns()
    with pytest.raises(CompileError, match="cannot be exported") as error:
        capture(model, (X,))
    assert not any("strict=True" in line for line in error.value.details)
    assert float(model.last.sum()) == 0


def test_a_tensor_of_the_trace_is_no_constant() -> None:
    class OfData(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.data * 2

    graph = capture(OfData(), (X,))
    (found,) = graph.module(X + 1)
    assert found.equal((X + 1) * 2)


class Few(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > self.most:
            raise ValueError("too many rows")
        return x * 2

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most


def test_a_forward_that_raises() -> None:
    with pytest.raises(
        CompileError, match="the model raises on its example inputs: ValueError: too many rows"
    ) as error:
        capture(Few(2), (X,))
    assert any(line.endswith('raise ValueError("too many rows")') for line in error.value.details)
    with pytest.raises(CompileError, match=r"the model raises for x of \[4, 4\], which its dynamic sizes include"):
        capture(Few(1), (X[:1],), dynamic_shapes=(ROWS,))

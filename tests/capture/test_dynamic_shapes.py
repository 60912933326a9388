"""What the user says of dynamic sizes: each form of torch.export's, misuse of it, and ranges beyond a package's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from mycc import CompileError
from mycc.compiler.capture import capture
from torch import nn
from torch.export import AdditionalInputs, Dim, ShapesCollection

N = Dim("n", min=1, max=99)
ROWS = {0: N}
X = torch.randn(3, 8)


class Rest(nn.Module):
    def forward(self, x: torch.Tensor, *rest: torch.Tensor, y: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
        return x + rest[0] * rest[1] + y + more["b"]


class Two(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum(0) + y.sum(0)


def sizes(model: nn.Module, args: Any, kwargs: Any, shapes: Any) -> dict[str, list[str]]:
    graph = capture(model, args, kwargs, shapes)
    names = {s.symbol: s.name for s in graph.symbols}
    return {spec.name: [names.get(size, str(size)) for size in spec.shape] for spec in graph.inputs}


def rest(shapes: Any) -> dict[str, list[str]]:
    return sizes(Rest(), (X, X, X), {"b": X, "y": X}, shapes)


@pytest.mark.parametrize(
    "shapes",
    [
        {"x": ROWS, "rest": (ROWS, ROWS), "y": ROWS, "more": {"b": ROWS}},
        {"x": ROWS, "rest": (ROWS, ROWS), "y": ROWS, "b": ROWS},
        (ROWS, (ROWS, ROWS), ROWS, {"b": ROWS}),
    ],
)
def test_variable_arguments(shapes: Any) -> None:
    assert rest(shapes) == {name: ["n", "8"] for name in ("x", "rest_0", "rest_1", "b", "y")}


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ((ROWS, ROWS, ROWS, {"b": ROWS}), r"of '\*rest' is a dict, not a tuple of 2"),
        ((ROWS, (ROWS,), ROWS, {"b": ROWS}), r"of '\*rest' has 1, not a tuple of 2"),
        ((ROWS, (ROWS, ROWS, ROWS), ROWS, {"b": ROWS}), r"of '\*rest' has 3, not a tuple of 2"),
        ((ROWS, (ROWS, ROWS), ROWS, ROWS), r"of '\*\*more' names 0, which the model is not called with"),
        ((ROWS, (ROWS, ROWS), ROWS, {"c": ROWS}), r"of '\*\*more' names 'c', which the model is not called with"),
        ((ROWS, (ROWS, ROWS), ROWS, (ROWS,)), r"of '\*\*more' is a tuple, not a dict by name"),
        ((ROWS, (ROWS, ROWS), {0: "n"}, None), "of 'y', dimension 0, is 'n', which is no size"),
        ((ROWS, (ROWS, ROWS), {0: 4}, None), "of 'y', dimension 0, is fixed to 4, but its example has 3"),
    ],
)
def test_a_wrong_structure_is_refused(shapes: Any, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        rest(shapes)


def test_a_tuple_is_in_the_order_of_the_signature() -> None:
    """Whatever the order of the keyword arguments."""
    found = sizes(Two(), (), {"y": X, "x": X}, (ROWS, None))
    assert found == {"y": ["3", "8"], "x": ["n", "8"]}


def test_shapes_collection() -> None:
    shapes = ShapesCollection()
    shapes[X] = ROWS
    assert sizes(Two(), (X, torch.randn(3, 8)), {}, shapes) == {"x": ["n", "8"], "y": ["3", "8"]}
    with pytest.raises(CompileError, match=r"cannot read the ShapesCollection .* not found in args"):
        sizes(Two(), (X.clone(), X.clone()), {}, shapes)


def test_additional_inputs() -> None:
    shapes = AdditionalInputs()
    shapes.add((torch.randn(5, 8), X))
    shapes.add((torch.randn(1, 8),), {"y": X})
    assert sizes(Two(), (X, X), {}, shapes) == {"x": ["s0", "8"], "y": ["3", "8"]}


def test_additional_inputs_that_do_not_fit() -> None:
    shapes = AdditionalInputs()
    shapes.add((torch.randn(5, 8), [X]))
    with pytest.raises(CompileError, match="cannot read the AdditionalInputs"):
        sizes(Two(), (X, X), {}, shapes)

    class Same(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y

    shapes = AdditionalInputs()
    shapes.add((torch.randn(5, 8), torch.randn(6, 8)))
    with pytest.raises(CompileError):
        sizes(Same(), (X, X), {}, shapes)


def test_a_range_beyond_a_packages_is_told() -> None:
    graph = capture(nn.ReLU(), (X,), {}, ({0: Dim("n", max=2**33)},))
    assert graph.notes == ("the size 'n' may be up to 8589934592, but the package takes at most 2147483647",)
    assert capture(nn.ReLU(), (X,), {}, ({0: Dim("n")},)).notes == ()

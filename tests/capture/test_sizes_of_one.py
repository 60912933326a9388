"""What a model asks about sizes: branches for a size of 1, ranges that end at 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.verify import eager
from mycc.runtime.errors import CompileError
from torch import nn
from torch.export import Dim


def no_rows(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] == 1:
        raise ValueError("one row has no spread")
    return x.std(0)


#: what a package gives for one row is not what the model does
OTHERS: dict[str, Callable[..., Any]] = {
    "another factor": lambda x: x * 2 if x.shape[0] == 1 else x * 3,
    "a number of elements": lambda x: x.sum(0) if x.numel() > 4 else x.sum(0) * 2,
    "one less": lambda x: x * (2 if x.size(0) - 1 < 1 else 3),
    "a model that was typed in": eval("lambda x: x * 2 if x.shape[0] == 1 else x * 3"),
    "an error": no_rows,
    "statistics of a batch": nn.BatchNorm1d(4).train(),
}
#: branches that give the same
SAME: dict[str, Callable[..., Any]] = {
    "a shorter way": lambda x: x.clone() if x.shape[0] == 1 else x.flip(0).flip(0),
    "nothing to add": lambda x: x.sum(0) + (x[1:].sum(0) * 0 if x.shape[0] > 1 else 0),
    "the larger one": lambda x: x.sum(0) * (max(len(x), 2) - x.shape[0]),
    "no question": lambda x: x.mean(0),
}
X = torch.randn(5, 4)


@pytest.mark.parametrize("name", OTHERS)
def test_a_branch_for_one_row(name: str) -> None:
    graph = capture(OTHERS[name], (X,), dynamic_shapes=({0: Dim("rows", max=9)},))
    assert [(s.min, s.max) for s in graph.symbols] == [(2, 9)]
    with pytest.raises(CompileError, match=r"rows = 1(.|\n)*start at 2"):
        capture(OTHERS[name], (X,), dynamic_shapes=({0: Dim("rows", min=1, max=9)},))


@pytest.mark.parametrize("name", SAME)
def test_branches_that_give_the_same(name: str) -> None:
    graph = capture(SAME[name], (X,), dynamic_shapes=({0: Dim("rows", min=1, max=9)},))
    assert [(s.min, s.max) for s in graph.symbols] == [(1, 9)]


def test_the_line_that_asks_is_told() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if y.shape[1] == 1:  # here
            return x + 1
        return x + y.sum()

    columns = Dim("columns", min=1, max=9)
    with pytest.raises(CompileError, match=r"columns = 1(.|\n)*if y.shape\[1\] == 1:  # here"):
        capture(forward, (X, X), dynamic_shapes=({0: Dim("rows", min=1, max=9)}, {1: columns}))


def test_a_range_of_one_to_two_is_one_size() -> None:
    few = Dim("few", min=1, max=2)
    functions: dict[Any, Callable[..., Any]] = {
        few: lambda x, y: torch.cat([x, y], 1),
        2 * few: lambda x, y: torch.cat([x, y]),
    }
    for dim, function in functions.items():
        rows = 4 if dim is not few else 2
        graph = capture(function, (X[:2], X[:rows]), dynamic_shapes=({0: few}, {0: dim}))
        assert [(s.name, s.min, s.max) for s in graph.symbols] == [("few", 1, 2)]


MASK = nn.Transformer.generate_square_subsequent_mask(5)
LAYERS: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {
    "an encoder": (nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0), 2), (MASK,)),
    "a decoder": (
        nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, 0.0), 1),
        (torch.randn(5, 2, 8), MASK),
    ),
    "both": (nn.Transformer(8, 2, 1, 1, 16, 0.0), (torch.randn(5, 2, 8), MASK, MASK)),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_transformers_take_masks(name: str, training: bool) -> None:
    layer, rest = LAYERS[name]
    layer.train(training)
    given = (torch.randn(5, 2, 8), *rest)
    found = eager(capture(layer, given), given)[0]
    torch.testing.assert_close(found, layer(*given), rtol=1e-4, atol=1e-5)
    assert torch.backends.mha.get_fastpath_enabled()

"""Sparse matrices: those of the model by their pattern, those that it makes by sums; the rest is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc import CompileError
from mycc.compiler.capture import capture
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.lower.core.driver import unsupported
from mycc.compiler.verify import eager
from torch import Tensor
from torch.export import Dim

from ..helpers.programs import Call1


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def matrix(rows: int, columns: int, share: float = 0.3) -> Tensor:
    """A third of the elements, an empty row and an empty column."""
    x = normal(rows, columns, seed=rows) * (
        torch.rand(rows, columns, generator=torch.Generator().manual_seed(3)) < share
    )
    x[1], x[:, 2] = 0, 0
    return x


DENSE = matrix(6, 9)
SKEWED = torch.cat([torch.ones(1, 64), torch.eye(63, 64)])  # rows of one element beside a full one
KINDS = {
    "coo": DENSE.to_sparse(),
    "csr": DENSE.to_sparse_csr(),
    "csc": DENSE.to_sparse_csc(),
    "duplicates": torch.sparse_coo_tensor([[0, 0, 3, 5], [1, 1, 8, 0]], [1.0, 2.0, 3.0, 4.0], (6, 9)),
    "empty": torch.sparse_coo_tensor(torch.empty(2, 0, dtype=torch.int64), torch.empty(0), (6, 9)),
    "skewed": SKEWED.to_sparse(),
    "float64": DENSE.double().to_sparse(),
}


class Graph(torch.nn.Module):
    def __init__(self, matrix: Tensor, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("adjacency", matrix)

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(self.adjacency, *inputs)


def same(
    model: torch.nn.Module, *inputs: Tensor, shapes: Any = None, others: tuple[tuple[Tensor, ...], ...] = ()
) -> None:
    graph = run_graph_passes(capture(model.eval(), inputs, dynamic_shapes=shapes))
    assert not unsupported(graph)
    for given in (inputs, *others):
        want = model(*given)
        for got, expected in zip(eager(graph, given), want if isinstance(want, tuple) else (want,), strict=True):
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_of_the_model(kind: str) -> None:
    s = KINDS[kind]
    x, c = normal(s.shape[1], 4).to(s.dtype), normal(s.shape[0], 4, seed=1).to(s.dtype)

    def products(s: Tensor, x: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        plain = s @ x, torch.sparse.mm(s, x), torch.addmm(c, s, x, beta=0.5, alpha=2.0)
        return (*plain, s @ x[:, 0], torch.sparse.addmm(c, s, x)) if s.layout == torch.sparse_coo else plain

    same(Graph(s, products), x, c)


def test_transposed_and_dense() -> None:
    same(Graph(KINDS["coo"], lambda s, x: (s.t() @ x, s.coalesce().to_dense() + 1)), normal(6, 4))


def test_values_that_are_no_numbers() -> None:
    """An infinity that a row does not read leaves it alone."""
    x = normal(9, 4)
    x[0], x[2] = float("inf"), float("nan")
    same(Graph(KINDS["coo"], lambda s, x: s @ x), x)


def made(i: Tensor, v: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    s = torch.sparse_coo_tensor(i, v, (12, 12))
    return torch.sparse.mm(s, x), s.coalesce() @ x, s.t() @ x, s.to_dense()


def test_matrices_that_the_model_makes() -> None:
    """With places that occur twice, of a dynamic number of elements and columns."""

    def inputs(elements: int, columns: int) -> tuple[Tensor, ...]:
        return torch.arange(2 * elements).reshape(2, elements) * 5 % 12, normal(elements), normal(12, columns)

    e, n = Dim("elements", min=1, max=99), Dim("n", min=1, max=64)
    others = (inputs(1, 1), inputs(77, 5))
    same(Call1(made), *inputs(40, 8), shapes=(({1: e}, {0: e}, {1: n}),), others=others)


def test_compiled(tmp_path: Path) -> None:
    n = Dim("n", min=1, max=64)

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("adjacency", KINDS["csr"])
            self.register_buffer("other", KINDS["coo"])
            self.linear = torch.nn.Linear(9, 9)

        def forward(self, x: Tensor, i: Tensor, v: Tensor) -> Tensor:
            y = self.adjacency @ self.linear(x.t()).t()
            return torch.relu(y) + self.other @ x + torch.sparse.mm(torch.sparse_coo_tensor(i, v, (6, 9)), x)

    def inputs(columns: int) -> tuple[Tensor, ...]:
        return normal(9, columns), torch.tensor([[0, 5, 0], [8, 1, 8]]), normal(3)

    model = Layer().eval()
    mycc.compile(model, inputs(4), out=tmp_path / "m.pkg", dynamic_shapes=({1: n}, None, None))
    compiled = mycc.load(tmp_path / "m.pkg")
    for columns in (4, 1, 33):
        torch.testing.assert_close(compiled(*inputs(columns)), model(*inputs(columns)), rtol=1e-5, atol=1e-5)
    with pytest.raises(mycc.Error, match="index"):
        compiled(normal(9, 4), torch.tensor([[0, 6, 0], [8, 1, 8]]), normal(3))


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "softmax": (lambda s, x: torch.sparse.softmax(s, 1) @ x, "_sparse_softmax"),
    "product": (lambda s, x: torch.sparse.mm(s, s.t()).to_dense() @ x[:6], "a product of two sparse matrices"),
    "to_sparse": (lambda s, x: x.to_sparse() @ x.t(), "to_sparse"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(CompileError, match=message) as refused:
        capture(Graph(KINDS["coo"], function), (normal(9, 4),))
    assert any("test_sparse.py" in line for line in refused.value.details)

"""Conditions on sizes that torch.export assumes: those that do no harm are no reason to refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from mycc.compiler.capture import capture
from mycc.compiler.capture.assumptions import _exceptions, body_holds
from mycc.runtime.errors import CompileError
from torch.export import Dim

N = Dim("n", min=1, max=16)


class Cache(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(1, 2, 16, 4))

    def forward(self, x: torch.Tensor) -> Any:
        self.rows[:, :, : x.shape[2]] = x
        return self.rows.sum() + x


CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...], dict[int, Any]]] = {
    "a cache that is filled up to its end": (Cache(), (1, 2, 3, 4), {2: N}),
    "two halves": (lambda x: x[:, : x.shape[1] // 2] + x[:, x.shape[1] - x.shape[1] // 2 :], (3, 6), {1: N}),
    "half of a size without a bound": (lambda x: x[:, : x.shape[1] // 2] * 2, (3, 6), {1: Dim("n", min=2)}),
    "what strides leave": (lambda x: x.unfold(1, 2, 2).sum(2), (3, 6), {1: Dim("n", min=2, max=9)}),
    "two in one": (lambda x: x.flatten()[: x.numel() // 2], (3, 6), {0: Dim("m", min=1, max=8), 1: N}),
}


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_torch_leaves_out(name: str) -> None:
    model, shape, dims = CASES[name]
    graph = capture(model, (torch.randn(shape),), dynamic_shapes=({**dims},))
    bounds = {dim.__name__: (dim.min, dim.max) for dim in dims.values()}
    assert all(bounds[s.name][0] == s.min and s.max in (bounds[s.name][1], 2**31 - 1) for s in graph.symbols)
    assert not graph.computed


def test_lengths_that_torch_finds_equal_have_one_name() -> None:
    """A condition of an operator and one of the model are asked of either input's length."""

    def forward(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        if x.shape[0] != z.shape[0]:
            raise ValueError("two lengths")
        return torch.fft.ifft(z, dim=0).real + x

    for y in (torch.randn(3, 4), torch.randn(3, 4).double()):
        graph = capture(forward, (y, y * 1j), dynamic_shapes=({0: N}, {0: N}))
        assert [(s.min, s.max) for s in graph.symbols] == [(1, 16)]


@pytest.mark.parametrize("least", [1, 2, 3])
def test_a_squeeze_keeps_the_dimension_for_all_sizes(least: int) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x[x.shape[0] // 2 :].squeeze(0) + 1

    dims = ({0: Dim("n", min=least, max=16)},)
    if least == 3:
        assert len(capture(forward, (torch.randn(5),), dynamic_shapes=dims).symbols) == 1
        return
    with pytest.raises(CompileError, match="does not work for all sizes"):
        capture(forward, (torch.randn(5),), dynamic_shapes=dims)


def test_what_the_model_asks_itself_has_to_hold() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 10:
            return x * 2
        return x + 1

    with pytest.raises(CompileError, match=r"does not always satisfy .* 10(.|\n)*if x.shape\[0\] == 10:"):
        capture(forward, (torch.randn(3),), dynamic_shapes=({0: N},))


def test_a_branch_on_a_size_is_named() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 10 else x + 1

    with pytest.raises(CompileError, match=r"(.|\n)*test_assumptions.py:\d+  return x \* 2 if x.shape\[0\] > 10"):
        capture(forward, (torch.randn(3),), dynamic_shapes=({0: N},))


@pytest.mark.parametrize(
    ("condition", "exceptions"),
    [
        ("Eq(Min(64*s3, 192*s3), 64*s3)", []),
        ("((s3//2)) <= s3", []),
        ("Ne(64, 4*s3)", [{"s3": 16}]),
        ("Ne((s3//2), 1)", [{"s3": 2}, {"s3": 3}]),
        ("s3 < 16", [{"s3": 16}]),
        ("Eq(Mod(s3, 2), 0)", [{"s3": n} for n in (1, 3, 5, 7)]),
    ],
)
def test_exceptions(condition: str, exceptions: list[dict[str, int]]) -> None:
    assert _exceptions(condition, {"s3": (1, 16)}) == (exceptions, True)


def test_conditions_that_cannot_be_told() -> None:
    assert _exceptions("u0 > 3", {"s3": (1, 16)})[1] is False
    assert _exceptions("s3 > 0", {"s3": (1, 2**31 - 1)}) == ([], False)


def _halves(x: torch.Tensor) -> torch.Tensor:
    return x[: x.shape[0] // 2] * 2


@pytest.mark.skipif(
    torch.__version__ < "2.13", reason="torch before 2.13 exports half a size as one that the run finds"
)
def test_definitions_that_hold_for_all_sizes() -> None:
    """What was asked of sizes may be about layouts; all else has to hold, and shapes have to be right where it does
    not."""
    graph = capture(_halves, (torch.randn(8),), dynamic_shapes=({0: Dim("n", min=2, max=16)},))
    body, (n,) = graph.module.graph, (s.symbol for s in graph.symbols)
    result, ranges = next(iter(body.find_nodes(op="output"))).args[0][0].meta["val"], {n: (2, 16)}
    body.find_nodes(op="output")[0].args = (body.find_nodes(op="output")[0].args[0][0],)

    def holds(*conditions: sympy.Basic, of: Any = result) -> bool:
        return body_holds(body, of, conditions, ranges)

    assert holds()
    assert holds(n >= 2, sympy.Ne(n, 17))
    assert holds(sympy.Ne(n, 7))  # left out by a question about strides: 7 is tried, and right
    assert not holds(n > 4)  # an answer that the definition was built on
    assert not holds(sympy.Eq(n, 8))
    assert not holds(sympy.Ne(n, 7), of=torch.empty(4))  # another shape than the operator's

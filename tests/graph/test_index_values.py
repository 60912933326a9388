"""Known formulas of masks and positions: every form that is found must give the tensor's actual elements."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mycc.compiler.capture import ModelGraph
from mycc.compiler.graph.canonicalize.constant_forms import constant_form
from mycc.compiler.graph.canonicalize.index_forms import Affine, Choice, Form
from mycc.compiler.graph.canonicalize.index_values import IndexValues
from mycc.compiler.graph.passes import PASSES, run_graph_passes
from mycc.compiler.graph.sizes import SymbolRange, bounds, expr, ranges_of
from mycc.compiler.verify.interpreter import call_torch, run_graph
from sympy import Symbol

from .models import captured
from .support import Dim, graph_of

S, T = Symbol("s", integer=True), Symbol("t", integer=True)
RANGES = {S: SymbolRange(1, 60, 0, 1), T: SymbolRange(2, 8, 0, 0)}


def elements(form: Form, shape: torch.Size, values: dict[Any, int]) -> torch.Tensor:
    """The tensor that a form describes, element by element."""
    out = torch.empty(shape, dtype=torch.float64)
    for index in itertools.product(*(range(n) for n in shape)):
        out[index] = _element(form, index, values)
    return out


def _element(form: Form, index: tuple[int, ...], values: dict[Any, int]) -> float:
    if isinstance(form, Affine):
        return sum(_number(s, values) * i for s, i in zip(form.steps, index, strict=True)) + _number(form.const, values)
    holds = all(_element(c, index, values) >= 0 for c in form.conditions)
    return float(form.yes if holds else form.no)


def _number(value: Any, values: dict[Any, int]) -> int:
    return int(value if isinstance(value, int) else value.subs(values))


def normalised(graph: ModelGraph) -> ModelGraph:
    """The graph as the pass known-values meets it."""
    first = {"inline-regions", "dead-code", "normalize"}
    return run_graph_passes(graph, skip={row.name for row in PASSES} - first)


def check_forms(graph: ModelGraph) -> int:
    """Compares all forms of a graph with the values at the examples; gives how many nodes have one."""
    ranges = ranges_of(graph.symbols)
    known = IndexValues(graph.constants, ranges)
    sizes = {s.symbol: graph.examples[s.input].shape[s.dim] for s in graph.symbols}
    actual: dict[torch.fx.Node, Any] = {}

    def call(node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        actual[node] = call_torch(node, args, kwargs)
        return actual[node]

    run_graph(graph.module.graph, graph.examples, graph.constants.__getitem__, call)
    count = 0
    for node, value in actual.items():
        form = known.form(node)
        if form is not None and value.numel() < 5000:
            assert torch.equal(elements(form, value.shape, sizes), value.double()), node.format_node()
            count += 1
    return count


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(("name", "least"), [("bert", 8), ("gpt2", 25), ("llama", 25), ("vit", 5)])
def test_models(name: str, least: int, dynamic: bool) -> None:
    graph = normalised(captured(name, dynamic, attention="eager"))
    assert check_forms(graph) >= least


MASKS: dict[str, Callable[[int], torch.Tensor]] = {
    "tril": lambda n: torch.ones(n, n).tril(),
    "triu of -inf": lambda n: torch.full((n, n), float("-inf")).triu(1),
    "not tril": lambda n: ~torch.ones(n, n, dtype=torch.bool).tril(1),
    "window": lambda n: (
        (torch.arange(n)[None] <= torch.arange(n)[:, None]) & (torch.arange(n)[:, None] - torch.arange(n) < 3)
    ),
    "fill": lambda n: torch.zeros(n, n).masked_fill(torch.arange(n)[None] > torch.arange(n)[:, None], -1e4),
    "where": lambda n: torch.where(torch.arange(n)[None] >= 2, 0.0, float("-inf")),
    "sum": lambda n: torch.where(torch.arange(n) >= 1, 0.0, -2.0) + torch.where(torch.arange(n) < 3, 0.0, -2.0),
    "both": lambda n: torch.where(torch.arange(n) >= 1, 0.0, -2.0) * torch.where(torch.arange(n) < 3, 0.0, -2.0),
    "steps": lambda n: torch.arange(1, 2 * n, 2)[:, None] * 3 - torch.arange(n),
    "select and slice": lambda n: (torch.arange(n)[:, None] - torch.arange(n))[1:][:, 2] + torch.arange(n)[-1],
    "gather": lambda n: (torch.arange(n) * 2)[torch.arange(n - 1)[:, None] + torch.arange(2)[None]],
    "cumsum": lambda n: torch.ones(2, n, dtype=torch.int64).cumsum(1) - 1,
    "equal": lambda n: torch.arange(n)[None] == torch.arange(n)[:, None],
    "unequal": lambda n: torch.arange(n) != n + 1,
    "xor by or": lambda n: (torch.arange(n) < 0) | (torch.arange(n)[:, None] < 2),
    "expanded": lambda n: (torch.arange(n)[:, None] >= 1).expand(n, 3),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str, dynamic: bool) -> None:
    """Where a form is claimed, it is right, for fixed and for dynamic sizes."""
    dims = ({0: Dim("n", min=4, max=40)},) if dynamic else None
    graph = normalised(graph_of(lambda m, x: (x, MASKS[name](x.shape[0])), torch.zeros(6), dynamic=dims))
    assert check_forms(graph) >= 1


def test_negative_index_counts_from_the_end() -> None:
    """index of -1, 0, 1 is no affine choice of elements: nothing may be claimed."""
    graph = normalised(graph_of(lambda m, x: (x, (torch.arange(5) * 2)[torch.arange(3) - 1]), torch.zeros(1)))
    index = next(n for n in graph.module.graph.nodes if "index" in str(n.target))
    assert IndexValues(graph.constants, {}).form(index) is None


def test_constants() -> None:
    assert constant_form(torch.arange(4).expand(1, 4)) == Affine((0, 1), 0)
    assert constant_form(torch.tensor([3, 3, 3])) == Affine((0,), 3)
    assert constant_form(torch.tensor([0, 1, 3])) is None
    assert constant_form(torch.randn(40)) is None
    causal = Choice(2, frozenset([Affine((1, -1), 0)]), True, False)
    assert constant_form(torch.ones(4, 4, dtype=torch.bool).tril()) == causal
    broken = torch.ones(4, 4, dtype=torch.bool).tril()
    broken[3, 0] = False
    assert constant_form(broken) is None


@pytest.mark.parametrize(
    ("formula", "low", "high"),
    [(S - 1, 0, 59), (2 * S * T + 3, 7, 963), (S - S, 0, 0), (-S, -60, -1), (T * T - T, -4, 62), (5, 5, 5)],
)
def test_bounds(formula: Any, low: int, high: int) -> None:
    assert bounds(expr(formula), RANGES) == (low, high)


def test_bounds_of_an_unknown_function_are_infinite() -> None:
    assert bounds(S // 2, RANGES) == (float("-inf"), float("inf"))

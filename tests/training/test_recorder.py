"""The recorder writes down what torch's tracer does, and leaves to it what it cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from mycc.compiler.training.joint import fake, recorded, trace
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.nn import functional as F

Function = Callable[..., list[Any]]


def gradient(x: Tensor, w: Tensor) -> list[Any]:
    w = w.detach().requires_grad_(True)
    with torch.enable_grad():
        y = F.layer_norm(F.gelu(x @ w), [6]).softmax(-1)
        loss = F.cross_entropy(y, torch.tensor([1, 2, 0, 5])) + torch.full([], 2.0)
        (found,) = torch.autograd.grad(loss, [w])
    return [loss.detach(), found]


def several(x: Tensor, w: Tensor) -> list[Any]:
    values, places = x.max(-1)
    first, second = w.split([2, 4], 1)
    return [values, places, first, torch.cat([second, first], 1), x.std(-1)]


def values() -> tuple[FakeTensorMode, list[Tensor]]:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    return mode, [fake(mode, torch.randn(4, 8)), fake(mode, torch.randn(8, 6))]


def operators(module: fx.GraphModule | None) -> list[tuple[str, str, Any]]:
    """Name, operator and form of the nodes that results are computed from, without identities."""
    assert module is not None
    module.graph.eliminate_dead_code()
    found = []
    for node in module.graph.nodes:
        value = node.meta.get("val")
        form = (value.dtype, tuple(value.shape)) if isinstance(value, Tensor) else None
        if node.op == "call_function" and node.target is not torch.ops.aten.detach.default:
            found.append((node.name, str(node.target), form))
    return found


@pytest.mark.parametrize("function", [gradient, several])
def test_it_gives_the_operators_of_torchs_tracer(function: Function) -> None:
    mode, given = values()
    assert operators(recorded(mode, function, given)) == operators(trace(mode, function, given))


@pytest.mark.parametrize("function", [gradient, several])
def test_the_graph_computes_what_the_function_does(function: Function) -> None:
    mode, given = values()
    module = recorded(mode, function, given)
    assert module is not None
    real = [torch.randn(4, 8), torch.randn(8, 6)]
    for found, expected in zip(module(*real), function(*real), strict=True):
        torch.testing.assert_close(found, expected)


def test_lines_of_the_model_are_kept() -> None:
    mode, given = values()

    def function(x: Tensor, w: Tensor) -> Sequence[Any]:
        with fx.traceback.preserve_node_meta(), fx.traceback.set_current_meta(node):
            return [x @ w]

    graph = fx.Graph()
    node = graph.placeholder("x")
    node.meta["stack_trace"] = '  File "model.py", line 7, in forward\n    x @ w'
    module = recorded(mode, function, given)
    assert module is not None
    assert [
        n.meta.get("stack_trace") for n in module.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)
    ] == [node.meta["stack_trace"]]


def test_sizes_that_are_symbols_are_for_torchs_tracer() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    sizes = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    x = mode.from_tensor(torch.randn(4, 8), symbolic_context=sizes)
    assert recorded(mode, lambda x: [x + 1], [x]) is None


def test_a_function_that_asks_for_a_value_is_for_torchs_tracer() -> None:
    mode, given = values()
    assert recorded(mode, lambda x, w: [x * x.sum().item()], given) is None

"""Bounds of activations that become bounds of the integers behind them: the same values to the bit, at every edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from mycc.compiler.verify import eager

from .support import counts, graph_of, passed

EDGES = [0.0, -0.0, 6.0, -6.0, 3.0, 0.1, -0.1, 5.99, 6.01, 1e30, -1e30, float("inf"), -float("inf"), float("nan")]
X = torch.cat([torch.tensor(EDGES), torch.randn(500, generator=torch.Generator().manual_seed(0)) * 5])


def rounded(x: torch.Tensor, zero: int = -128, low: int = -128, high: int = 127) -> torch.Tensor:
    return torch.clamp(torch.round(x * 42.5) + zero, low, high)


MERGED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu6": lambda x: rounded(F.relu6(x)),
    "hardtanh": lambda x: rounded(F.hardtanh(x, 0.0, 6.0)),
    "relu": lambda x: rounded(x.relu(), 3),
    "clamp": lambda x: rounded(x.clamp(-1.5, 2.5), 0, 0, 255),
    "clamp below": lambda x: rounded(x.clamp(min=-0.7), 5),
    "divided": lambda x: torch.clamp(torch.round(x.relu() / 0.03) - 7, -128, 127),
    "no zero point": lambda x: torch.clamp(torch.round(F.hardtanh(x) * 100.0), -90, 127),
    "bounds that do not meet": lambda x: rounded(x.clamp(4.0, 5.0), 0, -8, 7),
}
LEFT: dict[str, Callable[[torch.Tensor], Any]] = {
    "a negative factor": lambda x: torch.clamp(torch.round(x.relu() * -42.5) + 3, -128, 127),
    "read again": lambda x: (rounded(h := x.relu()), h),
    "digits": lambda x: torch.clamp(torch.round(x.relu() * 42.5, decimals=1) + 3, -128, 127),
    "another function": lambda x: rounded(torch.tanh(x)),
    "one bound alone": lambda x: torch.clamp(torch.round(x.relu() * 42.5), min=-128),
}


@pytest.mark.parametrize("name", [*MERGED, *LEFT])
def test_values_stay(name: str) -> None:
    function = {**MERGED, **LEFT}[name]
    graph = graph_of(lambda _, x: function(x), X)
    assert counts(graph).get("bounds merged", 0) == (name in MERGED)
    found, want = eager(passed(graph), [X]), function(X)
    for a, b in zip(found, want if isinstance(want, tuple) else (want,), strict=True):
        assert torch.equal(torch.as_tensor(a).nan_to_num(1e4), b.nan_to_num(1e4))


def test_a_batch_norm_takes_the_factor_in_front() -> None:
    """The scales of integers and those of a batch norm are one multiplication, rounded once."""
    n = 8
    tensors = {name: torch.rand(n) + 0.5 for name in ("mean", "var", "gain", "shift")}
    tensors["scales"] = torch.rand(n, 1, 1) + 0.5
    x = torch.randint(-1000, 1000, (2, n, 3, 3), dtype=torch.int32)
    graph = graph_of(lambda m, x: F.batch_norm(x.float() * m.scales, m.mean, m.var, m.gain, m.shift), x, **tensors)
    result = passed(graph)
    assert sum(str(node.target) == "aten.mul.Tensor" for node in result.module.graph.nodes) == 1
    wide = {name: tensor.double() for name, tensor in tensors.items()}
    y = x.double() * wide["scales"]
    want = F.batch_norm(y, wide["mean"], wide["var"], wide["gain"], wide["shift"])
    torch.testing.assert_close(eager(result, [x])[0].double(), want, rtol=1e-6, atol=1e-5)

"""Nodes of a joint graph that compute the same, in front of torch's partitioner."""

from __future__ import annotations

import torch
from mycc.compiler.model.equal_nodes import merge_equal_nodes, writes
from torch.fx.experimental.proxy_tensor import make_fx


def test_equal_nodes_are_one() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = x.t().sin(), x.t().sin()
        c, d = torch.rand_like(x), torch.rand_like(x)
        y, z = x.cos(), x.cos()  # two results are two tensors
        return a + b * 1, a + b * 1.0, (c + d).sum(), y, z

    module = make_fx(function, tracing_mode="fake")(torch.randn(2, 2))
    assert not writes(module.graph)
    merge_equal_nodes(module.graph)
    count = [str(node.target) for node in module.graph.nodes]
    assert [count.count(f"aten.{name}.default") for name in ("t", "sin", "rand_like", "cos")] == [1, 1, 2, 2]
    assert count.count("aten.mul.Tensor") == 2  # 1 is not 1.0
    module.recompile()
    x = torch.randn(2, 2)
    torch.testing.assert_close(module(x)[0], function(x)[0])


def test_a_graph_that_writes() -> None:
    module = make_fx(lambda x, y: x.copy_(y))(torch.randn(2), torch.randn(2))
    assert writes(module.graph)

"""Batch norm under autocast: its gradient reads statistics in float32, which are those of the forward."""

from __future__ import annotations

import torch
from mycc.compiler.graph.decompose.norm_gradients import native_batch_norm_backward
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.training.request import capture_training, training_request
from torch import nn


def test_statistics_of_16_bits_are_computed_again() -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(8, 3, 5, 5).bfloat16() + 3, torch.randn(8, 3, 5, 5).bfloat16()
    weight = torch.rand(3) + 0.5
    wide = x.double()
    variance, mean = torch.var_mean(wide, (0, 2, 3), correction=0)
    root = torch.rsqrt(variance + 1e-5)
    wanted = native_batch_norm_backward(
        grad.double(), wide, weight.double(), None, None, mean, root, True, 1e-5, [True, True, True]
    )
    found = native_batch_norm_backward(
        grad, x, weight, None, None, mean.bfloat16(), root.bfloat16(), True, 1e-5, [True, True, True]
    )
    assert found[0] is not None
    assert wanted[0] is not None
    assert found[0].dtype == torch.bfloat16
    torch.testing.assert_close(found[0].double(), wanted[0], rtol=2**-8, atol=1e-6)
    for a, b in zip(found[1:], wanted[1:], strict=True):
        assert a is not None
        assert b is not None
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5)


def test_the_forward_s_statistics_are_shared() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    request = training_request(
        model, (torch.randn(2, 3, 8, 8),), {}, targets=(), loss=lambda y: (y * y).mean(), optimizer=optimizer,
        entries=["gradients"], dtype="bf16",
    )  # fmt: skip
    (graph,) = capture_training(request)
    nodes = [str(n.target) for n in run_graph_passes(graph).module.graph.nodes]
    assert nodes.count("aten.var_mean.correction") == 2

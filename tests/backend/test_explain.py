"""mycc.explain of a compiled callable: graphs, breaks with their lines, guards, kernels, what falls back."""

from __future__ import annotations

import json

import mycc
import torch
from torch import nn

from .support import compiled


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop = nn.Linear(8, 8), nn.Dropout(0.5)  # drawn in front: no fallback

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.drop(self.first(x).relu()) * torch.bernoulli(x.detach().sigmoid())
        torch._dynamo.graph_break()
        return (y * 2).sum()


def test_report() -> None:
    report = mycc.explain(compiled(Model()), torch.randn(2, 8), options={"build.flags": "-O0"})
    assert [graph.kind for graph in report.graphs] == ["forward", "backward", "forward", "backward"]
    first = report.graphs[0]
    assert any(name.startswith("gemm_relu") for name in first.kernels)
    assert len(first.fallbacks) == 1
    assert "bernoulli: its random numbers come from torch's own generators" in first.fallbacks[0]
    assert f"{__file__}:" in first.fallbacks[0]
    assert [found.where.endswith("torch._dynamo.graph_break()") for found in report.breaks] == [True]
    assert any("training" in guard for guard in report.guards)
    text = str(report)
    assert text.startswith("4 graphs, 1 break\ngraph 0  forward: ")
    assert json.loads(json.dumps(report.data()))["graphs"][0]["kind"] == "forward"


def test_inference_has_no_backward() -> None:
    with torch.no_grad():
        report = mycc.explain(compiled(torch.sin), torch.randn(3), options={"build.flags": "-O0"})
    assert [graph.kind for graph in report.graphs] == ["inference"]
    assert report.breaks == ()

"""Sinks, capped scores and the logarithms of sums of exponentials, as models write them, each as one attention."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mycc
import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.ir.structured import Attention, Gemm
from mycc.compiler.lower import lower
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward as gemma
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward as gpt_oss

SINKS = torch.tensor([0.5, -3.0, 40.0, -200.0])


class GptOss(torch.nn.Module):
    """The sink is a column more of the scores, which is cut off behind the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.sinks = torch.nn.Parameter(SINKS.clone())

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        module: Any = SimpleNamespace(sinks=self.sinks, num_key_value_groups=2, training=False)
        return gpt_oss(module, q, k, v, mask, 0.3)[0]


class Gemma(torch.nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        module: Any = SimpleNamespace(num_key_value_groups=2, training=False)
        return gemma(module, q, k, v, mask, scaling=0.3, softcap=5.0)[0]


class Flex(torch.nn.Module):
    """Weights that have been made without the sink are made smaller by it; scores are capped."""

    def __init__(self) -> None:
        super().__init__()
        self.sinks = torch.nn.Parameter(SINKS.clone())

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        def score(s: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
            return 5 * torch.tanh(s / 5) + mask[0, 0, m, n]

        out, sums = flex_attention(q, k, v, score, scale=0.3, enable_gqa=True, return_lse=True)
        both = torch.logsumexp(torch.stack([sums, self.sinks[:, None].expand_as(sums)], -1), -1)
        return (out * torch.exp(sums - both).unsqueeze(-1).to(out.dtype)).transpose(1, 2)


MODELS = (GptOss, Gemma, Flex)


def operands(queries: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, h, n, 16, generator=draw).to(dtype) for h, n in ((4, queries), (2, 40), (2, 40)))
    hidden = torch.arange(40) > torch.arange(queries)[:, None] + 40 - queries
    return q, k, v, torch.where(hidden, -1e9, 0.0)[None, None].to(dtype)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("model", MODELS)
def test_one_attention(model: type[torch.nn.Module], dtype: torch.dtype, target: str) -> None:
    """No scores in memory; heads that share keys read them where they lie."""
    graph = run_graph_passes(capture(model().to(dtype), operands(40, dtype)))
    nodes = lower(graph, None, target).program.nodes
    (found,) = [node for node in nodes if isinstance(node, Attention)]
    assert not any(isinstance(node, Gemm) for node in nodes)
    assert [o.buffer.kind for o in (found.q, found.k, found.v)] == ["input"] * 3
    assert (found.sink is not None) == (model is GptOss)


class All(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.models = torch.nn.ModuleList(model() for model in MODELS)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        return tuple(model(q, k, v, mask) for model in self.models)


@pytest.mark.parametrize("queries", [1, 40])
def test_values(queries: int, tmp_path: Path) -> None:
    """Of one query, whose keys and values are read where they lie, and of many."""
    model, inputs = All(), operands(queries)
    found = mycc.load(mycc.compile(model, inputs, out=tmp_path / "sinks.pkg"))(*inputs)
    wanted = model.double()(*(x.double() for x in inputs))
    for f, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(f, w.float(), rtol=1e-5, atol=1e-6)

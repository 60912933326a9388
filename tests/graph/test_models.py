"""All passes on the zoo's models: what is left of them, and that they still compute the same."""

from __future__ import annotations

import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.graph.passes import run_graph_passes
from torch import nn

from .models import NAMES, build, captured
from .support import agrees, counts, operators, passed

#: what the kernels are made of; views and pointwise operators are not listed
WHOLE = {
    "mlp": {"aten.linear": 2, "aten.gelu": 1},
    "resnet50": {"aten.conv2d": 12, "aten.relu": 10, "aten.max_pool2d": 1, "aten.linear": 1},
    "bert": {"aten.linear": 8, "aten.layer_norm": 5, "aten.scaled_dot_product_attention": 2, "aten.embedding": 1},
    "vit": {"aten.linear": 9, "aten.layer_norm": 5, "aten.scaled_dot_product_attention": 2, "aten.conv2d": 1},
    "gpt2": {"aten.linear": 9, "aten.layer_norm": 5, "aten.scaled_dot_product_attention": 2, "aten.gelu": 2},
    "llama": {"aten.linear": 9, "aten.rms_norm": 5, "aten.scaled_dot_product_attention": 2, "aten.silu": 2},
    "mobilenetv2": {"aten.conv2d": 52, "aten.pad": 5, "aten.hardtanh": 35},
    "whisper_enc": {"aten.linear": 8, "aten.layer_norm": 5, "aten.scaled_dot_product_attention": 2, "aten.conv1d": 2},
}
#: no mask is left anywhere: of these because it is causal, of the others because it allows everything
CAUSAL = ("gpt2", "llama")
#: nothing of these may be left anywhere
GONE = ("batch_norm", "matmul", "softmax", "addmm", "cumsum", "diff", "index", "gather", "tanh", "view", "transpose")


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", NAMES)
def test_zoo(name: str, dynamic: bool) -> None:
    graph = captured(name, dynamic)
    result = passed(graph)
    found = operators(result)
    assert {k: found[k] for k in WHOLE[name]} == WHOLE[name]
    assert not [gone for gone in GONE if found[f"aten.{gone}"]]
    calls = [n for n in result.module.graph.nodes if "scaled_dot" in str(n.target)]
    assert all(n.args[3:] in ((), (None, 0.0, name in CAUSAL)) for n in calls)
    assert all(n.kwargs.get("enable_gqa", False) is (name == "llama") for n in calls)
    assert agrees(graph, result).error < 1e-4


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "vit"])
def test_spelled_out_attention(name: str, dynamic: bool) -> None:
    """transformers' eager attention: matmul, mask, softmax, matmul."""
    graph = captured(name, dynamic, attention="eager")
    result = passed(graph)
    found = operators(result)
    assert found["aten.scaled_dot_product_attention"] == 2
    assert not found["aten.softmax"]
    calls = [n for n in result.module.graph.nodes if "scaled_dot" in str(n.target)]
    assert all(n.args[3] is None and n.args[5] is (name in CAUSAL) for n in calls)
    agrees(graph, result)


def test_half_precision_passes() -> None:
    """Narrow floats with their casts: norms are recognised inside the casts, and values agree."""
    model, inputs = build("llama")
    graph = capture(model.to(torch.bfloat16), inputs)
    result = passed(graph)
    assert operators(result)["aten.rms_norm"] == 5
    agrees(graph, result)


def test_captured_graph_stays() -> None:
    model, inputs = build("bert")
    graph = capture(model, inputs)
    before, constants = str(graph.module.graph), set(graph.constants)
    passed(graph)
    assert str(graph.module.graph) == before
    assert set(graph.constants) == constants


def test_counts_for_the_user() -> None:
    found = counts(captured("bert"))
    assert (found["masks recognised"], found["linears merged"]) == (2, 6)


def test_origins_cover_the_model() -> None:
    """Merged and recognised nodes name all operators that they do the work of, and keep a source line."""
    result = passed(captured("llama"))
    nodes = [n for n in result.module.graph.nodes if n.op == "call_function"]
    norm = next(n for n in nodes if n.target is torch.ops.aten.rms_norm.default)
    assert [target for _, target in norm.meta["mycc_origins"]] == [
        "aten.pow.Tensor_Scalar", "aten.mean.dim", "aten.add.Tensor", "aten.rsqrt.default", "aten.mul.Tensor",
        "aten.mul.Tensor",
    ]  # fmt: skip
    merged = next(n for n in nodes if n.target is torch.ops.aten.linear.default)
    assert [target for _, target in merged.meta["mycc_origins"]] == ["aten.linear.default"] * 3
    assert "modeling_llama.py" in merged.meta["stack_trace"]


def test_weights_do_not_grow() -> None:
    """Merging, transposing and folding replace weights; only tied ones may be read twice, never copied."""
    for name in ("gpt2", "llama", "resnet50"):
        graph = captured(name)
        before = sum(t.numel() for t in graph.constants.values())
        after = sum(t.numel() for t in passed(graph).constants.values())
        assert after <= 1.1 * before, name


class _Hidden(nn.Module):
    """Attention whose mask takes the place of scores."""

    def __init__(self, fill: float):
        super().__init__()
        self.fill = fill

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ok: torch.Tensor) -> torch.Tensor:
        return torch.where(ok, q @ k.transpose(-1, -2), self.fill).softmax(-1) @ v


@pytest.mark.parametrize(("fill", "whole"), [(-1e9, False), (torch.finfo(torch.float32).min, True)])
def test_rows_that_a_number_hides_have_the_mean_of_all_values(fill: float, whole: bool) -> None:
    """Scores of 40 are not lost beside -1e9, so such attention stays spelled out."""
    q, k, v = (10 * torch.randn(1, 2, n, 16) for n in (8, 32, 32))
    ok = torch.rand(8, 32) > 0.5
    ok[2:5] = False
    graph = capture(_Hidden(fill), (q, k, v, ok))
    result = run_graph_passes(graph)
    names = {str(node.target) for node in result.module.graph.nodes}
    assert ("aten.scaled_dot_product_attention.default" in names) == whole
    agrees(graph, result)

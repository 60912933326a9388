"""Each pass on a small graph: what it makes of it (golden), that it computes the same, and what it leaves alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from mycc.compiler.graph.canonicalize.inline_regions import inline_regions
from mycc.compiler.graph.passes import PASSES
from mycc.compiler.graph.work import Work
from mycc.compiler.model.operators import dequantize  # noqa: F401  # defines the operator
from mycc.runtime.errors import CompileError
from torch.ao.quantization.fx import _decomposed  # noqa: F401  # defines the operators
from torch.nn import functional as F

from .support import Dim, agrees, before_and_after, graph_of, operators, passed

quantized = torch.ops.quantized_decomposed
EIGHT = (0.01, 0, -127, 127, torch.int8)
Golden = Callable[[str], None]
B, S = Dim("batch", min=1, max=8), Dim("seq", min=1, max=60)
EDGES = Dim("edges", min=2, max=60)


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


# what passes do ------------------------------------------------------------------------------------------------------
def _casts(m: Any, x: torch.Tensor) -> Any:
    y = F.dropout(x.float().contiguous(), 0.5, False).flatten(1)
    return y.to(torch.float64).view(-1, 12).t() + 1, y.expand_as(y).type_as(x)


def _positions(m: Any, ids: torch.Tensor) -> Any:
    positions = torch.arange(ids.shape[1]).unsqueeze(0)
    kinds = torch.zeros(ids.shape[0], ids.shape[1], dtype=torch.int64)
    return F.embedding(ids, m.words) + F.embedding(positions, m.table) + F.embedding(kinds, m.kinds)


def _causal(m: Any, q: torch.Tensor) -> Any:
    steps = torch.arange(q.shape[2])
    changes = torch.diff(steps, prepend=steps[:1] - 1) != 1
    group = changes.cumsum(0)
    mask = (steps[None, :] <= steps[:, None]) & (group[None, :] == group[:, None])
    return F.scaled_dot_product_attention(q, q, q, attn_mask=mask.expand(q.shape[0], 1, -1, -1))


def _eight_bits(m: Any, x: torch.Tensor) -> Any:
    return x.to(torch.float8_e4m3fn).t().to(torch.float32) * m.scale.to(torch.float32).unsqueeze(1)


def _integers(*shape: int) -> dict[str, torch.Tensor]:
    values = torch.arange(math.prod(shape)).reshape(shape) % 15 - 7
    return {"w": values.to(torch.int8), "s": rand(shape[0], 2).abs() + 0.1, "r": rand(shape[0]).abs() + 0.1}


def _dequantised(m: Any, groups: int) -> torch.Tensor:
    if groups == 1:
        return quantized.dequantize_per_channel(m.w, m.r, None, 0, -128, 127, torch.int8)
    return torch.ops.mycc.dequantize(m.w, m.s, None, 4, m.w.shape[1] // 2, torch.float32)


def _quantised(x: torch.Tensor) -> torch.Tensor:
    q = quantized.quantize_per_tensor(x, 0.02, 120, 0, 255, torch.uint8)
    return quantized.dequantize_per_tensor(q, 0.02, 120, 0, 255, torch.uint8)


def _attention(m: Any, q: torch.Tensor, mask: torch.Tensor) -> Any:
    scores = torch.matmul(q, q.transpose(-1, -2)) / math.sqrt(8) + mask[:, None, None, :]
    return F.dropout(scores.softmax(-1), 0.1, False) @ q


def _grouped(m: Any, q: torch.Tensor, k: torch.Tensor) -> Any:
    b, g, n, d = k.shape
    wide = k[:, :, None].expand(b, g, 2, n, d).reshape(b, g * 2, n, d)
    return F.scaled_dot_product_attention(q * 0.5, wide, wide, scale=1.0)


def _layer_norm(m: Any, x: torch.Tensor) -> Any:
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5) * m.w + m.b


def _conv_norm(m: Any, x: torch.Tensor) -> Any:
    y = F.conv2d(x, m.w, m.b)
    y = F.batch_norm(y, m.mean, m.var, m.gain, m.shift, False, 0.1, 1e-5)
    return F.relu(y) + F.batch_norm(x, m.in_mean, m.in_var)[:, :, 1:-1, 1:-1]


def _rotary(m: Any, x: torch.Tensor) -> Any:
    z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * m.turn
    return torch.view_as_real(z).flatten(-2), torch.fft.rfft(x).abs()


def _conv_tensors() -> dict[str, torch.Tensor]:
    var = {"var": rand(3).abs() + 0.5, "in_var": rand(3).abs() + 1.0}
    rest = {name: rand(3) + 0.1 * i for i, name in enumerate(("b", "mean", "gain", "shift", "in_mean"))}
    return {"w": rand(3, 3, 3, 3), **rest, **var}


def _qkv(m: Any, x: torch.Tensor) -> Any:
    return F.linear(x, m.wq, m.bq), F.linear(x, m.wk), F.linear(x, m.wv, m.bv)


def _qkv_tensors() -> dict[str, torch.Tensor]:
    return {"wq": rand(4, 6), "bq": rand(4), "wk": rand(2, 6), "wv": rand(3, 6), "bv": rand(3)}


def _messages(m: Any, h: torch.Tensor, e: torch.Tensor, ends: torch.Tensor) -> Any:
    both = F.linear(torch.cat((e, h[ends[0]], h[ends[1]]), -1), m.w, m.b)
    few = F.linear(h[ends[0, :2]], m.v)  # fewer rows than there are
    return both, F.linear(h.index_select(0, ends[0]), m.v), few


CASES: dict[str, tuple[Any, ...]] = {
    "dead-code": (  # the mask, once known-values has found that it allows everything
        lambda m, q: F.scaled_dot_product_attention(q, q, q, attn_mask=(torch.arange(5)[None] >= 0).expand(5, 5)),
        (rand(1, 2, 5, 8),), None, {},
    ),
    "normalize": (_casts, (rand(2, 3, 4),), ({0: B},), {}),
    "known-values": (
        _causal, (rand(2, 3, 5, 8),), ({0: B, 2: S},), {},
    ),
    "known-values-positions": (
        _positions, (torch.arange(10).reshape(2, 5),), ({0: B, 1: S},),
        {"words": rand(10, 4), "table": rand(64, 4), "kinds": rand(2, 4)},
    ),
    "decompose": (lambda m, x: F.glu(x, -1), (rand(2, 6),), ({0: B},), {}),
    "float8-as-bytes": (_eight_bits, (rand(2, 4),), ({0: B},), {"scale": rand(4).to(torch.float8_e5m2)}),
    "round-weights": (
        lambda m, x: F.linear(x, quantized.dequantize_per_tensor(
            quantized.quantize_per_tensor(m.w, *EIGHT), *EIGHT)), (rand(2, 4),), ({0: B},), {"w": rand(6, 4)},
    ),
    "quantised-linears": (
        lambda m, x: F.linear(_quantised(x), _dequantised(m, 1)) + F.linear(x, _dequantised(m, 2), m.b),
        (rand(2, 4),), ({0: B},), {**_integers(6, 4), "b": rand(6)},
    ),
    "float8-linears": (
        lambda m, x: torch._scaled_mm(x.to(m.w.dtype), m.w.t(), m.one, m.one, m.b, out_dtype=x.dtype)
        + F.linear(x, m.w.to(x.dtype) * m.rows) + x @ (m.w.t().to(x.dtype) * m.one),
        (rand(32, 16),), None,
        {"w": rand(16, 16).to(torch.float8_e4m3fn), "one": torch.tensor(0.5), "rows": rand(16, 1), "b": rand(16)},
    ),
    "quantised-convs": (
        lambda m, x: F.conv1d(_quantised(x), _dequantised(m, 1), m.b, 1, 1),
        (rand(2, 3, 5),), ({0: B},), {**_integers(6, 3, 3), "b": rand(6)},
    ),
    "quantised-pools": (
        lambda m, x: torch.clamp(torch.round(F.max_pool2d(x, 3, 2, 1) * 40.0) - 8, -128, 127).to(torch.int8),
        (rand(1, 2, 6, 6),), ({0: B},), {},
    ),
    "quantised-embeddings": (
        lambda m, i: F.embedding(i, _dequantised(m, 2)), (torch.arange(3),), ({0: B},), _integers(6, 4)
    ),
    "complex-parts": (_rotary, (rand(2, 3, 4),), ({0: B},), {"turn": torch.polar(torch.ones(3, 2), rand(3, 2))}),
    "fold-batch-norm": (_conv_norm, (rand(2, 3, 5, 5),), ({0: B},), _conv_tensors()),
    "fold-constants": (lambda m, x: x * torch.cos(m.f * 2.0) * m.s, (rand(2, 4),), ({0: B},),
                       {"f": rand(4), "s": torch.tensor(0.125)}),
    "simplify": (
        lambda m, x: (x.reshape(6, 2).reshape(2, 6).unsqueeze(1).squeeze(1) * 1.0).permute(1, 0).permute(1, 0),
        (rand(3, 4),), None, {},
    ),
    "rounded-clamps": (
        lambda m, x: torch.clamp(torch.round(F.relu6(x) * 40.0) - 128, -128, 127).to(torch.int8), (rand(3),), None, {}
    ),
    "common-subexpressions": (lambda m, x: torch.exp(x + 1) * torch.exp(x + 1), (rand(3),), None, {}),
    "fold-padding": (
        lambda m, x: F.conv2d(F.pad(x, (1, 1, 2, 2)), m.w, stride=2) + F.conv2d(F.pad(x, (0, 2, 2, 2)), m.w, stride=2),
        (rand(1, 3, 6, 6),), None, {"w": rand(3, 3, 3, 3)},
    ),
    "recognize-norms": (_layer_norm, (rand(2, 5, 8),), ({0: B, 1: S},), {"w": rand(8), "b": rand(8) + 1}),
    "recognize-norms-rms": (
        lambda m, x: m.w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
        (rand(2, 8),), ({0: B},), {"w": rand(8)},
    ),
    "recognize-activations": (
        lambda m, x: 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0)))),
        (rand(2, 5),), None, {},
    ),
    "recognize-attention": (_attention, (rand(2, 3, 5, 8), torch.zeros(2, 5)), ({0: B, 2: S}, {0: B, 1: S}), {}),
    "attention-operands": (_grouped, (rand(2, 4, 5, 8), rand(2, 2, 5, 8)), ({0: B, 2: S}, {0: B, 2: S}), {}),
    "linear-products": (
        lambda m, x: torch.addmm(m.b, x.reshape(-1, 6), m.w).reshape(x.shape[0], x.shape[1], 4),
        (rand(2, 5, 6),), ({0: B, 1: S},), {"w": rand(6, 4), "b": rand(4)},
    ),
    "gathered-linears": (
        _messages, (rand(3, 8), rand(9, 2), torch.arange(18).reshape(2, 9) % 3), None,
        {"w": rand(4, 18), "b": rand(4), "v": rand(5, 8)},
    ),
    "gathered-linears-any": (
        _messages, (rand(3, 8), rand(9, 2), torch.arange(18).reshape(2, 9) % 3), ({0: B}, {0: EDGES}, {1: EDGES}),
        {"w": rand(4, 18), "b": rand(4), "v": rand(5, 8)},
    ),
    "merge-linears": (_qkv, (rand(2, 5, 6),), ({0: B},), _qkv_tensors()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_pass(name: str, golden: Golden) -> None:
    function, inputs, dynamic, tensors = CASES[name]
    graph = graph_of(function, *inputs, dynamic=dynamic, **tensors)
    row = next(p.name for p in PASSES if name.startswith(p.name))
    golden(before_and_after(graph, row))
    agrees(graph, passed(graph))


def test_every_pass_has_a_golden() -> None:
    assert {p.name for p in PASSES} - set(CASES) == {"inline-regions"}


def test_inline_regions() -> None:
    """Capture inlines them itself; a graph that comes with them is inlined here."""

    class Region(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                y = x.cos()
            return y + x

    program = torch.export.export(Region(), (rand(3),), strict=False)
    module = program.graph_module
    if not [n for n in module.graph.nodes if "wrap_with_set_grad" in str(n.target)]:
        pytest.skip("this torch exports no region here")
    x = rand(3)
    assert inline_regions(Work(module.graph, {}, {}), module) == {"regions inlined": 1}
    module.recompile()
    assert torch.equal(module(x)[0], x.cos() + x)


def test_order_is_checked() -> None:
    """Every need of a pass is established by an earlier one and not undone in between."""
    facts: set[str] = set()
    for row in PASSES:
        assert row.needs <= facts, row.name
        facts = (facts - row.undoes) | row.establishes


# what passes leave alone ---------------------------------------------------------------------------------------------
def kept(name: str, function: Any, *inputs: torch.Tensor, dynamic: Any = None, **tensors: torch.Tensor) -> int:
    graph = graph_of(function, *inputs, dynamic=dynamic, **tensors)
    result = passed(graph)
    agrees(graph, result)
    return operators(result)[f"aten.{name}"]


def test_tied_weight_is_not_merged() -> None:
    """A table that an embedding reads too stays one constant."""
    ids = torch.arange(6).reshape(2, 3)
    assert kept("linear", lambda m, i: (lambda x: F.linear(x, m.w) + F.linear(x, m.v))(F.embedding(i, m.w)), ids,
                w=rand(6, 6), v=rand(6, 6)) == 2  # fmt: skip


def test_shared_product_keeps_its_batch_norm() -> None:
    """The convolution's own result is read too, so its weights must not be scaled."""

    def function(m: Any, x: torch.Tensor) -> Any:
        y = F.conv2d(x, m.w)
        return F.batch_norm(y, m.mean, m.var), y

    tensors = {"w": rand(3, 3, 1, 1), "mean": rand(3), "var": rand(3).abs() + 0.5}
    assert kept("mul", function, rand(1, 3, 4, 4), **tensors) == 1


def test_attention_weights_that_are_returned_stay() -> None:
    def function(m: Any, q: torch.Tensor) -> Any:
        weights = (q @ q.transpose(-1, -2)).softmax(-1)
        return weights @ q, weights

    assert kept("scaled_dot_product_attention", function, rand(1, 2, 4, 8)) == 0


def test_scale_outside_the_mask_is_no_attention() -> None:
    """softmax((q k + mask) / 2): the scale applies to the mask too."""

    def function(m: Any, q: torch.Tensor, mask: torch.Tensor) -> Any:
        return ((q @ q.transpose(-1, -2) + mask) / 2).softmax(-1) @ q

    assert kept("scaled_dot_product_attention", function, rand(1, 2, 4, 8), rand(4, 4)) == 0


def test_softmax_over_queries_is_no_attention() -> None:
    assert kept("scaled_dot_product_attention", lambda m, q: (q @ q.transpose(-1, -2)).softmax(-2) @ q,
                rand(1, 2, 4, 8)) == 0  # fmt: skip


def test_eps_outside_the_root_is_no_norm() -> None:
    def function(m: Any, x: torch.Tensor) -> Any:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.pow(2).mean(-1, keepdim=True).sqrt() + 1e-5)

    assert kept("layer_norm", function, rand(2, 8)) == 0


def test_unbiased_variance_is_no_norm() -> None:
    assert kept("layer_norm", lambda m, x: (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5),
                rand(2, 8)) == 0  # fmt: skip


def test_other_constants_are_no_gelu() -> None:
    assert kept("gelu", lambda m, x: 0.5 * x * (1.0 + torch.erf(x * 0.71)), rand(5)) == 0


@pytest.mark.parametrize(
    "mask",
    [
        lambda i, j: j < i + 2,  # one key ahead
        lambda i, j: (j <= i) & (i - j < 8),  # a window that is shorter than the sequence may be
        lambda i, j: j >= i,  # the other triangle
    ],
)
def test_other_masks_stay(mask: Any) -> None:
    def function(m: Any, q: torch.Tensor) -> Any:
        i = torch.arange(q.shape[2])
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask(i[:, None], i[None, :]))

    graph = graph_of(function, rand(2, 3, 20, 8), dynamic=({2: S},))
    result = passed(graph)
    call = next(n for n in result.module.graph.nodes if "scaled_dot" in str(n.target))
    assert call.args[3] is not None
    agrees(graph, result)


def test_mask_for_rectangular_scores_stays() -> None:
    """key <= query counts from the last query here, not from the first: no is_causal of torch."""

    def function(m: Any, q: torch.Tensor, k: torch.Tensor) -> Any:
        i, j = torch.arange(4)[:, None] + 3, torch.arange(7)[None, :]
        return F.scaled_dot_product_attention(q, k, k, attn_mask=j <= i)

    graph = graph_of(function, rand(1, 2, 4, 8), rand(1, 2, 7, 8))
    call = next(n for n in passed(graph).module.graph.nodes if "scaled_dot" in str(n.target))
    assert call.args[3] is not None


def test_positions_beyond_the_table_stay_a_lookup() -> None:
    """seq may be 60, the table has 32 rows: the package has to check, as eager does."""

    def function(m: Any, x: torch.Tensor) -> Any:
        return x + F.embedding(torch.arange(x.shape[1]), m.table)

    assert kept("embedding", function, rand(2, 5, 4), dynamic=({1: S},), table=rand(32, 4)) == 1


def test_weights_of_one_are_not_dropped() -> None:
    """A fresh norm's weight is 1 everywhere; the compiled model must not hang on that."""
    assert kept("mul", lambda m, x: x.exp() * m.w, rand(2, 4), w=torch.ones(4)) == 1


def test_asymmetric_padding_stays() -> None:
    assert kept("pad", lambda m, x: F.conv2d(F.pad(x, (0, 1, 0, 1)), m.w), rand(1, 3, 4, 4), w=rand(2, 3, 2, 2)) == 1


def test_padding_with_other_values_stays() -> None:
    assert kept("pad", lambda m, x: F.conv2d(F.pad(x, (1, 1, 1, 1), value=1.0), m.w), rand(1, 3, 4, 4),
                w=rand(2, 3, 2, 2)) == 1  # fmt: skip


def test_negative_zero_survives() -> None:
    """x + 0.0 is no identity: it makes 0.0 of -0.0."""
    graph = graph_of(lambda m, x: x + 0.0, torch.tensor([-0.0, 1.0]))
    assert operators(passed(graph))["aten.add"] == 1


def test_random_numbers_are_not_merged_or_folded() -> None:
    graph = graph_of(lambda m, x: x + torch.rand(4) * torch.rand(4), rand(4))
    assert operators(passed(graph))["aten.rand"] == 2


def test_big_constants_are_not_made() -> None:
    """outer(a, a) of 1024 numbers would put 4 MB into the package."""
    graph = graph_of(lambda m, x: x + torch.sin(m.a[:, None] * m.a[None, :]), rand(1024, 1024), a=rand(1024))
    result = passed(graph)
    assert sum(t.numel() for t in result.constants.values()) == 1024


def test_constant_scale_and_power_of_two() -> None:
    """Scales of channels behind a convolution are folded into its weights."""
    assert kept("mul", lambda m, x: F.conv2d(x, m.w) * m.g, rand(1, 3, 4, 4), w=rand(2, 3, 1, 1), g=rand(2, 1, 1)) == 0


def test_sizes_come_from_the_inputs() -> None:
    """Every size in the graph is computed from the sizes of the inputs, whatever tensor the model asked."""

    def function(m: Any, x: torch.Tensor) -> Any:
        y = torch.cat([x, x], 1)
        return y.reshape(y.shape[0] * y.shape[1] // 2, -1).sum(0, keepdim=True) / y.shape[1]

    graph = graph_of(function, rand(2, 5, 4), dynamic=({0: B, 1: S},))
    result = passed(graph)
    asked = [n.args[0] for n in result.module.graph.nodes if "sym_size" in str(n.target)]
    assert asked
    assert all(n.op == "placeholder" for n in asked)
    agrees(graph, result)


def test_size_that_depends_on_values() -> None:
    work = Work(torch.fx.Graph(), {}, {})
    with pytest.raises(CompileError, match="the size u0 does not follow from the sizes of the inputs"):
        work.size(sympy.Symbol("u0", integer=True))

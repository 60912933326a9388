"""Operators that the lowering does not take whole come down to ones that it does, at fixed and at dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mycc.compiler.graph.decompose import decompose
from mycc.compiler.graph.decompose.all_families import DECOMPOSITIONS
from mycc.compiler.model.operators.kept import KEPT
from mycc.compiler.verify import eager
from torch import nn
from torch.nn import functional as F

from .support import Dim, agrees, graph_of, operators, passed

X = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(1))
IMAGE = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(2))

SEQUENCES: dict[str, Callable[[torch.Tensor], Any]] = {
    "glu": lambda x: F.glu(x, -1),
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "softmin": lambda x: F.softmin(x, -1),
    "norm": lambda x: (x.norm(dim=-1), x.norm(p=1, dim=1), x.norm(p=float("inf"), dim=1), x.norm(p=3, dim=1)),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x.flip(1), dim=-1),
    "diff": lambda x: torch.diff(x, n=2),
    "einsum": lambda x: (torch.einsum("bij,bkj->bik", x, x), torch.einsum("bij,jk->bik", x, x[0].t())),
    "einsum of three": lambda x: torch.einsum("bi,bi,bi->b", x[:, 0], x[:, 1], x[:, 2]),
    "outer": lambda x: torch.outer(x[0, 0], x[0, 1]),
    "linear of one output": lambda x: (F.linear(x, torch.ones(16)), F.linear(x[0, 0], torch.ones(16))),
    "linear with another bias": lambda x: (
        F.linear(x, torch.ones(4, 16), torch.ones(6, 4)) + F.linear(x, torch.ones(4, 16), torch.tensor(2.0))
    ),
    "mv": lambda x: x[0] @ x[0, 0],
    "baddbmm": lambda x: torch.addbmm(x[0, :, :6], x, x.transpose(1, 2)),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "diagonal": lambda x: x.diagonal(1, 1, 2),
    "trace": lambda x: x[0].trace(),
    "slice_scatter": lambda x: torch.slice_scatter(x, x[:, :4:2] * 2, 1, 1, 5, 2),
    "select_scatter": lambda x: torch.select_scatter(x, x[:, 0] * 2, 1, -1),
    "one_hot": lambda x: F.one_hot((x > 0).long().sum(-1), 20),
    "cross_entropy": lambda x: F.cross_entropy(x[:, 0], torch.zeros(x.shape[0], dtype=torch.int64)),
    "logaddexp": lambda x: torch.logaddexp(x, x * 2),
    "isclose": lambda x: torch.isclose(x, x * 1.000001),
    "huber_loss": lambda x: F.huber_loss(x, x * 2),
    "std_mean": lambda x: torch.std_mean(x, -1),
    "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[0, 1], indexing="ij")[1],
    "gradients": lambda x: (torch.ops.aten.silu_backward(x, x * 2), torch.ops.aten.mish_backward(x, x * 2)),
    "kron": lambda x: torch.kron(x[0], x[0]),
}
IMAGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "instance_norm": F.instance_norm,
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "nearest 1d": lambda x: F.interpolate(x[:, 0], scale_factor=2),
    "reflect": lambda x: F.pad(x, (1, 2, 1, 1), mode="reflect"),
    "replicate": lambda x: F.pad(x, (1, 2, 1, 1), mode="replicate"),
    "circular": lambda x: F.pad(x, (1, 2, 0, 1), mode="circular"),
    "adaptive 1d": lambda x: (F.adaptive_avg_pool1d(x[:, 0], 1), F.adaptive_avg_pool1d(x[:, 0], 4)),
    "same padding": lambda x: F.conv2d(x, torch.ones(4, 1, 3, 3), groups=4, padding="same"),
}


def check(function: Callable[..., Any], x: torch.Tensor, dynamic: bool) -> None:
    dims = ({0: Dim("batch", min=1, max=8)},) if dynamic else None
    graph = graph_of(lambda m, x: function(x), x, dynamic=dims)
    result = passed(graph)
    kept = {*KEPT, "mycc.assert_true"}  # what an operator asks of values stays, and is tested by the package
    assert not [name for name in operators(result) if name.removeprefix("aten.") not in kept]
    agrees(graph, result)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence(name: str, dynamic: bool) -> None:
    check(SEQUENCES[name], X, dynamic)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", IMAGES)
def test_image(name: str, dynamic: bool) -> None:
    check(IMAGES[name], IMAGE, dynamic)


RESIZED: dict[str, dict[str, Any]] = {
    f"{mode}{' antialiased' if antialias else ''}{' aligned' if align else ''} to {size}": {
        "size": size, "mode": mode, "antialias": antialias, "align_corners": align
    }
    for mode in ("bilinear", "bicubic")
    for antialias in (False, True)
    for align in (False, True)
    for size in ((5, 13), (8, 3))
}  # fmt: skip


ROUNDED = {
    "per tensor": lambda x: torch.fake_quantize_per_tensor_affine(x * 9, 0.037, 3, 0, 255),
    "with its mask": lambda x: torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, 0.2, 1, 0, 15),
    "per channel": lambda x: torch.fake_quantize_per_channel_affine(
        x, torch.linspace(0.05, 0.3, 6), torch.arange(6, dtype=torch.int32), 1, -8, 7
    ),
    "by tensors": lambda x: torch.fake_quantize_per_tensor_affine(
        x, torch.full((1,), 0.11), torch.full((1,), 2, dtype=torch.int32), -8, 7
    ),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_values_rounded_to_few_bits(name: str) -> None:
    """Rounding jumps: equal to eager, not near to float64."""
    graph = passed(graph_of(lambda m, x: ROUNDED[name](x), X))
    assert not [name for name in operators(graph) if "fake_quantize" in name]
    wanted = ROUNDED[name](X)
    for found, want in zip(eager(graph, (X,)), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert torch.equal(found, want)


@pytest.mark.parametrize("name", RESIZED)
def test_bytes_are_resized_as_torch_does(name: str) -> None:
    """To the bit: torch has a fixed-point arithmetic for them."""
    x = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    graph = passed(graph_of(lambda m, x: F.interpolate(x, **RESIZED[name]), x))
    assert torch.equal(eager(graph, (x,))[0], F.interpolate(x, **RESIZED[name]))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiased(mode: str) -> None:
    graph = graph_of(lambda m, x: F.interpolate(x, size=(5, 11), mode=mode, antialias=True), IMAGE)
    agrees(graph, passed(graph))


@pytest.mark.parametrize("density", [False, True])
def test_histograms_of_points(density: bool) -> None:
    def function(m: Any, x: torch.Tensor) -> Any:
        counts, edges = torch.histogramdd(x, [3, 2, 4], density=density)
        return counts, *edges, torch.histogramdd(x, [torch.arange(-2.0, 3)] * 3, weight=x[:, 0].abs()).hist

    graph = graph_of(function, X[0, :, :3].contiguous())
    agrees(graph, passed(graph))


HALVES: dict[str, Callable[..., Any]] = {
    "addbmm": lambda x: torch.addbmm(x[0, :, :6], x, x.mT),
    "embedding_bag": lambda x: F.embedding_bag(torch.arange(6) // 2, x[0], torch.tensor([0, 4])),
    "bilinear": lambda x: F.bilinear(x[..., :4], x[..., 4:8], x[:, :4, :4].contiguous(), x[0, 0, :2]),
    "filled": lambda x: torch.full_like(x, 8.3961) - x,
    "statistics": lambda x: F.batch_norm(x.clone(), x[0, :, 0].clone(), x[0, :, 1].abs().clone(), training=True),
}


@pytest.mark.parametrize("name", HALVES)
def test_halves_are_rounded_once(name: str) -> None:
    x = X.bfloat16()
    graph = passed(graph_of(lambda m, x: HALVES[name](x), x))
    want = HALVES[name](x.double() if name != "filled" else x)
    torch.testing.assert_close(eager(graph, (x,))[0], want.bfloat16(), rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent(kind: str) -> None:
    """Unrolled over a fixed number of time steps; both directions, two layers."""
    model = getattr(nn, kind)(16, 4, num_layers=2, bidirectional=True, batch_first=True).eval()
    names = {name: p.detach() for name, p in model.named_parameters()}

    def function(m: Any, x: torch.Tensor) -> Any:
        return torch.func.functional_call(model, {name: getattr(m, name) for name in names}, (x,))[0]

    graph = graph_of(function, X, **names)
    result = passed(graph)
    kept = {*KEPT, "mycc.assert_true"}  # what an operator asks of values stays, and is tested by the package
    assert not [name for name in operators(result) if name.removeprefix("aten.") not in kept]
    agrees(graph, result)


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cell(cell: type[nn.Module]) -> None:
    model = cell(16, 4).eval()
    names = {name: p.detach() for name, p in model.named_parameters()}

    def function(m: Any, x: torch.Tensor) -> Any:
        return torch.func.functional_call(model, {name: getattr(m, name) for name in names}, (x[:, 0],))

    graph = graph_of(function, X, dynamic=({0: Dim("batch", min=1, max=8)},), **names)
    result = passed(graph)
    kept = {*KEPT, "mycc.assert_true"}  # what an operator asks of values stays, and is tested by the package
    assert not [name for name in operators(result) if name.removeprefix("aten.") not in kept]
    agrees(graph, result)


def test_unknown_operators_stay() -> None:
    """What has no definition in terms of the kept operators is left whole, for the lowering to report by its name."""
    graph = graph_of(lambda m, x: (torch.special.airy_ai(x), torch.linalg.ldl_factor(x @ x.mT)[0]), X)
    assert {"aten.special_airy_ai", "aten.linalg_ldl_factor_ex"} <= set(operators(passed(graph)))


def test_kept_operators_are_the_callers_choice() -> None:
    from mycc.compiler.graph.passes import run_graph_passes

    graph = graph_of(lambda m, x: F.glu(x, -1), X)
    assert operators(run_graph_passes(graph, kept={*KEPT, "glu"}))["aten.glu"] == 1
    assert operators(run_graph_passes(graph, kept={*KEPT, "aten.glu.default"}))["aten.glu"] == 1


@pytest.mark.parametrize("wrong", [lambda x: x.sum(-1), lambda x: x, lambda x: torch.complex(x, x)])
def test_a_definition_that_gives_something_else_is_found(
    wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of(lambda m, x: F.glu(x, -1), X)
    monkeypatch.setitem(DECOMPOSITIONS, "aten.glu", lambda x, *_: wrong(x))
    with pytest.raises(ValueError, match="a definition gives"):
        passed(graph)


def test_results_that_nobody_uses_need_not_agree() -> None:
    """Those of embedding_bag for its gradient are made on some devices only."""
    places, table = torch.tensor([0, 3, 2, 1]), torch.randn(5, 3)
    graph = graph_of(lambda m, i: F.embedding_bag(i, table, torch.tensor([0, 2]), mode="mean"), places)
    agrees(graph, passed(graph))


@pytest.mark.parametrize(
    ("function", "assertions"),
    [(lambda i: F.one_hot(i, 5), 1), (lambda i: torch.ops.aten.one_hot.default(i, 5), 2)],
    ids=["by the capture", "by torch's definition"],
)
def test_what_definitions_assert_is_kept(function: Callable[..., Any], assertions: int) -> None:
    places = torch.tensor([[0, 3], [2, 1]])
    graph = graph_of(lambda m, i: function(i), places)
    result = passed(graph)
    assert operators(result)["mycc.assert_true"] == assertions
    assert torch.equal(eager(result, (places,))[0], F.one_hot(places, 5))
    for wrong in (-1, 5):
        with pytest.raises(RuntimeError, match="Class values must be"):
            eager(result, (torch.full((2, 2), wrong),))


def test_assertions_of_shapes_leave_nothing() -> None:
    graph = graph_of(lambda m, x: x * 2, torch.randn(3))
    nodes = graph.module.graph
    product = next(n for n in nodes.nodes if n.op == "call_function")
    with nodes.inserting_after(product):
        asserted = torch.ops.aten._assert_tensor_metadata.default
        nodes.call_function(asserted, (product,), {"dtype": torch.float32}).meta["val"] = None
    assert operators(passed(graph)) == {"aten.mul": 1}


@pytest.mark.parametrize("place", [0, -1], ids=["first", "last"])
def test_an_element_put_into_a_dimension_that_is_two_of_the_example(place: int) -> None:
    """What is left of it is 1, which torch would take for its size whatever the dimension."""

    def increased(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[::2][place][0] += 1
        return x

    x = torch.arange(24.0).reshape(4, 3, 2)
    graph = passed(graph_of(lambda m, x: increased(x), x, dynamic=({0: Dim("n", min=1, max=9)},)))
    for n in (1, 2, 3, 9):
        given = torch.arange(6.0 * n).reshape(n, 3, 2)
        assert torch.equal(eager(graph, (given,))[0], increased(given))


def test_operators_that_are_alike_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that differ in an argument, a shape or a dtype have definitions of their own."""
    traced = []
    make = decompose.make_fx
    monkeypatch.setattr(decompose, "make_fx", lambda run, **how: traced.append(run) or make(run, **how))

    def four(m: Any, x: torch.Tensor) -> torch.Tensor:
        same = F.glu(x.repeat(1, 2), -1) + F.glu(x.repeat(1, 2) * 2, -1) * 3
        return same + F.glu(x.repeat(2, 1), 0) + F.glu(x.repeat(1, 2).double(), -1).float()

    x = torch.randn(4, 4)
    graph = graph_of(four, x)
    result = passed(graph)
    assert len(traced) == 3
    torch.testing.assert_close(eager(result, (x,))[0], four(None, x))

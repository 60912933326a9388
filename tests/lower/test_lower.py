"""Lowering: small modules as programs of the loop IR; refusals with the user's lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from mycc import CompileError
from mycc.compiler.capture import capture
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.ir.printer import print_program
from mycc.compiler.lower import lower
from mycc.compiler.lower.core.constants import Constant, Dense, Panels
from mycc.compiler.lower.core.registry import REGISTRY, Registry
from mycc.compiler.model.graph import ModelGraph
from mycc.compiler.model.operators.functional import functional_twin
from mycc.compiler.model.operators.kept import CUSTOM
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from ..helpers.programs import Call1, lowered, plain
from ..helpers.vision_operators import register_library_operators

Golden = Callable[[str], None]
x = torch.randn(4, 6, 8)
image = torch.randn(2, 8, 6, 6)
ids = torch.randint(0, 11, (4, 5))
Function = Callable[..., Any]

FAMILIES: dict[str, tuple[Function, tuple[torch.Tensor, ...], tuple[nn.Module, ...]]] = {
    "pointwise": (lambda a, b: torch.where(a > 0, a * 2, b.exp()), (x, x[:, :1]), ()),
    "promotion": (lambda a, i: a + i, (x, torch.arange(8)), ()),
    "reduction": (lambda a: (a.mean(1), a.amax((0, 2)), a.argmax(-1)), (x,), ()),
    "softmax": (lambda a: torch.softmax(a, 1), (x,), ()),
    "variance": (lambda a: torch.var(a, -1), (x,), ()),
    "layer_norm": (lambda norm, a: norm(a), (x,), (nn.LayerNorm(8),)),
    "linear": (lambda up, a: up(a), (x,), (nn.Linear(8, 20),)),
    "matmul": (lambda a, b: a @ b.transpose(1, 2), (x, x), ()),
    "convolution": (lambda conv, a: conv(a), (image,), (nn.Conv2d(8, 20, 3, 2, 1),)),
    "depthwise": (lambda conv, a: conv(a), (torch.randn(2, 16, 6, 6),), (nn.Conv2d(16, 16, 3, padding=1, groups=16),)),
    "pooling": (lambda a: F.max_pool2d(a, 3, 2, 1), (image,), ()),
    "attention": (
        lambda q, m: F.scaled_dot_product_attention(q, q, q, m),
        (torch.randn(2, 3, 5, 8), torch.randn(2, 1, 1, 5)),
        (),
    ),
    "embedding": (lambda e, i: e(i), (ids,), (nn.Embedding(11, 8),)),
    "indexing": (lambda a, i: a[:, i % 6], (x, ids), ()),
    "concatenation": (lambda a, b: torch.cat([a, b[:, 1:3]], 1), (x, x), ()),
    "padding": (lambda a: F.pad(a, (1, 2), value=1.0), (x,), ()),
    "generated": (lambda a: a + torch.arange(8) * torch.ones(6, 1), (x,), ()),
    "views": (lambda a: a.transpose(1, 2).reshape(-1, 2, 4, 6).flip(1)[:, 0], (x,), ()),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str, golden: Golden) -> None:
    function, inputs, parts = FAMILIES[family]
    result = lowered(function, *inputs, parts=parts)
    golden(plain(print_program(result.program)))


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in ("embedding", "indexing")])
def test_family_with_a_dynamic_batch(family: str) -> None:
    function, inputs, parts = FAMILIES[family]
    dynamic = family not in ("pointwise", "promotion", "concatenation")
    result = lowered(function, *inputs, parts=parts, dynamic=dynamic)
    assert result.program.sizes == (("batch",) if dynamic else ())


VIEWS: dict[str, Function] = {
    "view": lambda a: a.view(24, 8),
    "permute": lambda a: a.permute(2, 0, 1),
    "slice": lambda a: a[1:3, :, ::2],
    "select": lambda a: a[:, 2],
    "expand": lambda a: a[:, :1].expand(4, 6, 8),
    "squeeze": lambda a: a.unsqueeze(1).squeeze(1),
    "split": lambda a: a.split(2, 1)[1],
    "flip": lambda a: a.flip(0),
    "chunk of a transpose": lambda a: a.transpose(1, 2).chunk(2, 1)[1],
}


@pytest.mark.parametrize("view", VIEWS)
def test_views_cost_nothing(view: str) -> None:
    alone = lowered(lambda a: torch.exp(a.sum()), x, passes=False).program
    seen = lowered(lambda a: torch.exp(VIEWS[view](a).sum()), x, passes=False).program
    assert len(seen.nodes) == len(alone.nodes)


def test_a_reshape_copies_only_where_no_strides_do() -> None:
    assert len(lowered(lambda a: a.transpose(0, 1).reshape(24, 8).sum(), x, passes=False).program.nodes) == 2
    assert len(lowered(lambda a: a[:, :, :4].reshape(24, 4).sum(), x, passes=False).program.nodes) == 1


def test_nodes_know_their_operators_and_lines() -> None:
    program = lowered(lambda up, a: torch.relu(up(a)), x, parts=(nn.Linear(8, 4),)).program
    assert [n.origin.ops for n in program.nodes] == [("aten.linear",), ("aten.relu",)]
    assert all(line.rsplit(":", 1)[0].endswith(".py") for n in program.nodes for line in n.origin.lines)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(40, 8), nn.Linear(8, 40, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, i: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(i))


def test_a_tied_weight_is_stored_once() -> None:
    result = lowered(lambda m, i: m(i), ids, parts=(Tied(),))
    used = {b for n in result.program.nodes for b in n.reads() if b.kind == "const"}
    (constant,) = [c for c, buffer in result.constants.items() if buffer in used]
    assert constant.layout == Panels()
    assert constant.elements == 48 * 8  # 40 rows in panels of 16


def test_weights_lie_in_panels_and_others_as_they_are() -> None:
    result = lowered(lambda up, norm, a: norm(up(a)), x, parts=(nn.Linear(8, 20), nn.LayerNorm(20)))
    used = {b for n in result.program.nodes for b in n.reads() if b.kind == "const"}
    layouts = [c.layout for c, buffer in result.constants.items() if buffer in used]
    assert layouts.count(Panels()) == 1
    assert layouts.count(Dense()) == 3


def test_an_output_twice_and_an_input_as_output() -> None:
    program = lowered(lambda a: (lambda h: (h, h, a, h.transpose(0, 1)))(torch.exp(a)), x).program
    assert [b.kind for b in program.outputs] == ["output"] * 4
    assert len({b.ident for b in program.outputs}) == 4


# refusals ------------------------------------------------------------------------------------------------------------
def unknown(a: torch.Tensor) -> torch.Tensor:
    b = torch._dyn_quant_pack_4bit_weight(a.to(torch.uint8), a, None, 4, 4, 4)[:16].view(4, 4).float()
    c = torch.logcumsumexp(torch.complex(a, b), 0)
    return torch.linalg.inv(torch.outer(c.real[0], b[0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_results_that_are_not_what_was_promised_are_found(dtype: torch.dtype) -> None:
    """A caller makes the memory of the results for what the graph promises."""
    graph = run_graph_passes(capture(Call1(lambda a: a * 2), (torch.ones(4, 3, dtype=dtype),)))
    assert lower(graph)
    larger = replace(graph, outputs=(replace(graph.outputs[0], shape=(4, 2)),))
    with pytest.raises(ValueError, match="not torch"):
        lower(larger)


def test_unsupported_operators_are_told_all_at_once() -> None:
    graph = run_graph_passes(capture(Call1(unknown), (torch.eye(4),)))
    with pytest.raises(CompileError) as caught:
        lower(graph)
    error = caught.value
    assert "cannot compile" in error.message
    text = "\n".join(error.details)
    assert len(error.details) == 2
    assert "torch._dyn_quant_pack_4bit_weight(a.to(torch.uint8), a, None, 4, 4, 4)" in text
    assert "aten::_dyn_quant_pack_4bit_weight" in text
    assert "aten::logcumsumexp.default of complex tensors: torch leaves the turns" in text
    assert "inv" not in text
    assert __file__ in text
    assert "(u8[4, 4], f32[4, 4])" in text
    assert error.hint


REFUSED: dict[str, tuple[Function, tuple[torch.Tensor, ...], str]] = {
    "several masks": (lambda a: a[a[:, 0] > 0, a[0] > 0], (torch.eye(4),), "several masks in one index"),
    "sums of exponents": (
        lambda a: torch.logcumsumexp(torch.complex(a, a), 0),
        (torch.eye(4),),
        "aten::logcumsumexp.default of complex tensors: torch leaves",
    ),
    "factors without pivots": (lambda a: torch.linalg.lu(a, pivot=False)[1], (torch.eye(4),), "without pivots"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    function, inputs, message = REFUSED[case]
    with pytest.raises(CompileError, match=message) as caught:
        lower(run_graph_passes(capture(Call1(function), inputs)))
    assert case == "several masks" or __file__ in str(caught.value)


@pytest.mark.parametrize(
    "write",
    [
        lambda x, y, k: x.index_add(0, k, y.unsqueeze(-1)),
        lambda x, y, k: x.index_put((k,), y[:2]),
        lambda x, y, k: x.put(k, y[:2, 0]),
    ],
)
def test_sources_of_other_shapes(write: Function) -> None:
    """torch's trace does not look; a body that no call runs may hold them."""

    def model(x: torch.Tensor, y: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 1e9, lambda x, y, k: write(x, y, k), lambda x, y, k: x * 2, (x, y, k))

    inputs = (torch.ones(4, 3), torch.ones(3, 3), torch.tensor([0, 2, 1]))
    with pytest.raises(CompileError, match=r"a source of shape|values of other sizes"):
        lower(run_graph_passes(capture(Call1(model), inputs)))


def test_strides_that_reach_beyond_the_least_size() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((2, 2), (2, 1)) + 1

    def captured(least: int) -> ModelGraph:
        return capture(model, (torch.ones(5),), dynamic_shapes=({0: Dim("n", min=least, max=16)},))

    with pytest.raises(CompileError, match="reaches element 3 of a tensor that may have n elements") as caught:
        lower(run_graph_passes(captured(2)))
    assert caught.value.hint == "Let the range of n start at 4."
    lower(run_graph_passes(captured(4)))


def test_a_name_is_registered_once() -> None:
    registry = Registry()
    registry.row("aten.one.default")(lambda: None)
    with pytest.raises(ValueError, match=r"aten.one.default has two lowerings"):
        registry.row("aten.one.default")(lambda: None)
    assert registry.names() == ("aten.one.default",)


def test_registered_names_are_operators_of_torch() -> None:
    import transformers.integrations.moe  # noqa: F401 - registers the operators of its own that mycc knows

    register_library_operators()
    functional_twin(torch.ops.torchaudio._lfilter_core_loop.default)

    for name in set(REGISTRY.names()) - CUSTOM:  # without what other tests register
        space, operator, overload = name.split(".")
        assert overload in getattr(getattr(torch.ops, space), operator).overloads(), name


def test_constants_are_equal_when_they_have_the_same_tensor() -> None:
    tensor = torch.zeros(3)
    first = Constant("w", tensor, Dense())
    assert first == Constant("w", tensor, Dense())
    assert first != Constant("w", tensor.clone(), Dense())
    assert first != Constant("v", tensor, Dense())
    assert {first: 1}[Constant("w", tensor, Dense())] == 1

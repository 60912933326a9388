"""torch.nn.attention.flex_attention: scores and masks as people write them, against torch's own eager form."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.ir.expr import Acc
from mycc.compiler.ir.structured import Attention, Gemm
from mycc.compiler.lower import lower
from mycc.compiler.lower.core.builder import call, number
from mycc.compiler.schedule.matrix.hidden_keys import hides_keys
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from ..helpers.programs import Call1
from ..helpers.sources import kernel_sources

draw = torch.Generator().manual_seed(0)
BIAS, TABLE = torch.randn(4, generator=draw), torch.randn(4, 40, generator=draw)
DOCUMENT = torch.tensor([0] * 5 + [1] * 6 + [2] * 5)
Score = Callable[..., torch.Tensor]
SCORES: dict[str, Score | None] = {
    "plain": None,
    "causal with a slope": lambda s, b, h, i, j: torch.where(i >= j, s + (j - i) * 0.1, -float("inf")),
    "slope of a head": lambda s, b, h, i, j: s + BIAS[h] * (i - j),
    "table of distances": lambda s, b, h, i, j: s + TABLE[h, i - j + 20],
    "row of a table": lambda s, b, h, i, j: s + TABLE[h][i],
    "softcap": lambda s, b, h, i, j: 5 * torch.tanh(s / 5),
    "rows without a key": lambda s, b, h, i, j: torch.where(i > 3, s, -float("inf")),
    "of a batch": lambda s, b, h, i, j: s * (b + 1),
}
MASKS: dict[str, Score] = {
    "causal": lambda b, h, i, j: i >= j,
    "documents": lambda b, h, i, j: (DOCUMENT[i] == DOCUMENT[j]) & (i >= j),
    "sliding window": lambda b, h, i, j: (i >= j) & (i - j < 4),
    "nothing": lambda b, h, i, j: i < 0,
}


def operands(heads: int = 4, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(2, h, 16, 8, generator=draw).to(dtype) for h in (4, heads, heads))


def compared(function: Callable[..., Any], inputs: tuple[torch.Tensor, ...], folder: Path, **options: Any) -> None:
    package = mycc.compile(Call1(function), inputs, out=folder / "flex.pkg", **options)
    found = mycc.load(package)(*inputs)
    wanted = function(*inputs)
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for f, w in pairs:
        np.testing.assert_allclose(f.float().numpy(), w.float().numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", SCORES)
def test_scores(name: str, tmp_path: Path) -> None:
    compared(lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES[name]), operands(), tmp_path)


@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str, tmp_path: Path) -> None:
    mask = MASKS[name]

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return flex_attention(q, k, v, block_mask=create_block_mask(mask, None, None, 16, 16, device="cpu"))

    compared(attention, operands(), tmp_path)


def test_grouped_heads_scale_and_statistics(tmp_path: Path) -> None:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        score = SCORES["rows without a key"]
        return flex_attention(q, k, v, score_mod=score, scale=0.3, enable_gqa=True, return_lse=True)

    compared(attention, operands(2), tmp_path)


class Flex(torch.nn.Module):
    """Tables are buffers, and a score reads more of them than single numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor([0.1, 0.2, 0.3, 0.4]))
        self.register_buffer("table", torch.randn(4, 3, generator=draw))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return flex_attention(q, k, v, lambda s, b, h, i, j: s * self.slopes.sum() + self.table[h].amax() * (i - j))


def test_scores_that_are_mapped(tmp_path: Path) -> None:
    """A function of more than single numbers; and an exported program with a dynamic number of texts."""
    module, inputs = Flex(), operands()
    found = mycc.load(mycc.compile(module, inputs, out=tmp_path / "mapped.pkg"))(*inputs)
    torch.testing.assert_close(found, module(*inputs), rtol=2e-5, atol=2e-6)
    batch = {0: torch.export.Dim("batch", min=1, max=8)}
    program = torch.export.export(module, inputs, dynamic_shapes=(batch, batch, batch))
    package = mycc.load(mycc.compile(program, inputs, out=tmp_path / "program.pkg"))
    one = tuple(x[:1] for x in inputs)
    torch.testing.assert_close(package(*one), module(*one), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_what_is_added_or_masked_is_an_attention(target: str, dtype: torch.dtype) -> None:
    """Not products with all scores in memory between them; heads that share keys read them where they lie."""

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        score, mask = (
            SCORES["causal with a slope"],
            create_block_mask(MASKS["sliding window"], None, None, 16, 16, "cpu"),
        )
        return flex_attention(q, k, v, score_mod=score, block_mask=mask, enable_gqa=True)

    graph = run_graph_passes(capture(Call1(attention), operands(2, dtype)))
    nodes = lower(graph, None, target).program.nodes
    (found,) = [node for node in nodes if isinstance(node, Attention)]
    assert not any(isinstance(node, Gemm) for node in nodes)
    assert [o.buffer.kind for o in (found.q, found.k, found.v)] == ["input"] * 3


def test_bfloats(tmp_path: Path) -> None:
    """Products of bfloat16 are exact in float32, in which the scores are changed."""
    inputs = operands(2, torch.bfloat16)

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return flex_attention(q, k, v, score_mod=SCORES["causal with a slope"], enable_gqa=True)

    found = mycc.load(mycc.compile(Call1(attention), inputs, out=tmp_path / "bfloats.pkg"))(*inputs)
    wanted = attention(*(x.double() for x in inputs))
    error = (attention(*inputs).double() - wanted).abs().max()
    assert (found.double() - wanted).abs().max() <= 1.5 * error


def test_blocks_of_keys_that_a_mask_hides_are_not_read(tmp_path: Path) -> None:
    """Of 1,000 keys the kernel takes blocks of 384. NaN in the first keys, which the later rows do not see, would make
    NaN of them (0 * NaN) if their block were multiplied."""

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, document: torch.Tensor) -> torch.Tensor:
        def mask(b: Any, h: Any, i: Any, j: Any) -> Any:
            return (document[i] == document[j]) & (i >= j) & (i - j < 100)

        return flex_attention(q, k, v, block_mask=create_block_mask(mask, None, None, 1000, 1000, device="cpu"))

    q, k, v = (torch.randn(1, 2, 1000, 16, generator=draw) for _ in range(3))
    document = (torch.arange(1000) >= 390).long()
    package = mycc.compile(Call1(attention), (q, k, v, document), out=tmp_path / "flex.pkg", verify=False)
    assert any("kHides = true" in source for source in kernel_sources(package))
    model = mycc.load(package)
    wanted = attention(*(x.double() for x in (q, k, v)), document).float()
    torch.testing.assert_close(model(q, k, v, document), wanted, rtol=2e-5, atol=2e-6)
    k[:, :, :200], v[:, :, :200] = float("nan"), float("nan")
    found = model(q, k, v, document)
    torch.testing.assert_close(found[:, :, 408:], wanted[:, :, 408:], rtol=2e-5, atol=2e-6)
    assert found[:, :, :200].isnan().all()


@pytest.mark.parametrize("heads", [1, 3])
def test_so_for_one_query_of_each_text(tmp_path: Path, heads: int) -> None:
    """A step of generation: of 1,000 keys each text sees its own, here not the first and not the last. NaN elsewhere is
    in blocks of 128 that are not read."""
    first, last = torch.tensor([0, 130, 700, 999]), torch.tensor([0, 500, 900, 999])

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, seen[:, None, None], enable_gqa=True)

    keys = torch.arange(1000)
    seen = (keys >= first[:, None]) & (keys <= last[:, None])
    q = torch.randn(4, 2 * heads, 1, 16, generator=draw)
    k, v = (torch.randn(4, 2, 1000, 16, generator=draw) for _ in range(2))
    package = mycc.compile(Call1(attention), (q, k, v, seen), out=tmp_path / "step.pkg", verify=False)
    model, wanted = mycc.load(package), attention(*(x.double() for x in (q, k, v)), seen).float()
    torch.testing.assert_close(model(q, k, v, seen), wanted, rtol=2e-5, atol=2e-6)
    block = keys // 128
    for text in range(4):
        hidden = (block < first[text] // 128) | (block > last[text] // 128) & (block < 7)
        k[text, :, hidden], v[text, :, hidden] = float("nan"), float("nan")
    torch.testing.assert_close(model(q, k, v, seen), wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("score", "hides"),
    [
        (lambda p, m, low: call("where", m, p, low), True),
        (lambda p, m, low: call("add", p, call("where", m, number(0.0, "f32"), low)), True),
        (lambda p, m, low: call("where", m, call("add", p, number(2.0, "f32")), low), True),
        (lambda p, m, low: call("add", p, number(2.0, "f32")), False),
        (lambda p, m, low: call("where", m, call("mul", call("tanh", p), number(5.0, "f32")), low), True),
        (lambda p, m, low: call("log", p), False),
        (lambda p, m, low: call("where", call("lt", p, number(0.0, "f32")), p, low), False),
        (lambda p, m, low: call("where", m, call("log", p), low), False),
    ],
)
def test_scores_that_hide_keys(score: Callable[..., Any], hides: bool) -> None:
    masked = call("lt", number(1.0, "f32"), number(2.0, "f32"))
    assert hides_keys(score(Acc("score", "f32"), masked, number(-math.inf, "f32"))) == hides

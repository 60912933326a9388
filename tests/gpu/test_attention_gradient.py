"""Attention in a training step and its gradient, through Triton's interpreter, against float64."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from mycc.compiler.capture import capture
from mycc.compiler.ir.structured import Attention, AttentionGradient
from mycc.compiler.model.operators.trained_attention import attention_gradient, trained_attention
from mycc.runtime.errors import CompileError
from torch import Tensor
from torch.export import Dim
from torch.fx.experimental.proxy_tensor import make_fx

from ..helpers.device_programs import program_of, run_interpreted
from ..helpers.evaluation import answer, given_to, wide
from ..helpers.triton_interpreter import TritonInterpreter


@dataclass(frozen=True)
class Case:
    """heads: of queries, of keys. size: of queries and keys, and of values. mask: see masks_of()."""

    heads: tuple[int, int] = (2, 2)
    queries: int = 40
    keys: int = 40
    size: tuple[int, int] = (32, 32)
    causal: bool = False
    mask: str = ""
    dropout: float = 0.0
    dtype: torch.dtype = torch.float32
    scale: float | None = None
    parts: int = 1


CASES = {
    "one block": Case(),
    "one block, causal": Case(causal=True),
    "one block of keys, several of queries": Case(queries=70, keys=50),
    "blocks": Case(queries=70, keys=150, parts=2),
    "blocks, causal": Case(queries=150, keys=150, causal=True, parts=2),
    "more queries than keys, causal": Case(queries=170, keys=140, causal=True, parts=2),
    "more keys than queries, causal": Case(queries=33, keys=130, causal=True, parts=2),
    "heads that share keys": Case(heads=(6, 2), queries=20, keys=30),
    "heads that share keys, blocks": Case(heads=(4, 1), queries=70, keys=130, causal=True, parts=2),
    "heads of 24 and 40": Case(size=(24, 40), queries=33, keys=150, parts=2),
    "heads of 80": Case(size=(80, 80), queries=33, keys=33, parts=2),
    "heads of 160": Case(size=(160, 160), queries=20, keys=20, parts=2),
    "one query": Case(queries=1, keys=200, parts=2),
    "one key": Case(queries=40, keys=1),
    "bools": Case(mask="bools"),
    "bools, blocks": Case(mask="bools", queries=70, keys=150, parts=2),
    "rows without a key": Case(mask="rows", queries=70, keys=150, parts=2),
    "rows without a key, one block": Case(mask="rows"),
    "added": Case(mask="added"),
    "rows that -1e9 hides": Case(mask="low", queries=70, keys=150, parts=2),
    "rows that the smallest number hides": Case(mask="lowest"),
    "up to a place": Case(mask="up to", queries=70, keys=150, parts=2),
    "a triangle": Case(mask="triangle", queries=150, keys=150, dropout=0.2, parts=2),
    "a window": Case(mask="window", queries=150, keys=150, parts=2),
    "a window, heads that share keys": Case(heads=(4, 2), mask="window", queries=150, keys=150, parts=2),
    "dropout": Case(dropout=0.25),
    "dropout, blocks": Case(dropout=0.25, queries=70, keys=150, causal=True, parts=2),
    "dropout, heads that share keys": Case(heads=(4, 2), dropout=0.5, mask="bools"),
    "dropout, a mask of the model's own": Case(dropout=0.5, mask="own"),
    "a scale below 0": Case(scale=-0.3, mask="bools"),
    "a scale below 0, causal": Case(scale=-0.3, causal=True, queries=70, keys=70),
    "a scale below 0, blocks": Case(scale=-0.3, queries=70, keys=150, parts=2),
    "bf16": Case(dtype=torch.bfloat16, queries=150, keys=150, causal=True, parts=2),
    "bf16, one block, dropout": Case(dtype=torch.bfloat16, queries=70, keys=70, dropout=0.25, mask="bools"),
    "f16": Case(dtype=torch.float16, queries=70, keys=150, dropout=0.1, parts=2),
}


class Model(torch.nn.Module):
    """The result and the three gradients."""

    def __init__(self, case: Case, spelled: bool = False):
        super().__init__()
        self.case, self.spelled = case, spelled
        own = torch.rand((2, 1, case.queries, case.keys), generator=torch.Generator().manual_seed(1)) < 0.7
        self.register_buffer("own", own)

    def forward(self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> Any:
        case, given = self.case, list(others)
        kept = given.pop(0) if case.dropout else None
        m, n = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
        masks = {"up to": n <= m + 20, "window": (n <= m) & (m - n < 24), "own": self.own, "triangle": n <= m}
        mask = given.pop(0) if given else masks.get(case.mask)
        scale = case.scale or 1 / math.sqrt(case.size[0])
        settings = (mask, kept, case.dropout, case.causal, scale)
        forward: Any = trained_attention if self.spelled else torch.ops.mycc.trained_attention
        backward: Any = attention_gradient if self.spelled else torch.ops.mycc.attention_gradient
        out, log, top = forward(q, k, v, *settings)
        return out, *backward(grad, q, k, v, out, log, top, *settings)


def inputs_of(case: Case) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    (heads, groups), (size, values) = case.heads, case.size

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw).to(case.dtype)

    found = [
        normal(2, heads, case.queries, values),
        normal(2, heads, case.queries, size),
        normal(2, groups, case.keys, size),
        normal(2, groups, case.keys, values),
    ]
    shape = (2, heads, case.queries, case.keys)
    if case.dropout:
        found.append(torch.rand(shape, generator=draw) >= case.dropout)
    mask = torch.rand((2, 1, *shape[2:]), generator=draw)
    if case.mask in ("bools", "rows"):
        found.append(mask < 0.7)
    elif case.mask == "added":
        found.append(torch.where(mask < 0.7, mask, -math.inf).to(case.dtype))
    elif case.mask in ("low", "lowest"):
        low = -1e9 if case.mask == "low" else torch.finfo(case.dtype).min
        found.append(torch.where(mask < 0.7, 0.0, low))
        found[-1][:, :, 3] = low
    if case.mask in ("rows", "bools"):
        found[-1][:, :, :: 5 if case.mask == "rows" else 1000] = False
    return found


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, interpreter: TritonInterpreter) -> None:
    case = CASES[name]
    inputs = inputs_of(case)
    program = program_of(capture(Model(case), tuple(inputs)))
    nodes, launches = program.schedule.program.nodes, program.code.entries[0].launches
    assert sum(isinstance(n, Attention) for n in nodes) == 1
    assert sum(isinstance(n, AttentionGradient) for n in nodes) == 1
    assert sum(launch.kernel.symbol.startswith("attention_gradient") for launch in launches) == case.parts
    known = [n.causal for n in nodes if isinstance(n, Attention | AttentionGradient)]
    assert known == [case.causal or case.mask == "triangle"] * 2
    scores = 2 * case.heads[0] * case.queries * case.keys
    exact = torch.float32 if case.mask == "low" else torch.float64  # which holds a score beside -1e9
    wanted = Model(case, True)(*(t if t.dtype == torch.bool else t.to(exact) for t in inputs))
    found = run_interpreted(program, interpreter, inputs, {})
    rough = case.dtype != torch.float32
    for f, w in zip(found, wanted, strict=True):
        assert f.dtype == case.dtype
        torch.testing.assert_close(f.double(), w.double(), rtol=2e-2 if rough else 2e-5, atol=2e-2 if rough else 2e-5)
    made = [b for n in nodes for b in n.writes() if case.keys > 1 and b.size.constant == scores]
    assert not made, "scores are stored"


@pytest.mark.parametrize("name", ["heads that share keys", "rows that the smallest number hides", "dropout, blocks"])
def test_the_evaluator_agrees(name: str) -> None:
    case = CASES[name]
    inputs = inputs_of(case)
    program = program_of(capture(Model(case), tuple(inputs)))
    wanted = Model(case, True)(*(wide(t) for t in inputs))
    for stage in (program.lowered.program, program.schedule.program):
        found = answer(stage, given_to(program.lowered, inputs), {}, "cuda")
        assert not isinstance(found, str)
        for f, w in zip(found, wanted, strict=True):
            torch.testing.assert_close(torch.from_numpy(f).reshape(w.shape), w, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mask", ["", "up to"])
def test_sizes_of_a_call(mask: str, interpreter: TritonInterpreter) -> None:
    """Queries and keys are known when it is called: blocks that they do not fill, and fewer than a block."""
    case = Case(heads=(4, 2), causal=not mask, mask=mask)
    batch, queries, keys = Dim("batch", max=8), Dim("queries", max=500), Dim("keys", max=500)
    sizes = ({0: batch, 2: queries}, {0: batch, 2: queries}, {0: batch, 2: keys}, {0: batch, 2: keys})
    graph = capture(Model(case), tuple(inputs_of(case)), dynamic_shapes=sizes)
    program = program_of(graph)
    for m, n in ((40, 40), (1, 130), (100, 7), (129, 64)):
        inputs = inputs_of(replace(case, queries=m, keys=n))
        wanted = Model(case, True)(*(t.double() for t in inputs))
        for f, w in zip(run_interpreted(program, interpreter, inputs, {}), wanted, strict=True):
            torch.testing.assert_close(f.double(), w, rtol=2e-5, atol=2e-5)


#: mask, and blocks of keys and of queries that nobody sees: they hold NaN
UNSEEN = {
    "up to": (Case(mask="up to", queries=20, keys=300), slice(192, 300), slice(0, 0)),
    "a window": (Case(mask="window", queries=300, keys=100), slice(0, 0), slice(192, 300)),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_hidden_blocks_are_not_read(name: str, interpreter: TritonInterpreter) -> None:
    case, keys, queries = UNSEEN[name]
    inputs = inputs_of(case)
    program = program_of(capture(Model(case), tuple(inputs)))
    wanted = Model(case, True)(*(t.double() for t in inputs))
    grad, q, k, v = (t.clone() for t in inputs)
    for rows, places in ((grad, queries), (q, queries), (k, keys), (v, keys)):
        rows[:, :, places] = math.nan
    found = run_interpreted(program, interpreter, (grad, q, k, v), {})
    unseen = {1: queries, 2: keys, 3: keys}
    for i, places in unseen.items():  # of a query that sees nothing all are 0 but what its own row made of NaN
        shown = torch.ones(wanted[i].shape[2], dtype=torch.bool)
        shown[places] = False
        torch.testing.assert_close(found[i][:, :, shown].double(), wanted[i][:, :, shown], rtol=2e-5, atol=2e-5)


def test_a_loss_of_several_layers_differentiates_attention_once_each() -> None:
    """Of torch's own operators, whose gradient is traced on a CPU."""

    def step(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        parts = [t.detach().requires_grad_(True) for t in (q, k, v)]
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        y = F.scaled_dot_product_attention(y, parts[1], parts[2])
        return tuple(torch.autograd.grad(y.pow(2).sum(), parts))

    inputs = tuple(torch.randn(2, 2, 20, 16, generator=torch.Generator().manual_seed(i)) for i in range(3))
    program = program_of(capture(make_fx(step)(*inputs), inputs))
    assert sum(isinstance(n, AttentionGradient) for n in program.schedule.program.nodes) == 2


class Shared(torch.nn.Module):
    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, k, enable_gqa=True)


def test_an_unknown_number_of_heads_that_share_a_key_head_is_refused() -> None:
    """A program divides its head by a number: of one key head for all heads that would be their count."""
    inputs = torch.randn(2, 4, 20, 16), torch.randn(2, 1, 20, 16)
    graph = capture(Shared(), inputs, dynamic_shapes=({1: Dim("heads", min=2, max=16)}, None))
    with pytest.raises(CompileError, match="how many query heads share a key head"):
        program_of(graph)

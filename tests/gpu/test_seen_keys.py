"""Blocks of keys that comparisons in a mask hide are not read: they hold NaN here. Through Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from mycc.compiler.capture import capture
from mycc.compiler.ir.plans.gpu import AttentionPlan
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from ..helpers.device_programs import program_of, run_interpreted
from ..helpers.triton_interpreter import TritonInterpreter

Mask = Callable[[Tensor, Tensor, Tensor], Tensor]


def up_to(m: Tensor, n: Tensor, start: Tensor) -> Tensor:
    return n <= start + m


def behind(m: Tensor, n: Tensor, start: Tensor) -> Tensor:
    return start + m < n


def below(m: Tensor, n: Tensor, start: Tensor) -> Tensor:
    return n < start.to(torch.int32) + m


def window(m: Tensor, n: Tensor, start: Tensor) -> Tensor:
    return (n <= start + m) & (start + m - n < 24)


def places_of_a_window(m: Tensor, n: Tensor, start: Tensor) -> Tensor:
    return (n <= start + m) & (n > start + m - 200)


def near(m: Tensor, n: Tensor, start: Tensor) -> Tensor:
    return (n - (start + m)).abs() <= 20


def placed(m: Tensor, n: Tensor, start: Tensor) -> Tensor:
    """Of places alone; `start` says when nothing is seen at all."""
    return (m - n < 24) & (n - m <= 8) & (start > 0)


class _Model(torch.nn.Module):
    def __init__(self, mask: Mask):
        super().__init__()
        self.mask = mask

    def forward(self, q: Tensor, k: Tensor, v: Tensor, start: Tensor) -> Tensor:
        m, n = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask(m, n, start))


#: masks that only compare the key itself, so that blocks which all rows see need no comparison
EXACT = (up_to, behind, below, places_of_a_window)
#: mask, queries, keys, the key that the first query sees last, and which keys are left out: those of whole tiles
CASES = {
    "a prompt": (up_to, 40, 512, 30, (256, 512)),
    "a prompt, a part of a block": (up_to, 40, 300, 30, (128, 300)),
    "one query, its keys shared by programs": (up_to, 1, 2048, 300, (512, 2048)),
    "fewer": (below, 40, 300, 31, (128, 300)),
    "the end": (behind, 20, 512, 300, (0, 256)),
    "all": (up_to, 40, 300, 290, (300, 300)),
    "a window": (window, 40, 512, 300, (384, 512)),
    "a window, behind it": (window, 40, 512, 300, (0, 256)),
    "a window with blocks that all rows see": (places_of_a_window, 40, 512, 400, (0, 192)),
    "a window with blocks that all rows see, behind it": (places_of_a_window, 40, 512, 400, (448, 512)),
    "a window of which nothing is there": (places_of_a_window, 40, 512, -(2**40), (0, 512)),
    "on both sides": (near, 40, 512, 128, (0, 64)),
    "on both sides, behind them": (near, 40, 512, 128, (256, 512)),
    "of places": (placed, 40, 512, 1, (128, 512)),
    "more than there are": (up_to, 40, 300, 2**62, (300, 300)),
}


@pytest.mark.parametrize("name", CASES)
def test_hidden_blocks_are_not_read(name: str, interpreter: TritonInterpreter) -> None:
    mask, queries, keys, first, (begin, end) = CASES[name]
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, n, 32, generator=draw) for n in (queries, keys, keys))
    model, start = _Model(mask), torch.tensor([first])
    wanted = model(q, k, v, start)
    k[:, :, begin:end] = v[:, :, begin:end] = torch.nan
    program = program_of(capture(model, (q, k, v, start)))
    (plan,) = (x.plan for x in program.schedule.kernels if isinstance(x.plan, AttentionPlan))
    assert plan.seen is not None
    assert (plan.seen.shown is not None) == (mask in EXACT and not plan.cut.shared)
    assert plan.folded
    (found,) = run_interpreted(program, interpreter, (q, k, v, start), {})
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


class _Added(torch.nn.Module):
    """A mask of numbers that are added: the smallest float32 hides, and keys are on one side or on both."""

    def __init__(self, both: bool):
        super().__init__()
        self.both = both

    def forward(self, q: Tensor, k: Tensor, v: Tensor, start: Tensor) -> Tensor:
        m, n = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None]
        seen = (n - (start + m)).abs() <= 30 if self.both else n <= start + m
        mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@pytest.mark.parametrize(("both", "start"), [(False, 20), (True, 20), (True, 250), (False, -300)])
def test_added_masks_of_the_smallest_number(both: bool, start: int, interpreter: TritonInterpreter) -> None:
    """A row that such a mask hides as a whole has the mean of all values."""
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, n, 32, generator=draw) for n in (70, 100, 100))
    model, given = _Added(both), torch.tensor([start])
    program = program_of(capture(model, (q, k, v, given)))
    (found,) = run_interpreted(program, interpreter, (q, k, v, given), {})
    torch.testing.assert_close(found, model(q, k, v, given), rtol=1e-4, atol=1e-5)


class _Near(torch.nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        places = torch.arange(512)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=(places[:, None] - places).abs() < 24)


def test_a_mask_of_distances_is_not_stored(interpreter: TritonInterpreter) -> None:
    """The last 64 queries see keys from 425 on, in blocks of 64 at most."""
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 512, 32, generator=draw) for _ in range(3))
    wanted = _Near()(q, k, v)
    k[:, :, :256] = v[:, :, :256] = torch.nan
    program = program_of(capture(_Near(), (q, k, v)))
    (found,) = [x for x in program.schedule.kernels if isinstance(x.plan, AttentionPlan)]
    assert found.plan.seen is not None
    assert not any(b.kind == "const" for b in found.node.reads()), "the mask is stored"
    (result,) = run_interpreted(program, interpreter, (q, k, v), {})
    torch.testing.assert_close(result[:, :, 448:], wanted[:, :, 448:], rtol=1e-4, atol=1e-5)


class _Packed(torch.nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, texts: Tensor) -> Tensor:
        return varlen_attn(q, k, v, texts, texts, 200, 200, window_size=(-1, 0), enable_gqa=True)


def test_keys_of_other_texts_are_not_read(interpreter: TritonInterpreter) -> None:
    """Packed texts: no mask is stored, and the keys of the first text are read by its own rows alone."""
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(200, heads, 32, generator=draw) for heads in (2, 1, 1))
    texts = torch.tensor([0, 70, 74, 200], dtype=torch.int32)
    program = program_of(capture(_Packed(), (q, k, v, texts)))
    (plan,) = [x.plan for x in program.schedule.kernels if isinstance(x.plan, AttentionPlan)]
    assert plan.seen is not None
    assert plan.seen.begins
    assert plan.seen.ends
    stored = [b.size.constant for x in program.schedule.kernels for b in x.node.writes()]
    assert max(n for n in stored if n is not None) < 200 * 200, "a mask or scores are stored"
    own = [x[74:].transpose(0, 1)[None].double() for x in (q, k, v)]
    wanted = F.scaled_dot_product_attention(*own, is_causal=True, enable_gqa=True)[0].transpose(0, 1)
    k[:64] = v[:64] = torch.nan
    (found,) = run_interpreted(program, interpreter, (q, k, v, texts), {})
    torch.testing.assert_close(found[128:], wanted[54:].float(), rtol=1e-4, atol=1e-5)

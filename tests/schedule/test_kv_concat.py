"""Concatenated keys and values: which ones attention reads from their parts, and which are still put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mycc.compiler.ir.structured import Attention
from mycc.compiler.schedule import Schedule
from torch.nn import functional as F

from ..helpers.programs import scheduled

q, k, v = (torch.randn(2, 4, n, 16) for n in (3, 3, 3))
past = torch.randn(2, 2, 4, 10, 16)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def appended(cache: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    return torch.cat((cache, new), 2)


def groups(t: torch.Tensor) -> torch.Tensor:
    """One key head for two of the queries, as transformers spells it."""
    return t[:, :, None].expand(2, 2, 2, t.shape[2], 16).reshape(2, 4, t.shape[2], 16)


def step(q: Any, k: Any, v: Any, past: Any) -> torch.Tensor:
    return attend(q, appended(past[0], k), appended(past[1], v))


def rests(s: Schedule) -> list[tuple[bool, bool]]:
    """Of every attention, whether the last of its keys, of its values lie elsewhere."""
    return [(n.k_rest is not None, n.v_rest is not None) for n in s.program.nodes if isinstance(n, Attention)]


APART: dict[str, Callable[..., Any]] = {
    "cache": step,
    "cache_behind": lambda q, k, v, past: attend(q, appended(k, past[0]), appended(v, past[1])),
    "computed_key": lambda q, k, v, past: attend(q, appended(past[0], k * k.cos()), appended(past[1], v)),
    "through_an_empty_one": lambda q, k, v, past: attend(
        q, appended(appended(past[0][:, :, :0], past[0]), k), appended(past[1], v)
    ),
    "groups": lambda q, k, v, past: attend(
        q, groups(appended(past[0, :, :2], k[:, :2])), groups(appended(past[1, :, 2:], v[:, :2]))
    ),
    "rows_of_all_heads": lambda q, k, v, past: attend(
        q,
        torch.cat((past[0].transpose(1, 2), k.transpose(1, 2)), 1).transpose(1, 2),
        torch.cat((past[1].transpose(1, 2), v.transpose(1, 2)), 1).transpose(1, 2),
    ),
}


@pytest.mark.parametrize("name", APART)
def test_read_from_the_parts(name: str) -> None:
    s = scheduled(APART[name], q, k, v, past)
    assert rests(s) == [(True, True)]
    copies = [n.origin.ops for n in s.program.nodes if "aten.cat" in n.origin.ops]
    assert copies == ([("aten.cos", "aten.mul", "aten.cat")] if name == "computed_key" else []), str(s)
    done = {r.reason for r in s.remarks if r.done and "read where it lies" in r.reason}
    assert done == {"read where it lies, one part after the other"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_cache_of_16_bits_is_read_as_it_is(dtype: torch.dtype) -> None:
    s = scheduled(step, *(t.to(dtype) for t in (q, k, v, past)))
    assert rests(s) == [(True, True)]
    assert [type(n) for n in s.program.nodes] == [type(n) for n in scheduled(step, q, k, v, past).program.nodes]


def both_computed(q: Any, k: Any, v: Any, past: Any) -> torch.Tensor:
    return attend(q, appended(past[0].exp(), k.exp()), appended(past[1], v))


TOGETHER: dict[str, tuple[Callable[..., Any], list[tuple[bool, bool]]]] = {
    "the cache is a result": (
        lambda q, k, v, past: (attend(q, (new := appended(past[0], k)), appended(past[1], v)), new),
        [(False, True)],
    ),
    "keys are the values": (
        lambda q, k, v, past: attend(q, (both := appended(past[0], k)), both),
        [(False, False)],
    ),
    "three parts": (
        lambda q, k, v, past: attend(q, torch.cat((past[0], k, v), 2), torch.cat((past[1], k, v), 2)),
        [(False, False)],
    ),
    "both parts are computed": (both_computed, [(False, True)]),
    "two attentions": (
        lambda q, k, v, past: attend(q, (keys := appended(past[0], k)), past[1, :, :, :1].expand(2, 4, 13, 16))
        + attend(q * 2, keys, past[0, :, :, :1].expand(2, 4, 13, 16)),
        [(False, False)] * 2,
    ),
    "along the heads": (
        lambda q, k, v, past: attend(torch.cat((q, q), 1), torch.cat((k, v), 1), torch.cat((v, k), 1)),
        [(False, False)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_put_together(name: str) -> None:
    function, expected = TOGETHER[name]
    assert rests(scheduled(function, q, k, v, past)) == expected


def test_two_computed_parts_say_why() -> None:
    reasons = [r.reason for r in scheduled(both_computed, q, k, v, past).remarks if not r.done]
    assert "both parts of a concatenation are computed" in reasons

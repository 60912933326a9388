"""Bytes and operations of kernels, as the manifest tells them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from mycc.compiler.schedule import Schedule
from mycc.compiler.schedule.report import kernel_rows
from mycc.runtime.formula import evaluate
from torch import nn
from torch.nn import functional as F

from ..helpers.programs import scheduled

x = torch.randn(4, 6, 32)
ids = torch.randint(0, 1000, (4, 6))
image = torch.randn(2, 8, 6, 6)
heads = torch.randn(2, 3, 16, 8)


def rows(s: Schedule) -> list[dict[str, Any]]:
    return kernel_rows(s, tuple(s.names))


def numbers(row: Mapping[str, Any], **sizes: int) -> tuple[int, int, int, int]:
    flops, moved, weights, writes = (evaluate(row[key], sizes) for key in ("flops", "bytes", "weights", "writes"))
    return flops, moved - weights - writes, weights, writes


# name -> function, modules, inputs, (operations, bytes of activations read, of weights, written)
CASES: dict[str, tuple[Callable[..., Any], tuple[nn.Module, ...], tuple[torch.Tensor, ...], tuple[int, ...]]] = {
    "map reads and writes each element": (lambda a: torch.relu(a + 1), (), (x,), (2 * 768, 3072, 0, 3072)),
    "broadcast operand once": (lambda a, b: a * b, (), (x, x[0, 0]), (768, 3072 + 128, 0, 3072)),
    "slice reads the slice": (lambda a: a[:, 2:4] * 2, (), (x,), (256, 1024, 0, 1024)),
    "embedding reads its rows": (
        lambda table, i: table(i), (nn.Embedding(1000, 32),), (ids,), (0, 24 * 8, 24 * 32 * 4, 24 * 32 * 4),
    ),
    "linear with bias": (
        lambda up, a: F.relu(up(a)), (nn.Linear(32, 48),), (x,),
        (2 * 24 * 32 * 48, 24 * 32 * 4, (32 * 48 + 48) * 4, 24 * 48 * 4),
    ),
    "linear with residual": (
        lambda up, a: up(a) + a, (nn.Linear(32, 32, bias=False),), (x,),
        (2 * 24 * 32 * 32, 24 * 32 * 4, 32 * 32 * 4, 24 * 32 * 4),
    ),
    "attention": (
        lambda q: F.scaled_dot_product_attention(q, q, q), (), (heads,),
        (2 * 2 * 3 * 16 * 16 * 16, 4 * 768, 0, 4 * 768),
    ),
    "causal attention": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (), (heads,),
        (2 * 2 * 3 * 16 * 17 // 2 * 16, 4 * 768, 0, 4 * 768),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_traffic(case: str) -> None:
    function, parts, inputs, expected = CASES[case]
    made = rows(scheduled(function, *inputs, parts=parts))
    (row,) = [row for row in made if row["kind"] == "attention"] or made
    assert numbers(row) == expected


def test_traffic_of_dynamic_sizes() -> None:
    (row,) = rows(scheduled(lambda up, a: up(a), x, parts=(nn.Linear(32, 48),), dynamic=True))
    fixed = (32 * 48 + 48) * 4
    assert numbers(row, batch=1) == (2 * 6 * 32 * 48, 6 * 32 * 4, fixed, 6 * 48 * 4)
    assert numbers(row, batch=5) == (2 * 30 * 32 * 48, 30 * 32 * 4, fixed, 30 * 48 * 4)


def test_parts_of_a_product_read_their_operands_once() -> None:
    wide = torch.randn(8, 18432)
    parts, total = rows(scheduled(lambda head, a: head(a), wide, parts=(nn.Linear(18432, 10),)))
    sums = 4 * 8 * 10
    assert numbers(parts) == (2 * 8 * 10 * 18432, 8 * 18432 * 4, 10 * 18432 * 4, sums * 4)
    assert numbers(total)[1:] == (sums * 4, 10 * 4, 8 * 10 * 4)


def test_a_convolution_reads_its_input_once() -> None:
    conv = nn.Conv2d(8, 16, 3, padding=1)
    made = rows(scheduled(lambda c, a: c(a), image.to(memory_format=torch.channels_last), parts=(conv,)))
    row = next(row for row in made if row["kind"] == "conv")
    flops, read, weights, written = numbers(row)
    assert flops == 2 * (2 * 36 * 16) * 8 * 9
    assert (read, written) == (2 * 36 * 8 * 4, 2 * 36 * 16 * 4)
    assert weights >= (8 * 9 + 1) * 16 * 4


def test_rows_read_their_input_once_in_all_stages() -> None:
    (row,) = rows(scheduled(lambda norm, a: norm(a), x, parts=(nn.LayerNorm(32),)))
    _, read, weights, written = numbers(row)
    assert (read, weights, written) == (3072, 2 * 32 * 4, 3072)

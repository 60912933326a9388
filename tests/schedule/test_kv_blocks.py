"""Keys and values in blocks: which gathers attention reads through their table, and that the values stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc.compiler.ir.structured import Attention
from mycc.compiler.schedule import Schedule
from torch.nn import functional as F

from ..helpers.programs import scheduled

BLOCKS, ROWS, KEYS = 12, 4, 14
q = torch.randn(2, 4, 3, 16)
keys, values = torch.randn(2, BLOCKS, 2, ROWS, 16)
table = torch.tensor([[7, 2, 11, 0, 5], [3, 3, 9, 8, 1]])


def rows(memory: torch.Tensor, table: torch.Tensor, count: int = KEYS) -> torch.Tensor:
    return torch.ops.mycc.read_blocks(memory, table, count)


def indexed(memory: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """The same by torch's own operators."""
    return memory[table].transpose(1, 2).reshape(2, 2, -1, 16)[:, :, :KEYS]


def all_rows(memory: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Every row of the blocks of a table."""
    return memory[table].transpose(1, 2).flatten(2, 3)


def attend(q: Any, k: Any, v: Any) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def step(q: Any, keys: Any, values: Any, table: Any) -> torch.Tensor:
    return attend(q, rows(keys, table), rows(values, table))


def masked(q: Any, keys: Any, values: Any, table: Any) -> torch.Tensor:
    seen = torch.arange(KEYS) <= torch.tensor([[11], [13], [5]])
    return F.scaled_dot_product_attention(q, rows(keys, table), rows(values, table), seen, enable_gqa=True)


def of_whole_blocks(q: Any, keys: Any, values: Any, table: Any) -> torch.Tensor:
    return attend(q, all_rows(keys, table), all_rows(values, table))


def one_text(q: Any, keys: Any, values: Any, table: Any) -> torch.Tensor:
    return attend(q[:1], rows(keys, table[:1]), rows(values, table[:1]))


def heads_in_rows(q: Any, keys: Any, values: Any, table: Any) -> torch.Tensor:
    """The heads of a row lie beside each other, and the table's numbers have 32 bits."""
    k, v = [m.flatten(1, 2)[table.int()].flatten(1, 2).unflatten(2, (2, 8)).transpose(1, 2) for m in (keys, values)]
    return attend(q[..., :8], k, v)


def of_one_head(q: Any, keys: Any, values: Any, table: Any) -> torch.Tensor:
    return attend(q, *(m[:, 0][table].flatten(1, 2)[:, None] for m in (keys, values)))


def texts_in_a_row(q: Any, keys: Any, values: Any, table: Any) -> torch.Tensor:
    """One row of a table has the keys of both texts, one behind the other."""
    k, v = [m.transpose(1, 2)[table.flatten()].reshape(2, -1, 2, 16).transpose(1, 2) for m in (keys, values)]
    return attend(q, k, v)


def used_twice(q: Any, keys: Any, values: Any, table: Any) -> torch.Tensor:
    k = rows(keys, table)
    return attend(q, k, rows(values, table)) + k.sum()


def in_blocks(s: Schedule) -> list[tuple[bool, bool]]:
    """Of every attention, whether its keys, its values are read through a table."""
    nodes = [n for n in s.program.nodes if isinstance(n, Attention)]
    return [(n.k_pages is not None, n.v_pages is not None) for n in nodes]


@pytest.mark.parametrize("function", [step, masked, of_whole_blocks, one_text, heads_in_rows, of_one_head])
def test_read_through_the_table(function: Callable[..., Any]) -> None:
    s = scheduled(function, q, keys, values, table)
    assert in_blocks(s) == [(True, True)], str(s)
    tests = [n for n in s.program.nodes if {"mycc.read_blocks", "aten.index"} & set(n.origin.ops)]
    assert len(tests) == 1  # of the table, for keys and values


@pytest.mark.parametrize("family", ["cpu", "cuda"])
def test_texts_in_a_row_are_copied(family: Any) -> None:
    assert in_blocks(scheduled(texts_in_a_row, q, keys, values, table, family=family)) == [(False, False)]


def test_what_others_read_too_is_copied() -> None:
    assert in_blocks(scheduled(used_twice, q, keys, values, table)) == [(False, True)]


def test_the_operator_is_torchs_indexing() -> None:
    assert torch.equal(rows(keys, table), indexed(keys, table))


class Both(torch.nn.Module):
    """Attention over blocks of 16 by a table that permutes them, and over the same rows one behind the other."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        memory = torch.randn(2, 32, 2, 16, 40).to(dtype)
        self.register_buffer("memory", memory)
        self.register_buffer("plain", memory.transpose(2, 3).reshape(2, 1, 512, 2, 40).transpose(2, 3).contiguous())

    def forward(self, q: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        count = 451  # no multiple of a block's rows
        memory = [rows(self.memory[i], table, count) for i in (0, 1)]
        plain = [self.plain[i, :, :, :count] for i in (0, 1)]
        return attend(q, *memory), attend(q, *plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_bits_as_rows_in_their_order(dtype: torch.dtype, tmp_path: Path) -> None:
    """A few queries read the cache where it lies, many pack it."""
    moved = torch.randperm(32, generator=torch.Generator().manual_seed(1))
    for queries in (1, 20):
        model = Both(dtype)
        q = torch.randn(1, 8, queries, 40).to(dtype)
        pkg = mycc.compile(model, (q, torch.arange(32)[None]), out=tmp_path / "both.pkg", verify=False)
        paged, plain = mycc.load(pkg)(q, torch.arange(32)[None])
        assert torch.equal(paged, plain)
        model.memory.copy_(model.memory[:, torch.argsort(moved)])
        pkg = mycc.compile(model, (q, moved[None]), out=tmp_path / "both.pkg", verify=False)
        m = mycc.load(pkg)
        assert torch.equal(m(q, moved[None])[0], plain)
        with pytest.raises(mycc.RunError, match="out of range"):
            m(q, torch.full((1, 32), 32))


def test_tables_count_from_the_last_block_as_torchs_indices_do(tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def forward(self, q: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
            return of_whole_blocks(q, keys, values, table)

    m = mycc.load(mycc.compile(Model(), (q, table), out=tmp_path / "whole.pkg", verify=False))
    negative = table.where(table < 7, table - BLOCKS)
    expected = of_whole_blocks(q.double(), keys.double(), values.double(), table)
    for given in (table, negative):
        torch.testing.assert_close(torch.as_tensor(m(q, given)).double(), expected, rtol=1e-5, atol=1e-5)
    for outside in (BLOCKS, -BLOCKS - 1):
        with pytest.raises(mycc.RunError, match="out of range"):
            m(q, torch.full_like(table, outside))


class Orders(torch.nn.Module):
    """Caches in other orders than that of the heads first, at any size, and in the branches of a condition."""

    def forward(self, q: Any, keys: Any, values: Any, table: Any) -> tuple[torch.Tensor, ...]:
        def branch(factor: float) -> Callable[..., torch.Tensor]:
            return lambda q, k, v, t: attend(q * factor, all_rows(k, t), all_rows(v, t))

        chosen = torch.cond(q.sum() > 0, branch(1.0), branch(2.0), (q, keys, values, table))
        return heads_in_rows(q, keys, values, table), chosen


def test_caches_in_other_orders(tmp_path: Path) -> None:
    batch, blocks, count = (torch.export.Dim(n, min=1, max=64) for n in ("batch", "blocks", "count"))
    shapes = ({0: batch}, {0: blocks}, {0: blocks}, {0: batch, 1: count})
    model, inputs = Orders(), (q, keys, values, table)
    m = mycc.load(mycc.compile(model, inputs, dynamic_shapes=shapes, out=tmp_path / "orders.pkg", verify=False))
    one = (-q[:1].abs(), keys[:5], values[:5], table[:1, 4:] - 5)
    for given in (inputs, one):
        expected = model(*(x.double() if x.is_floating_point() else x for x in given))
        for found, of in zip(m(*given), expected, strict=True):
            torch.testing.assert_close(torch.as_tensor(found).double(), of, rtol=1e-5, atol=1e-5)

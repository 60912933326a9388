"""torch.nn.attention.varlen_attn against a loop over the texts in float64: torch has kernels of it on CUDA alone."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention.varlen import AuxRequest, varlen_attn, varlen_attn_out

from ..helpers.sources import kernel_sources

Bounds = list[int]


def reference(
    q: Tensor, k: Tensor, v: Tensor, of_q: Bounds, of_k: Bounds, window: tuple[int, int] = (-1, -1),
    used: Bounds | None = None, scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The last query of a text stands at its last key. Rows of no text, and those that see no key, are 0."""
    out, sums = torch.zeros(*q.shape[:2], v.shape[2]).double(), torch.full(q.shape[:2], math.inf).double().T
    group = q.shape[1] // k.shape[1]
    for t, (first, last) in enumerate(itertools.pairwise(of_q)):
        begin = of_k[t]
        keys = of_k[t + 1] - begin if used is None else used[t]
        queries = q[first:last].double()
        own, values = (x[begin : begin + keys].double().repeat_interleave(group, 1) for x in (k, v))
        scores = torch.einsum("mhd,nhd->hmn", queries, own) * (q.shape[2] ** -0.5 if scale is None else scale)
        at = torch.arange(last - first)[:, None] + keys - (last - first) - torch.arange(keys)
        hidden = torch.zeros(at.shape, dtype=torch.bool)
        hidden |= (at > window[0]) if window[0] >= 0 else hidden
        hidden |= (at < -window[1]) if window[1] >= 0 else hidden
        scores = scores.masked_fill(hidden, -math.inf)
        out[first:last] = torch.einsum("hmn,nhd->mhd", scores.softmax(-1).nan_to_num(), values)
        rows = scores.logsumexp(-1)
        sums[:, first:last] = torch.where(rows == -math.inf, math.inf, rows)
    return out, sums


class Packed(torch.nn.Module):
    """All that the operator may be asked, of the same texts."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, of_q: Tensor, of_k: Tensor, used: Tensor) -> tuple[Tensor, ...]:
        own = k[: q.shape[0]], v[: q.shape[0]]
        causal, sums = varlen_attn(
            q, k, v, of_q, of_k, 8, 9, window_size=(-1, 0), enable_gqa=True, return_aux=AuxRequest(lse=True)
        )
        whole = varlen_attn(q, *own, of_q, of_q, 8, 8, enable_gqa=True, scale=0.3)
        window = varlen_attn(q, k, v, of_q, of_k, 8, 9, window_size=(2, 1), enable_gqa=True)
        parts = varlen_attn(q, k, v, of_q, of_k, 8, 9, window_size=(-1, 0), enable_gqa=True, seqused_k=used)
        return causal, sums, whole, window, parts


def operands(queries: int, keys: int, heads: int = 4, shared: int = 2, size: int = 16) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(n, h, size, generator=draw) for n, h in ((queries, heads), (keys, shared), (keys, shared))]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Compiled once, for any numbers of texts, queries and keys."""
    texts, rows = torch.export.Dim("texts", min=2, max=64), torch.export.Dim.DYNAMIC
    inputs = (*operands(20, 24), *(torch.tensor(x, dtype=torch.int32) for x in ([0, 8, 20], [0, 9, 24], [9, 12])))
    shapes = ({0: rows}, {0: rows}, {0: rows}, {0: texts + 1}, {0: texts + 1}, {0: texts})
    out = tmp_path_factory.mktemp("varlen") / "packed.pkg"
    mycc.compile(Packed(), inputs, dynamic_shapes=shapes, out=out, verify=False)
    return mycc.load(out)


CASES = {
    "two texts": ([0, 8, 20], [0, 9, 24], [9, 12]),
    "an empty text, and fewer keys than queries": ([0, 6, 6, 25], [0, 2, 7, 30], [1, 5, 23]),
    "rows of no text": ([0, 5, 11], [0, 11, 16], [11, 0]),
    "long texts": ([0, 400, 401, 1000], [0, 430, 431, 1100], [400, 1, 600]),
}


@pytest.mark.parametrize("name", CASES)
def test_texts(name: str, packed: Any) -> None:
    of_q, of_k, used = CASES[name]
    rows = 3 if name == "rows of no text" else 0
    q, k, v = operands(of_q[-1] + rows, of_k[-1] + rows)
    found = packed(q, k, v, *(torch.tensor(x, dtype=torch.int32) for x in (of_q, of_k, used)))
    causal, sums = reference(q, k, v, of_q, of_k, (-1, 0))
    wanted = (
        causal,
        sums,
        reference(q, k, v, of_q, of_q, scale=0.3)[0],
        reference(q, k, v, of_q, of_k, (2, 1))[0],
        reference(q, k, v, of_q, of_k, (-1, 0), used)[0],
    )
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(f.numpy(), w.numpy(), rtol=2e-5, atol=2e-6)


class Paged(torch.nn.Module):
    """Keys in pages of a pool, and the form that writes to a tensor."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, of_q: Tensor, table: Tensor, used: Tensor) -> tuple[Tensor, ...]:
        found = varlen_attn(
            q, k, v, of_q, None, 8, 8, window_size=(-1, 0), enable_gqa=True, seqused_k=used, block_table=table
        )
        out = torch.zeros_like(q)
        varlen_attn_out(out, q, k.flatten(0, 1), v.flatten(0, 1), of_q, of_q, 8, 8, enable_gqa=True)
        return found, out + 1


def test_pages_and_a_given_tensor(tmp_path: Path) -> None:
    of_q, used = [0, 3, 10], [7, 9]
    q, k, v = operands(10, 6 * 4)
    table = torch.tensor([[4, 1, 0], [2, 5, 3]], dtype=torch.int32)
    pools = tuple(x.unflatten(0, (6, 4)) for x in (k, v))
    inputs = (q, *pools, torch.tensor(of_q, dtype=torch.int32), table, torch.tensor(used, dtype=torch.int32))
    package = mycc.compile(Paged(), inputs, out=tmp_path / "paged.pkg")
    assert any("args.k_pages = " in source for source in kernel_sources(package)), "the pages are copied"
    found, given = mycc.load(package)(*inputs)
    own = [pool[table.long()].flatten(0, 2) for pool in pools]
    wanted, _ = reference(q, *own, of_q, [0, 12, 24], (-1, 0), used)
    torch.testing.assert_close(found, wanted.float(), rtol=2e-5, atol=2e-6)
    torch.testing.assert_close(given, reference(q, k, v, of_q, of_q)[0].float() + 1, rtol=2e-5, atol=2e-6)


class LongPages(torch.nn.Module):
    """Pages of 256 rows, as torch's kernels want them, in a pool of dynamic length."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, of_q: Tensor, table: Tensor, used: Tensor) -> Tensor:
        return varlen_attn(
            q, k, v, of_q, None, 8, 512, window_size=(100, 0), enable_gqa=True, seqused_k=used, block_table=table
        )


def test_pages_of_a_pool_that_grows(tmp_path: Path) -> None:
    of_q, used = [0, 1, 1, 4], [300, 0, 511]
    table = torch.tensor([[3, 1], [0, 0], [2, 4]], dtype=torch.int32)
    q, k, v = operands(4, 5 * 256)
    pools = tuple(x.unflatten(0, (5, 256)) for x in (k, v))
    inputs = (q, *pools, torch.tensor(of_q, dtype=torch.int32), table, torch.tensor(used, dtype=torch.int32))
    pages = torch.export.Dim("pages", min=1, max=50)
    shapes = (None, {0: pages}, {0: pages}, None, None, None)
    package = mycc.compile(LongPages(), inputs, out=tmp_path / "long.pkg", dynamic_shapes=shapes)
    assert any("args.k_pages = " in source for source in kernel_sources(package)), "the pages are copied"
    own = [pool[table.long()].flatten(0, 2) for pool in pools]
    wanted, _ = reference(q, *own, of_q, [0, 512, 1024, 1536], (100, 0), used)
    model = mycc.load(package)
    torch.testing.assert_close(model(*inputs), wanted.float(), rtol=2e-5, atol=2e-6)
    more = tuple(torch.cat([pool, pool[:2] * 3]) for pool in pools)
    torch.testing.assert_close(model(q, *more, *inputs[3:]), wanted.float(), rtol=2e-5, atol=2e-6)


class Causal(torch.nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, texts: Tensor) -> Tensor:
        return varlen_attn(q, k, v, texts, texts, 512, 512, window_size=(-1, 0), enable_gqa=True)


#: texts, the last of which begins behind a block of keys, of so many rows that no block is of two heads; rows from
#: here on see none of the first keys
LONG, LATER, HIDDEN = [0, 390, 396, 984], 408, 200


def test_keys_of_other_texts_are_not_read(tmp_path: Path) -> None:
    """NaN in them would make NaN of all rows (0 * NaN), were their block multiplied; no mask is stored."""
    q, k, v = operands(984, 984)
    texts = torch.tensor(LONG, dtype=torch.int32)
    package = mycc.compile(Causal(), (q, k, v, texts), out=tmp_path / "causal.pkg", verify=False)
    assert any("kHides = true" in source for source in kernel_sources(package))
    wanted, _ = reference(q, k, v, LONG, LONG, (-1, 0))
    k[:HIDDEN] = v[:HIDDEN] = torch.nan
    found = mycc.load(package)(q, k, v, texts)
    torch.testing.assert_close(found[LATER:], wanted[LATER:].float(), rtol=2e-5, atol=2e-6)

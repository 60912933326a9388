"""Forms of choices that kernels_loops.py times: sorting, masks, counts, lookups, and moves along every axis."""

from __future__ import annotations

import torch
from loop_forms import Form
from torch.nn import functional as F


def choices(megabytes: int) -> list[Form]:
    """Operators whose results depend on the values; float32 tensors of about `megabytes` MiB."""
    return [*orders(megabytes), *masks(megabytes), *counts(megabytes), *axes(megabytes)]


def orders(megabytes: int) -> list[Form]:
    n = megabytes << 16  # a quarter: sorting takes long
    rows, short, tiny = torch.randn(n // 1024, 1024), torch.randn(n // 100, 100), torch.randn(n // 8, 8)
    words = torch.randn(max(n // 50257, 1), 50257)
    line, cube = torch.randn(n), torch.randn(n // (256 * 256), 256, 256)
    whole = torch.randint(0, 1000, (n // 2048, 1024))
    return [
        Form("sort of rows", lambda a: a.sort(-1), (rows,)),
        Form("sort of rows, descending", lambda a: a.sort(-1, descending=True), (rows,)),
        Form("sort of rows of 100", lambda a: a.sort(-1), (short,)),
        Form("sort of rows of 8", lambda a: a.sort(-1), (tiny,)),
        Form("sort of words", lambda a: a.sort(-1, descending=True), (words,)),
        Form("sort of one row", lambda a: a.sort(-1), (line,)),
        Form("sort of the middle", lambda a: a.sort(1), (cube,)),
        Form("sort of rows, bf16", lambda a: a.sort(-1), (rows.to(torch.bfloat16),)),
        Form("sort of rows, i64", lambda a: a.sort(-1), (whole,)),
        Form("argsort of rows", lambda a: a.argsort(-1), (rows,)),
        Form("topk 1 of rows", lambda a: a.topk(1, -1), (rows,)),
        Form("topk 5 of rows", lambda a: a.topk(5, -1), (rows,)),
        Form("topk 50 of words", lambda a: a.topk(50, -1), (words,)),
        Form("topk 2 of 8", lambda a: a.topk(2, -1), (tiny,)),
        Form("topk 100 of rows", lambda a: a.topk(100, -1), (rows,)),
        Form("kthvalue of rows", lambda a: a.kthvalue(100, -1), (rows,)),
        Form("median of rows", lambda a: a.median(-1), (rows,)),
        Form("mode of rows, i64", lambda a: a.mode(-1), (whole,)),
    ]  # fmt: skip


def masks(megabytes: int) -> list[Form]:
    n = megabytes << 18
    x, line = torch.randn(n // 1024, 1024), torch.randn(n)
    some, few = torch.rand(x.shape) > 0.5, torch.rand(x.shape) > 0.98
    of_rows = torch.rand(len(x)) > 0.5
    return [
        Form("masked_select of half", torch.masked_select, (x, some)),
        Form("masked_select of few", torch.masked_select, (x, few)),
        Form("masked_select of half, bf16", torch.masked_select, (x.to(torch.bfloat16), some)),
        Form("rows by mask", lambda a, m: a[m], (x, of_rows), 4 * n + 4 * 1024 * int(of_rows.sum())),
        Form("elements above 0", lambda a: a[a > 0], (line,)),
        Form("nonzero of half", lambda m: m.reshape(-1).nonzero(), (some,)),
        Form("nonzero of few", lambda m: m.reshape(-1).nonzero(), (few,)),
        Form("nonzero, 2 dimensions", lambda m: m.nonzero(), (some,)),
        Form("masked_fill", lambda a, m: a.masked_fill(m, 0.0), (x, some)),
        Form("where of two", torch.where, (some, x, x.flip(0))),
        Form("masked_fill of rows", lambda a, m: a.masked_fill(m[:, None], 0.0), (x, of_rows)),
        Form("x[mask] = 0", lambda a, m: torch.where(m, 0.0, a), (x, some)),
        Form("tril", lambda a: a.tril(), (line.reshape(-1, 512, 512),)),
        Form("triu", lambda a: a.triu(1), (line.reshape(-1, 512, 512),)),
    ]


def counts(megabytes: int) -> list[Form]:
    n = megabytes << 16
    line, ids, many = torch.randn(n), torch.randint(0, 1000, (n,)), torch.randint(0, 1 << 20, (n,))
    edges = torch.linspace(-3, 3, 100)
    return [
        Form("unique", lambda a: torch.unique(a), (ids,)),
        Form("unique of many, inverse", lambda a: torch.unique(a, return_inverse=True), (many,)),
        Form("unique_consecutive", lambda a: torch.unique_consecutive(a), (ids.sort()[0],)),
        Form("bincount", lambda a: torch.bincount(a, minlength=1000), (ids,)),
        Form("bincount of many", lambda a: torch.bincount(a, minlength=1 << 20), (many,)),
        Form("histc", lambda a: torch.histc(a, 100, -3.0, 3.0), (line,)),
        Form("bucketize", torch.bucketize, (line, edges)),
        Form("searchsorted in many", torch.searchsorted, (line[: 1 << 20].sort()[0].contiguous(), line)),
        Form("isin", torch.isin, (ids[: 1 << 20], torch.arange(0, 1000, 7))),
        Form("one_hot i64", lambda i: F.one_hot(i, 1000), (ids[: n // 1000],)),
        Form("repeat_interleave by counts", torch.repeat_interleave, (line, torch.randint(0, 4, (n,))), 28 * n),
        Form("index_add of rows", index_added, (torch.zeros(1000, 64), ids[: n // 64], line.reshape(-1, 64))),
        Form("scatter_add along rows", scattered, (torch.zeros(n // 1024, 1024), ids.reshape(-1, 1024))),
    ]


def axes(megabytes: int) -> list[Form]:
    n = megabytes << 18
    cube, line = torch.randn(n // (256 * 256), 256, 256), torch.randn(n)
    image = torch.randn(n // (64 * 56 * 56), 64, 56, 56)
    narrow = torch.randn(n // 8, 8)
    order = torch.randperm(256)
    sevens = line[: n // 49 * 49].reshape(-1, 7, 7)
    return [
        Form("index_select of the middle", lambda a, i: a.index_select(1, i), (cube, order)),
        Form("index_select of the last", lambda a, i: a.index_select(2, i), (cube, order)),
        Form("index_select of 8", lambda a, i: a.index_select(1, i), (narrow, torch.randperm(8))),
        Form("index of pairs", lambda a, i, j: a[:, i, j], (cube, order, order.flip(0)), 3 * 4 * n // 256),
        Form("gather of the middle", lambda a, i: a.gather(1, i), (cube, torch.randint(0, 256, cube.shape))),
        Form("joined in the middle", lambda a, b: torch.cat([a, b], 1), (cube, cube)),
        Form("joined, 8 wide", lambda a, b: torch.cat([a, b], -1), (narrow, narrow)),
        Form("stack in the middle", lambda a, b: torch.stack([a, b], 1), (cube, cube)),
        Form("roll of both", lambda a: torch.roll(a, (5, -7), (1, 2)), (cube,)),
        Form("flip of the middle", lambda a: a.flip(1), (cube,)),
        Form("padding, circular", lambda a: F.pad(a, (2, 2, 2, 2), mode="circular"), (image,)),
        Form("padding, reflect of sound", lambda a: F.pad(a, (200, 200), mode="reflect"), (line.reshape(1, 1, -1),)),
        Form("rows of 3 by columns", lambda a: a.t().contiguous(), (line[: n // 3 * 3].reshape(-1, 3),)),
        Form("columns to rows of 3", lambda a: a.t().contiguous(), (line[: n // 3 * 3].reshape(3, -1),)),
        Form("transposes of 16 x 16", lambda a: a.transpose(1, 2).contiguous(), (line.reshape(-1, 16, 16),)),
        Form("transposes of 7 x 7", lambda a: a.transpose(1, 2).contiguous(), (sevens,)),
        Form("unfold of frames", lambda a: a.unfold(0, 400, 160).contiguous(), (line,)),
        Form("diagonals", lambda a: a.diagonal(0, 1, 2).contiguous() + 0, (cube,), 2 * 4 * n // 256),
    ]  # fmt: skip


def index_added(x: torch.Tensor, i: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return x.index_add(0, i, rows)


def scattered(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x.scatter_add(1, i, torch.ones_like(x))

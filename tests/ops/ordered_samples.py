"""Samples of what runs in order or sorts: scans, scatters, sorts."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..helpers.samples import BATCH, I, Sample, T

B = BATCH


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(-1, -2)


def first_column(x: torch.Tensor) -> torch.Tensor:
    return x[:, :1].expand(x.shape)


def scans() -> Iterator[Sample]:
    for name in ("cumsum", "cumprod", "logcumsumexp"):
        yield Sample(f"aten.{name}.default", (T(B, 21), 1), ulps=8, sums=True)
        yield Sample(f"aten.{name}.default", (T(4, 5, 3, view=transposed), 1), ulps=8, sums=True)
        yield Sample(f"aten.{name}.default", (T(3, B, special=True), 0), ulps=8, sums=True)
        yield Sample(f"aten.{name}.default", (T(), 0), ulps=8, note="zero-dim")
        yield Sample(f"aten.{name}.default", (T(3, 20, dtype="bf16"), -1), ulps=8, sums=True)
    for name in ("cumsum", "cumprod"):
        yield Sample(f"aten.{name}.default", (I(B, 9, low=-2, high=2), 0))
        yield Sample(f"aten.{name}.default", (T(4, 9, dtype="bool"), 1))
        yield Sample(f"aten.{name}.default", (T(4, 9), 1), {"dtype": torch.float64}, ulps=16)
    for name in ("cummax", "cummin"):
        yield Sample(f"aten.{name}.default", (T(B, 21), 1), ulps=0)
        yield Sample(f"aten.{name}.default", (T(4, 21, special=True), 0), ulps=0)
        yield Sample(f"aten.{name}.default", (I(4, 30, low=-3, high=3), -1))
        yield Sample(f"aten.{name}.default", (T(9, dtype="bool"), 0))


def scatters() -> Iterator[Sample]:
    index = I(4, 3, low=0, high=5)
    yield Sample("aten.scatter.src", (T(4, 6), 1, index, T(4, 5)), ulps=0)
    yield Sample("aten.scatter.src", (T(6, B), 0, I(2, B, low=0, high=5), T(2, B)), ulps=0)
    yield Sample("aten.scatter.value", (T(B, 6), 1, I(B, 3, low=0, high=5), 1.5), ulps=0)
    yield Sample("aten.scatter.value", (T(), 0, I(low=0, high=0), 1.5), ulps=0, note="zero-dim")
    for how in ("add", "multiply"):
        yield Sample("aten.scatter.reduce", (T(4, 6), 1, index, T(4, 3)), {"reduce": how}, sums=True)
        yield Sample("aten.scatter.value_reduce", (T(4, 6), 1, index, 1.5), {"reduce": how}, sums=True)
    yield Sample("aten.scatter_add.default", (T(B, 6), 1, I(B, 9, low=0, high=5), T(B, 9)), sums=True)
    yield Sample("aten.scatter_add.default", (I(7, 6), 0, I(9, 6, low=0, high=6), I(9, 6)))
    for how in ("sum", "prod", "mean", "amax", "amin"):
        for own in (True, False):
            rest = (how,), {"include_self": own}
            yield Sample("aten.scatter_reduce.two", (T(4, 6), 1, index, T(4, 3), *rest[0]), rest[1], sums=True)
            rows = (T(5, B), 0, I(7, low=0, high=4), T(7, B), "mean" if how == "sum" else how)
            yield Sample("aten.index_reduce.default", rows, rest[1], sums=True, note=how)
    yield Sample("aten.scatter_reduce.two", (I(4, 6), 1, index, I(4, 3), "mean"))
    for columns in (6, 4):  # one place for all columns of a row, and for some of them
        places = I(9, columns, low=0, high=4, view=first_column)
        rows = (T(5, 6), 0, places, T(9, 6), "mean")
        yield Sample("aten.scatter_reduce.two", rows, {"include_self": False}, sums=True, note=f"rows {columns}")
    yield Sample("aten.index_add.default", (T(B, 6, 2), 1, I(9, low=0, high=5), T(B, 9, 2)), {"alpha": 2}, sums=True)
    yield Sample("aten.index_add.default", (T(6), 0, I(9, dtype="i32", low=0, high=5), T(9)), sums=True)
    yield Sample("aten.index_copy.default", (T(6, B), 0, I(3, low=0, high=5), T(3, B)), ulps=0)
    yield Sample("aten.index_fill.int_Scalar", (T(B, 6), 1, I(3, low=0, high=5), 2.5), ulps=0)
    yield Sample("aten.index_fill.int_Tensor", (T(B, 6), 1, I(3, low=-6, high=5), T()), ulps=0)
    for name in ("index_put", "_unsafe_index_put"):
        places = [I(4, low=-7, high=6)]
        yield Sample(f"aten.{name}.default", (T(7, B), places, T(4, B)), {"accumulate": True}, sums=True)
        yield Sample(f"aten.{name}.default", (T(7, 6, 5), [None, I(4, 1, low=0, high=5), I(3, low=0, high=4)], T()))
        yield Sample(f"aten.{name}.default", (T(7, 6, 5), [I(4, low=0, high=6), None, I(4, low=0, high=4)], T(4, 6)))
    for columns in (33, 64):  # in vectors, and the end of a row
        rows = (T(7, columns), 0, I(40, low=0, high=6), T(40, columns))
        yield Sample("aten.index_add.default", rows, {"alpha": -0.5}, sums=True)
        yield Sample("aten.index_reduce.default", (*rows, "amax"), ulps=0)
        yield Sample("aten.scatter_add.default", (*rows[:2], I(40, columns, low=0, high=6), rows[3]), sums=True)
        batched = (T(2, 7, columns), [None, I(40, low=-7, high=6)], T(2, 40, columns))
        yield Sample("aten.index_put.default", batched, {"accumulate": True}, sums=True)
    yield Sample(
        "aten.index_copy.default", (T(7, B, dtype="bf16"), 0, I(5, low=0, high=6), T(5, B, dtype="bf16")), ulps=0
    )
    yield Sample("aten.put.default", (T(4, 5), I(3, 2, low=-20, high=19), T(3, 2)), ulps=0)
    yield Sample("aten.put.default", (T(4, 5), I(6, low=0, high=19), T(2, 3)), {"accumulate": True}, sums=True)


def sorts() -> Iterator[Sample]:
    for descending in (False, True):
        yield Sample("aten.sort.default", (T(B, 37), 1, descending), ulps=0)
        yield Sample("aten.sort.default", (T(40, 3, special=True), 0, descending), ulps=0)
        yield Sample("aten.sort.stable", (I(5, 70, low=-3, high=3),), {"stable": True, "descending": descending})
        yield Sample("aten.argsort.default", (T(B, 5), -1, descending))
        yield Sample("aten.topk.default", (T(B, 50), 7, 1, descending), ulps=0)
        yield Sample("aten.topk.default", (T(45, 2, special=True), 40, 0, descending), ulps=0)
    yield Sample("aten.argsort.stable", (T(3, 20, dtype="bool"),), {"stable": True})
    for dtype in ("f16", "bf16", "f64"):
        yield Sample("aten.sort.stable", (T(3, 20, dtype=dtype),), {"stable": True}, ulps=0)
    yield Sample("aten.sort.default", (T(),), note="zero-dim")
    yield Sample("aten.topk.default", (T(), 1), note="zero-dim")
    yield Sample("aten.kthvalue.default", (T(B, 20), 4), ulps=0)
    yield Sample("aten.kthvalue.default", (T(9, 4), 9, 0, True), ulps=0)
    for name in ("median", "nanmedian"):
        yield Sample(f"aten.{name}.dim", (T(B, 20), 1), ulps=0)
        yield Sample(f"aten.{name}.dim", (T(9, 4, special=True), 0, True), ulps=0)
        yield Sample(f"aten.{name}.default", (T(5, 4),), ulps=0)
        yield Sample(f"aten.{name}.default", (T(5, 4, special=True),), ulps=0)
        yield Sample(f"aten.{name}.default", (I(5, 3),))
    yield Sample("aten.mode.default", (I(B, 12, low=-2, high=2), 1))
    yield Sample("aten.mode.default", (I(12, 3, low=-2, high=2), 0, True))

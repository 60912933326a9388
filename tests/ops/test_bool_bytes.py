"""Bools whose bytes are neither 0 nor 1, as memory that nobody filled has them: what is not 0 is true, and an index
that is made of one is checked, on every way that a bool comes in by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from torch import nn

from ..helpers.programs import Call1
from ..helpers.sources import bools_in_memory

N = 37  # whole vectors and a rest
TABLE = torch.arange(12.0).reshape(2, 6)
BYTES = np.resize(np.array([0, 1, 42, 255, 0, 128, 2, 0, 254], np.uint8), N)


def _counts(x: torch.Tensor, mask: torch.Tensor) -> Any:
    counts = torch.count_nonzero(mask), mask.sum(), mask.float().mean()
    return *counts, mask.cumsum(0), mask.any(), mask.all(), mask.int()


def _chosen(x: torch.Tensor, mask: torch.Tensor) -> Any:
    return x.masked_fill(mask, -1.0), torch.where(mask, x, 2 * x), x[mask], mask.nonzero(), mask * x


def _logic(x: torch.Tensor, mask: torch.Tensor) -> Any:
    other = x > 0
    compared = mask == other, mask == mask.flip(0), mask < other
    return mask & other, mask | other, mask ^ other, ~mask, mask.clone(), *compared


def _ordered(x: torch.Tensor, mask: torch.Tensor) -> Any:
    return *mask.sort(stable=True), mask.max(0)[0], mask.unique(), mask.mode()[0], (~mask).sort(stable=True)[1]


def _moved(x: torch.Tensor, mask: torch.Tensor) -> Any:
    square = torch.cat([mask, mask])[: 36 * 2].reshape(12, 6)
    return square.T.contiguous(), square[:, ::2].clone(), mask.repeat(2), mask.roll(3), square.sum(0), square.T.sum(0)


def _indices(x: torch.Tensor, mask: torch.Tensor) -> Any:
    i = mask.long()
    rows = nn.functional.embedding(i, TABLE), TABLE[i, 3], TABLE.index_select(0, i)
    return *rows, TABLE.take(i), nn.functional.one_hot(i, 2)


def _written(x: torch.Tensor, mask: torch.Tensor) -> Any:
    i, zeros = mask.long(), torch.zeros(2)
    put = zeros.clone()
    put[i] += 1.0
    return (
        zeros.scatter(0, i, 3.0),
        zeros.index_add(0, i, x),
        zeros.scatter_add(0, i, x),
        zeros.index_put((i,), x, accumulate=True),
        torch.bincount(i, minlength=2),
    )  # fmt: skip


def _scalars(x: torch.Tensor, mask: torch.Tensor) -> Any:
    """One by one: numbers, columns of a stride, and what a branch takes."""
    first, last = mask[2], mask[-1]
    branch = torch.cond(first, lambda t: t + 1, lambda t: t - 1, (x,))
    return torch.where(first, x, -x), x * last, TABLE[mask[2:3].long()], branch


FUNCTIONS: tuple[Callable[..., Any], ...] = (_counts, _chosen, _logic, _ordered, _moved, _indices, _written, _scalars)


class Kept(nn.Module):
    """A bool that lives from call to call, and one that is a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(N, dtype=torch.bool))
        self.register_buffer("fixed", torch.from_numpy(BYTES.copy()).view(torch.bool))

    def forward(self, x: torch.Tensor) -> Any:
        rows = nn.functional.embedding(self.seen.long() + self.fixed.long(), torch.arange(6.0).reshape(3, 2))
        count = self.seen.sum()
        self.seen |= x > 5
        return rows, count


def given() -> np.ndarray:
    return BYTES.view(np.bool_).copy()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("bools")
    x, mask = torch.linspace(-2, 2, N), torch.arange(N) % 2 == 0
    entries = {f.__name__.strip("_"): (Call1(f).eval(), (x, mask)) for f in FUNCTIONS}
    mycc.compile(entries, out=folder / "bools.pkg")
    assert bools_in_memory(folder / "bools.pkg") == []
    return mycc.load(folder / "bools.pkg")


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__.strip("_"))
def test_a_byte_that_is_not_0_is_true(model: Any, function: Callable[..., Any]) -> None:
    x = np.linspace(-2, 2, N).astype(np.float32)
    got = model.entry(function.__name__.strip("_"))(x, given())
    want = function(torch.from_numpy(x), torch.from_numpy(BYTES != 0))
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(g), w.numpy())


def test_states_and_constants(tmp_path: Path) -> None:
    mycc.compile(Kept().eval(), (torch.zeros(N),), out=tmp_path / "kept.pkg")
    kept = mycc.load(tmp_path / "kept.pkg")
    kept.state["seen"] = given()
    rows, count = kept(np.zeros(N, np.float32))
    np.testing.assert_array_equal(rows, np.arange(6.0).reshape(3, 2)[2 * (BYTES != 0)])
    assert count == (BYTES != 0).sum()


def test_a_kernel_of_the_user_gets_0_and_1(tmp_path: Path) -> None:
    source = """#include "mycc/custom.h"
    extern "C" void picked(const mycc_host *, const mycc_tensor *y, const mycc_tensor *x, const mycc_number *) {
      const bool *mask = mycc::data<const bool>(x[0]);
      for (int64_t i = 0; i < mycc::elements(x[0]); ++i) mycc::data<int64_t>(y[0])[i] = mask[i];
    }"""
    with torch.library._scoped_library("boolbytes", "FRAGMENT") as library:
        library.define("picked(Tensor mask) -> Tensor")
        library.impl("picked", lambda mask: mask.long(), "CPU")
        fake = lambda mask: mask.new_empty(mask.shape, dtype=torch.int64)  # noqa: E731
        torch.library.register_fake("boolbytes::picked", fake, lib=library)
        mycc.cpp_kernel("boolbytes::picked", source)
        module = Call1(torch.ops.boolbytes.picked).eval()
        mycc.compile(module, (torch.arange(N) % 2 == 0,), out=tmp_path / "picked.pkg")
    np.testing.assert_array_equal(mycc.load(tmp_path / "picked.pkg")(given()), BYTES != 0)

"""Reductions over short rows, which are transposed in blocks: as exact as eager, the same bits at any number of
threads."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.schedule.loops.transpose_rows import transposed_rows
from torch.nn import functional as F

from ..helpers.programs import scheduled

#: whole blocks; some rows more; rows behind each other's heads; elements that fill pieces of 16 bytes, or none of them
SHAPES = [(512, 10), (300, 12), (3, 131, 17), (2, 9, 33, 23), (257, 9)]


class Rows(torch.nn.Module):
    """What is reduced, searched, finished by functions, and written for each element."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        centred = x - x.mean(-1, keepdim=True)
        normed = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
        mixed = (x + y).softmax(-1) * x[..., :1]
        reduced = x.amax(-1), x.logsumexp(-1), x[..., 1:].norm(dim=-1)
        return x.softmax(-1), x.log_softmax(-1), normed, mixed, *reduced


class Places(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.argmax(-1), x.argmin(-1), *x.max(-1)


def given(shape: tuple[int, ...], seed: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_short_rows(dtype: torch.dtype, tmp_path: Path) -> None:
    inputs = [(given(s, i, dtype), given(s, i + 9, dtype)) for i, s in enumerate(SHAPES)]
    first = inputs[0][0]
    first[0, 1], first[1], first[2, 2], first[3, 4] = torch.nan, -torch.inf, torch.inf, -torch.inf
    entries = {f"e{i}": (Rows(), x) for i, x in enumerate(inputs)}
    path = mycc.compile(entries, out=tmp_path / "rows.pkg", verify=False, target="cpu")
    models = [mycc.load(path, threads=threads) for threads in (1, 3)]
    for i, x in enumerate(inputs):
        found, again = (model.entry(f"e{i}")(*x) for model in models)
        exact, eager = Rows()(*(t.double() for t in x)), Rows()(*x)
        for got, other, want, own in zip(found, again, exact, eager, strict=True):
            got, other = torch.as_tensor(got), torch.as_tensor(other)
            assert torch.equal(got.nan_to_num(7), other.nan_to_num(7))
            assert torch.equal(got.isnan(), own.isnan())
            assert torch.equal(got.isinf(), own.isinf())
            error, allowed = (t.double().sub(want).nan_to_num(0, 0, 0).abs().max() for t in (got, own))
            assert error <= 2 * allowed + 3e-7 * want.nan_to_num(0, 0, 0).abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8], ids=str)
def test_places(dtype: torch.dtype, tmp_path: Path) -> None:
    """The first of equal values, NaN before all."""
    inputs = [given(s, i, torch.float32).mul(2).round().to(dtype) for i, s in enumerate([*SHAPES, (700, 63)])]
    if dtype.is_floating_point:
        inputs[0][5, 3], inputs[0][5, 7], inputs[0][6] = torch.nan, torch.nan, -torch.inf
    entries = {f"e{i}": (Places(), (x,)) for i, x in enumerate(inputs)}
    path = mycc.compile(entries, out=tmp_path / "places.pkg", verify=False, target="cpu")
    model = mycc.load(path)
    for i, x in enumerate(inputs):
        for got, want in zip(model.entry(f"e{i}")(x), Places()(x), strict=True):
            assert torch.equal(torch.as_tensor(got).nan_to_num(7), want.nan_to_num(7))


def test_dynamic_rows(tmp_path: Path) -> None:
    """Fewer rows than a block, a whole one, and more."""
    rows = torch.export.Dim("rows", min=1, max=4096)
    model = torch.nn.Sequential(torch.nn.LogSoftmax(-1))
    example = (given((300, 10), 0, torch.float32),)
    path = mycc.compile(
        model, example, out=tmp_path / "dynamic.pkg", verify=False, target="cpu", dynamic_shapes=({0: rows},)
    )
    loaded = mycc.load(path)
    for count in (1, 3, 15, 16, 17, 32, 331):
        x = given((count, 10), count, torch.float32)
        torch.testing.assert_close(torch.as_tensor(loaded(x)), x.log_softmax(-1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("target", ["cpu:x86-64-v2", "cpu:x86-64-v3"])
def test_other_vectors(target: str, tmp_path: Path) -> None:
    x, y = given((300, 13), 1, torch.float32), given((300, 13), 2, torch.float32)
    model = mycc.load(mycc.compile(Rows(), (x, y), out=tmp_path / "rows.pkg", verify=False, target=target))
    for got, want in zip(model(x, y), Rows()(x, y), strict=True):
        torch.testing.assert_close(torch.as_tensor(got), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("transposed", "function", "shape"),
    [
        (True, lambda a: a.softmax(-1), (4096, 10)),
        (True, lambda a: a.log_softmax(-1), (4096, 10)),
        (True, lambda a: a.argmax(-1), (4096, 49)),
        (True, lambda a: a.logsumexp(-1), (4096, 49)),
        (True, lambda a: a.amax(-1), (4096, 10)),
        (False, lambda a: a.amax(-1), (4096, 16)),
        (False, lambda a: F.layer_norm(a, (49,)), (4096, 49)),
        (False, lambda a: a.softmax(-1), (100, 10)),
        (False, lambda a: a.softmax(-1), (4096, 64)),
        (False, lambda a: a.softmax(1), (4096, 10, 64)),
    ],
)  # fmt: skip
def test_which_rows_are_transposed(transposed: bool, function: object, shape: tuple[int, ...]) -> None:
    (node,) = scheduled(function, torch.ones(shape)).program.nodes  # type: ignore[arg-type]
    assert (transposed_rows(node) is not None) == transposed  # type: ignore[arg-type]

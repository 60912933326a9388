"""Reductions over few elements are unrolled: one kernel without a reduction, as exact as eager."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch
from torch.nn import functional as F

from ..helpers.programs import scheduled

#: the few elements are neighbours, lie apart, or are two dimensions
SHAPES = {
    "rows of 3": ((50, 3), -1),
    "classes of 3": ((2, 3, 37), 1),
    "rows of 8": ((5, 9, 8), -1),
    "pair": ((33, 2), 1),
}


class Few(torch.nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        d = self.dim
        centred = x - x.mean(d, keepdim=True)
        normed = centred * torch.rsqrt(centred.square().mean(d, keepdim=True) + 1e-5)
        return x.softmax(d), x.log_softmax(d), normed, F.normalize(x, dim=d), x / x.amax(d, keepdim=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_few_elements(dtype: torch.dtype, tmp_path: Path) -> None:
    inputs = {name: torch.randn(shape).to(dtype) for name, (shape, _) in SHAPES.items()}
    inputs["rows of 3"][0, 1], inputs["rows of 3"][1], inputs["rows of 3"][2, 2] = torch.nan, -torch.inf, torch.inf
    entries = {f"e{i}": (Few(dim), (inputs[name],)) for i, (name, (_, dim)) in enumerate(SHAPES.items())}
    path = mycc.compile(entries, out=tmp_path / "few.pkg", verify=False, target="cpu")
    models = [mycc.load(path, threads=threads) for threads in (1, 3)]
    for i, (name, (_, dim)) in enumerate(SHAPES.items()):
        x = inputs[name]
        found, again = (model.entry(f"e{i}")(x) for model in models)
        for got, other, want, own in zip(found, again, Few(dim)(x.double()), Few(dim)(x), strict=True):
            got = torch.as_tensor(got)
            assert torch.equal(got.nan_to_num(7), torch.as_tensor(other).nan_to_num(7))
            assert torch.equal(got.isnan(), own.isnan())
            error, allowed = (t.double().sub(want).nan_to_num(0, 0, 0).abs().max() for t in (got, own))
            assert error <= 2 * allowed + 2e-7 * want.nan_to_num(0, 0, 0).abs().max(), name


@pytest.mark.parametrize("name", SHAPES)
def test_one_map(name: str) -> None:
    shape, dim = SHAPES[name]
    assert [type(n).__name__ for n in scheduled(lambda a: a.softmax(dim), torch.ones(shape)).program.nodes] == ["Map"]


def test_what_others_read_is_stored() -> None:
    """A result that is asked for by itself too keeps its reduction."""

    def function(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        high = a.amax(-1, keepdim=True)
        return a - high, high

    assert {type(n).__name__ for n in scheduled(function, torch.ones(50, 3)).program.nodes} == {"Nest"}

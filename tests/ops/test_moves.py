"""Copies that change the order of elements, at sizes of several blocks and of parts of one: bit for bit as torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from torch import nn

TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.uint8, torch.bool)
FORMS: dict[str, tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]]] = {
    "transposed": (lambda a: a.t().contiguous(), ((700, 300),)),
    "transposed_batches": (lambda a: a.transpose(1, 2).contiguous(), ((3, 65, 129),)),
    "transposed_rows_that_share_sets": (lambda a: a.t().contiguous(), ((130, 1024),)),
    "transposed_long_rows": (lambda a: a.t().contiguous(), ((40, 3001),)),
    "of_long_rows": (lambda a: torch.where(a.t() == 1, a.t(), ~(a.t() == 2)), ((36, 1600),)),
    "transposed_to_few": (lambda a: a.permute(0, 2, 3, 1).contiguous(), ((2, 7, 9, 11),)),
    "reversed": (lambda a: a.permute(2, 1, 0).contiguous(), ((70, 5, 260),)),
    "met_by_another": (lambda a, b: torch.where(a == b.t(), a, b.t()), ((130, 270), (270, 130))),
    "flipped": (lambda a: a.flip(-1), ((9, 203),)),
    "flipped_rows": (lambda a: a.flip(0), ((9, 203),)),
    "flipped_images": (lambda a: a.flip((1, 2)), ((5, 30, 56),)),
    "halves_of_vectors": (lambda a, b: torch.cat([a, b], -1), ((9, 8), (9, 12))),
    "copied": (lambda a: a[:, 3:].contiguous(), ((9, 203),)),
}


class Module(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    entries = {f"{name}_{i}": (Module(FORMS[name][0]), inputs(name, t)) for name in FORMS for i, t in enumerate(TYPES)}
    entries |= {f"mixed_{i}": (Module(mixed), of_two_types(t)) for i, t in enumerate(TYPES)}
    path: Path = mycc.compile(entries, out=tmp_path_factory.mktemp("moves") / "moves.pkg", verify=False)
    return mycc.load(path, threads=2)


def inputs(name: str, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    numbers = torch.Generator().manual_seed(5)
    most = 2 if dtype == torch.bool else 250
    return tuple(torch.randint(0, most, shape, generator=numbers).to(dtype) for shape in FORMS[name][1])


@pytest.mark.parametrize("name", FORMS)
def test_elements_keep_their_bits(model: Any, name: str) -> None:
    for i, dtype in enumerate(TYPES):
        given = inputs(name, dtype)
        torch.testing.assert_close(model.entry(f"{name}_{i}")(*given), FORMS[name][0](*given), rtol=0, atol=0)


def mixed(which: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    return torch.where(which.t(), a.t(), a.t() == 3)


def of_two_types(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    (a,) = inputs("transposed_rows_that_share_sets", dtype)
    return (a % 2 == 0 if dtype != torch.bool else ~a, a)


@pytest.mark.parametrize("i", range(len(TYPES)))
def test_operands_of_two_widths(model: Any, i: int) -> None:
    given = of_two_types(TYPES[i])
    torch.testing.assert_close(model.entry(f"mixed_{i}")(*given), mixed(*given), rtol=0, atol=0)

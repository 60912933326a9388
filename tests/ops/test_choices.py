"""Operators whose results depend on values (masks, searches, orders): as torch has them, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from torch import nn

TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool)
SPECIAL = (float("nan"), -0.0, float("inf"), 0.0, float("-inf"))
#: by name: a function of a tensor [7, 211], a mask of its shape, and sorted rows [7, 150] of its dtype
FORMS: dict[str, Callable[..., Any]] = {
    "selected": lambda x, mask, _: torch.masked_select(x, mask),
    "by_mask": lambda x, mask, _: x[mask],
    "by_mask_of_another_order": lambda x, mask, _: x.t()[mask.t()],
    "by_few": lambda x, mask, _: x[mask & (x == 0)],
    "by_none": lambda x, mask, _: x[mask & ~mask],
    "columns_by_mask": lambda x, mask, _: x[:, mask[0]],
    "mask_of_rows": lambda x, mask, _: x.masked_select(mask[:, :1]),
    "nonzero": lambda _, mask, __: mask.nonzero(),
    "sorted": lambda x, _, __: x.sort(dim=-1, stable=True),
    "sorted_falling": lambda x, _, __: x.sort(dim=0, stable=True, descending=True),
}
#: of numbers alone, which are in an order
SEARCHES: dict[str, Callable[..., Any]] = {
    "first": lambda x, _, __: x.topk(9, -1)[0],
    "places": lambda x, _, rows: torch.searchsorted(rows[0], x),
    "places_from_right": lambda x, _, rows: torch.searchsorted(rows, x, right=True),
    "places_of_few": lambda x, _, rows: torch.searchsorted(rows[:, :20].contiguous(), x, out_int32=True),
    "places_by_order": lambda x, _, rows: torch.searchsorted(rows.flip(-1), x, sorter=rows.flip(-1).argsort(-1)),
    "buckets": lambda x, _, rows: torch.bucketize(x, rows[0], right=True),
    "bucket": lambda _, __, rows: torch.searchsorted(rows[0], 3),
}


class Module(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, mask: torch.Tensor, rows: torch.Tensor) -> Any:
        return self.function(x, mask, rows)


def functions(dtype: torch.dtype) -> dict[str, Callable[..., Any]]:
    return FORMS if dtype == torch.bool else {**FORMS, **SEARCHES}


def inputs(dtype: torch.dtype, columns: int = 211) -> tuple[torch.Tensor, ...]:
    numbers = torch.Generator().manual_seed(3)
    x = torch.randint(0, 2 if dtype == torch.bool else 100, (7, columns), generator=numbers).to(dtype)
    if dtype.is_floating_point:
        x[:, ::9] = torch.tensor(SPECIAL, dtype=dtype)[torch.arange(0, columns, 9) % len(SPECIAL)]
    rows = torch.randint(0, 100, (7, 150), generator=numbers).sort(-1)[0].to(dtype)
    return x, torch.rand(7, columns, generator=numbers) > 0.4, rows


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    entries: dict[str, Any] = {
        f"{name}_{i}": (Module(f), inputs(t)) for i, t in enumerate(TYPES) for name, f in functions(t).items()
    }
    path: Path = mycc.compile(entries, out=tmp_path_factory.mktemp("choices") / "choices.pkg", verify=False)
    return mycc.load(path, threads=2)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_as_torch(model: Any, dtype: torch.dtype) -> None:
    given = inputs(dtype)
    for name, function in functions(dtype).items():
        got, want = model.entry(f"{name}_{TYPES.index(dtype)}")(*given), function(*given)
        torch.testing.assert_close(
            got, want, rtol=0, atol=0, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> Any:
    columns = torch.export.Dim("columns", min=1, max=4096)
    shapes = ({1: columns}, {1: columns}, None)
    names = ("selected", "by_mask", "nonzero", "sorted", "sorted_falling", "places", "places_from_right")
    entries = {n: (Module({**FORMS, **SEARCHES}[n]), inputs(torch.float32), {}, shapes) for n in names}
    path: Path = mycc.compile(entries, out=tmp_path_factory.mktemp("choices") / "dynamic.pkg", verify=False)
    return mycc.load(path, threads=2)


@pytest.mark.parametrize("columns", [1, 5, 16, 400])
def test_sizes_that_a_call_brings(dynamic: Any, columns: int) -> None:
    given = inputs(torch.float32, columns)
    for name in dynamic.entries:
        want = {**FORMS, **SEARCHES}[name](*given)
        torch.testing.assert_close(dynamic.entry(name)(*given), want, rtol=0, atol=0, equal_nan=True)

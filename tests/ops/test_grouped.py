"""Products of rows with the matrix of their group: the operator of transformers' mixtures of experts."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch
import transformers.integrations.moe  # noqa: F401  (registers the operator)
from torch.export import Dim


class Experts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weights = torch.nn.Parameter(torch.randn(4, 32, 40))

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return torch.ops.transformers.grouped_mm_fallback(x, self.weights, ends)  # type: ignore[no-any-return]


@pytest.mark.parametrize("ends", [[3, 3, 20, 24], [0, 0, 0, 24], [24, 24, 24, 24], [0, 0, 0, 0], [1, 2, 3, 20]])
def test_rows_of_groups(package: object, ends: list[int]) -> None:
    x, places = torch.randn(24, 32), torch.tensor(ends, dtype=torch.int32)
    with torch.no_grad():
        torch.testing.assert_close(torch.as_tensor(package(x, places)), Experts()(x, places))  # type: ignore[operator]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> object:
    path: Path = tmp_path_factory.mktemp("experts") / "experts.pkg"
    example = torch.randn(7, 32), torch.tensor([1, 3, 5, 7], dtype=torch.int32)
    return mycc.load(
        mycc.compile(Experts(), example, out=path, dynamic_shapes=({0: Dim("rows", max=64)}, {}), verify=False)
    )

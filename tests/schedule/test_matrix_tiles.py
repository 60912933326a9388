"""Which products the plan gives to instructions that multiply whole tiles, and from how many rows on."""

from __future__ import annotations

import pytest
import torch
from mycc.compiler.ir.plans.matrix import MatrixPlan
from mycc.compiler.machine.cpu_products import MATRIX_TILES
from mycc.compiler.machine.targets import parse_targets
from mycc.compiler.model.operators import quantised  # noqa: F401  # defines the operators
from torch import Tensor, nn

from ..helpers.programs import scheduled

BYTES = MATRIX_TILES.from_rows
FLOATS = MATRIX_TILES.from_float_rows


class Weight(nn.Module):
    """A weight that the package holds, and scales of its groups."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("scales", torch.ones(64, 2))


def of(module: nn.Module) -> Tensor:
    return module.get_buffer("weight")


def int_mm(module: nn.Module, x: Tensor) -> Tensor:
    return torch._int_mm(x, of(module).t())


def int_mm_of_groups(module: nn.Module, x: Tensor) -> Tensor:
    scales, zeros = module.get_buffer("scales"), torch.zeros(len(x), 1, dtype=torch.int32)
    return torch.ops.mycc.grouped_int_mm(x, zeros, of(module), scales, None, 8, 32)


def linear(module: nn.Module, x: Tensor) -> Tensor:
    return nn.functional.linear(x, of(module))


@pytest.mark.parametrize(
    ("product", "dtype", "rows", "dynamic", "from_rows"),
    [
        (int_mm, torch.int8, 128, False, BYTES),
        (int_mm, torch.int8, BYTES - 1, False, 0),
        (int_mm, torch.int8, 3, True, BYTES),
        (int_mm_of_groups, torch.int8, 128, False, 0),
        (linear, torch.bfloat16, 128, False, FLOATS),
        (linear, torch.bfloat16, 1, False, 0),
        (linear, torch.float32, 128, False, 0),
        (linear, torch.float16, 128, False, 0),
    ],
)
def test_products_of_many_rows_have_matrix_tiles(
    product: object, dtype: torch.dtype, rows: int, dynamic: bool, from_rows: int
) -> None:
    weight, x = (torch.randint(-9, 9, shape).to(dtype) for shape in ((64, 64), (rows, 64)))
    plans = scheduled(product, x, parts=(Weight(weight),), dynamic=dynamic).kernels  # type: ignore[arg-type]
    (plan,) = (k.plan for k in plans if isinstance(k.plan, MatrixPlan))
    assert [t.from_rows for t in plan.tiles if t.level == MATRIX_TILES.level] == ([from_rows] if from_rows else [])


def test_the_level_of_the_tiles_is_a_target() -> None:
    (target,) = parse_targets(f"cpu:{MATRIX_TILES.level}")
    assert f"cpu:{MATRIX_TILES.level}" == target.name

"""Units include what their kernels need, and no more: the views and the nodes say it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from mycc.compiler.codegen.cpu.headers import ALWAYS, ORDER
from mycc.compiler.codegen.cpu.render import KernelPool, calls_of, tiles_of, unit_headers

from ..helpers.programs import scheduled

KERNELS = Path(__file__).parents[2]
MAP = torch.zeros(64, 64)


@pytest.mark.parametrize(
    ("function", "inputs", "headers", "tiles"),
    [
        (lambda a: a.relu(), (MAP,), (), ((), False)),
        (lambda a: a.t() + 1, (MAP,), ("kernels/loops/transpose.h",), ((), False)),
        (lambda a: torch.special.i0e(a), (MAP,), ("kernels/math/special.h",), ((), False)),
        (lambda a: (a > 0).sum(0), (MAP,), (), ((), False)),  # with a conversion, which is no operator of the table
        (lambda a: a.sort()[0], (MAP,), ("kernels/sort/sort.h",), ((), False)),
        (lambda a: a @ a, (MAP,), ("micro_kernels.h", "kernels/gemm/gemm.h"), (("float",), False)),
        (
            lambda a: F.scaled_dot_product_attention(a, a, a), (torch.zeros(1, 2, 90, 32),),
            ("micro_kernels.h", "kernels/attention/attention.h"), (("float",), False),
        ),
        (
            lambda x: F.max_pool2d(x, 3, 1), (torch.zeros(1, 64, 112, 112),),
            ("kernels/loops/sliding_window.h",), ((), False),
        ),
    ],
)  # fmt: skip
def test_headers_of_kernels(
    function: Callable[..., torch.Tensor],
    inputs: tuple[torch.Tensor, ...],
    headers: tuple[str, ...],
    tiles: tuple[tuple[str, ...], bool],
) -> None:
    pool = KernelPool()
    calls_of(scheduled(function, *inputs), pool)
    assert unit_headers(pool.kernels()) == (*ALWAYS, *headers)
    assert tiles_of(pool.kernels()) == tiles


def test_headers_exist() -> None:
    generated = {"micro_kernels.h"}
    roots = (KERNELS, KERNELS / "runtime" / "include")
    assert [h for h in ORDER if h not in generated and not any((root / h).is_file() for root in roots)] == []
    assert len(set(ORDER)) == len(ORDER)

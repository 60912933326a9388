"""Large moves of whole lines: in the order of what they read, forward; others in the order of what they store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc.compiler.ir.nodes import Map
from torch import Tensor

from ..helpers.programs import Call1, scheduled

#: bytes of results from which on they are stored non-temporally, and from which on the order counts
STREAMED, ORDERED = (86, 128, 12, 64), (22, 128, 12, 64)


def heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).contiguous()


def transposed(x: Tensor) -> Tensor:
    return x.flip(1)


def steps(function: Callable[..., Any], *shape: int) -> list[int]:
    """How far the operand goes from turn to turn of the loops, the outermost first."""
    (node,) = scheduled(function, torch.empty(shape)).program.nodes
    assert isinstance(node, Map)
    (load,) = node.stores[0].value.loads
    found = [load.index.coefficient(v) for v in node.dims]
    return [0 if step is None else step.constant or 0 for step in found]


@pytest.mark.parametrize(
    ("function", "shape", "expected"),
    [
        (heads, STREAMED, [98304, 768, 64, 1]),
        (heads, ORDERED, [98304, 768, 64, 1]),
        (heads, (4, 128, 12, 64), [98304, 64, 768, 1]),  # in the second level cache
        (heads, (90, 128, 12, 60), [92160, 60, 720, 1]),  # no whole lines
        (transposed, STREAMED, [98304, 768, 1]),
        (transposed, ORDERED, [98304, -768, 1]),  # comes into the caches, in its order
        (lambda x: x.permute(2, 0, 1, 3).contiguous(), STREAMED, [768, 64, 1]),
    ],
)
def test_order(function: Callable[..., Any], shape: tuple[int, ...], expected: list[int]) -> None:
    assert steps(function, *shape) == expected


def test_elements_keep_their_bits(tmp_path: Path) -> None:
    given = {"streamed": torch.randn(STREAMED), "ordered": torch.randn(ORDERED)}
    forms: dict[str, Callable[..., Any]] = {
        "heads": heads,
        "transposed": transposed,
        "transposed_heads": lambda x: (x.transpose(1, 2) * 2).flip((0, 2)),
    }
    entries = {f"{f}_{n}": (Call1(forms[f]), (x,)) for f in forms for n, x in given.items()}
    path = mycc.compile(entries, out=tmp_path / "moves.pkg", verify=False)
    for threads in (1, 2):
        model = mycc.load(path, threads=threads)
        for f, function in forms.items():
            for n, x in given.items():
                assert torch.equal(torch.as_tensor(model.entry(f"{f}_{n}")(x)), function(x)), (f, n)

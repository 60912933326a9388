"""Sums of exponentials of deep columns, merged from pieces: as exact as eager, whatever a piece holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.ir.nodes import Nest, Reduce

from ..helpers.programs import scheduled


def given(*shape: int) -> torch.Tensor:
    """Columns with pieces of infinities, NaN, and large values late."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))
    columns = x.movedim(-2, 0)  # a view
    columns[:300, ..., 1] = -torch.inf
    columns[..., 2] = -torch.inf
    columns[5, ..., 3], columns[700, ..., 4] = torch.inf, torch.nan
    columns[900:, ..., 5] += 200
    columns[:100, ..., 6] -= 1e30
    return x


def spelled(x: torch.Tensor) -> torch.Tensor:
    """Without a guard: infinities become NaN."""
    high = x.amax(0)
    return high + (x - high).exp().sum(0).log()


CASES: list[tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = [
    (lambda a: a.logsumexp(0), (1024, 160)),
    (lambda a: a.logsumexp(1), (3, 1200, 64)),
    (spelled, (1024, 96)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_columns(dtype: torch.dtype, tmp_path: Path) -> None:
    class Of(torch.nn.Module):
        def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
            super().__init__()
            self.function = function

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.function(x)

    entries = {f"e{i}": (Of(f), (given(*shape).to(dtype),)) for i, (f, shape) in enumerate(CASES)}
    path = mycc.compile(entries, out=tmp_path / "columns.pkg", verify=False, target="cpu")
    models = [mycc.load(path, threads=threads) for threads in (1, 3)]
    for name, (model, (x,)) in entries.items():
        got, again = (torch.as_tensor(m.entry(name)(x)) for m in models)
        own, want = model(x), model(x.double())
        assert torch.equal(got.nan_to_num(7), again.nan_to_num(7))
        assert torch.equal(got.isnan(), own.isnan())
        assert torch.equal(got.isneginf(), own.isneginf())
        assert torch.equal(got.isposinf(), own.isposinf())
        finite = own.isfinite()
        error, allowed = (t.double().sub(want)[finite].abs().max() for t in (got, own))
        assert error <= 2 * allowed + 3e-7 * want[finite].abs().clamp(max=1e3).max()


def test_memory_is_read_once() -> None:
    first, *rest = scheduled(lambda a: a.logsumexp(0), torch.ones(4096, 1024)).program.nodes
    assert isinstance(first, Nest)
    assert all("x" not in {b.name for b in n.reads()} for n in rest)
    reads = [ld for s in first.stages for e in s.expressions() for ld in e.loads if ld.buffer.kind == "input"]
    assert len(set(reads)) == 1


def test_what_others_read_stays_whole() -> None:
    """A softmax reads the elements again: its columns stay in a cache."""
    (nest,) = scheduled(lambda a: a.softmax(0), torch.ones(4096, 1024)).program.nodes
    assert isinstance(nest, Nest)
    assert {v.extent.constant for s in nest.stages if isinstance(s, Reduce) for v in s.rdims} == {4096}

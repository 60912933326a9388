"""The size formulas of an entry point: short where sizes are sums of many, whose products have thousands of terms."""

from __future__ import annotations

from functools import reduce
from operator import add
from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.codegen.host.size_formulas import size_views
from mycc.compiler.codegen.host.size_text import SizeText
from mycc.compiler.ir.index import Size, minimum, of

from ..helpers.programs import Call1, scheduled

CLASSES = 90
KEPT = reduce(add, (minimum(400, of(Size(f"u{i}", 0, None, True))) for i in range(CLASSES)))


def test_products_of_long_sums_are_not_multiplied_out() -> None:
    text = SizeText(sums=[KEPT])
    assert text.index(KEPT) == "sum_0"
    assert text.index(KEPT * 8) == "sum_0 * 8"
    assert text.index(KEPT * KEPT * 4) == "sum_0 * sum_0 * 4"
    assert text.index(KEPT * (KEPT + 3)) == "sum_0 * (" + SizeText().index(KEPT + 3) + ")"
    assert len(text.index(KEPT + 3)) < 40 * CLASSES


def kept(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest scores of each class, as a detector keeps them, and a number for each pair."""
    best = [torch.topk(v, torch.sym_min(v.shape[0], 4)).values for v in (s[s > 0.5] for s in scores.unbind(1))]
    every = torch.cat(best)
    return every, torch.cumsum(every[:, None] - every[None, :], 0)


def test_formulas_of_a_detector() -> None:
    planned = scheduled(kept, torch.rand(20, 9))
    views = size_views(planned, (), [[b.size] for b in planned.program.outputs])
    assert len(views.sums) == 1
    assert max(len(b.bytes) for b in views.buffers) < 500


@pytest.mark.slow
def test_a_detector_runs(tmp_path: Path) -> None:
    x = torch.rand(20, 9, generator=torch.Generator().manual_seed(0))
    package = mycc.load(mycc.compile(Call1(kept), (x,), out=tmp_path / "kept.pkg", verify=False))
    for given in (x, torch.zeros(20, 9), x.flip(0) * 0.6):
        for got, want in zip(package(given), kept(given), strict=True):
            torch.testing.assert_close(got, want)

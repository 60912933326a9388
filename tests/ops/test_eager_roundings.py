"""The option graph.eager_roundings: every result is rounded to the model's 16-bit type, as eager rounds it."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.options import GraphOptions

from .roundings_model import Spelled, inputs


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_chains_have_the_bits_of_eager(dtype: torch.dtype, tmp_path: Path) -> None:
    model, given = Spelled(dtype).eval(), inputs(dtype)
    path = mycc.compile(model, given, out=tmp_path / "m.pkg", options={"graph.eager_roundings": True})
    with torch.no_grad():
        wanted = model(*given)
    for i, (got, want) in enumerate(zip(mycc.load(path)(*given), wanted, strict=True)):
        units = (got.double() - want.double()).abs() / (want.double().abs() * torch.finfo(dtype).eps + 1e-30)
        if i >= 4:  # functions of float32 are off by a unit of float32, which may turn a rounding
            assert units.max() <= 1
            assert (units > 0).float().mean() < 0.02
        else:
            assert torch.equal(got, want), f"result {i}"


class Attention(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x.transpose(-1, -2) * 0.25, -1) @ x


def test_patterns_stay_as_the_model_spells_them() -> None:
    x = torch.randn(2, 3, 8, 16, dtype=torch.bfloat16)
    for on, whole in ((False, True), (True, False)):
        graph = capture(Attention(), (x,), None, None)
        passed = run_graph_passes(graph, skip=GraphOptions(eager_roundings=on).skipped_passes)
        assert ("attention" in str(passed.module.graph)) == whole

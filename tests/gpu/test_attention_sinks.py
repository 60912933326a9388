"""Attention with sinks, capped scores and the logarithms of sums of exponentials, through Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.ir.structured import Attention
from torch import Tensor

from ..helpers.device_programs import program_of, run_interpreted
from ..helpers.triton_interpreter import TritonInterpreter


class Model(torch.nn.Module):
    """A window, of which the last queries see nothing."""

    def __init__(self, sinks: bool, softcap: float | None):
        super().__init__()
        self.sinks = torch.nn.Parameter(torch.tensor([0.5, -3.0, 40.0, -200.0])) if sinks else None
        self.softcap = softcap

    def forward(self, q: Tensor, k: Tensor, v: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        m, n = torch.arange(q.shape[2])[:, None] + start, torch.arange(k.shape[2])
        mask = (n <= m) & (m - n < 24)
        sinks = None if self.sinks is None else self.sinks[:, None, None]
        out, sums = torch.ops.mycc.attention(q, k, v, mask, sinks, q.shape[3] ** -0.5, self.softcap)
        return out, sums


#: queries, keys, the place of the first query, whether there are sinks, the cap
CASES = {
    "a prompt": (40, 70, 30, True, None),
    "one step": (16, 16, 0, True, 5.0),
    "rows without a key": (40, 70, 60, True, 5.0),
    "one query, its keys shared by programs": (1, 2048, 2040, True, None),
    "no sinks": (1, 2048, 2040, False, 5.0),
}


@pytest.mark.parametrize("name", CASES)
def test_sinks(name: str, interpreter: TritonInterpreter) -> None:
    queries, keys, first, sinks, softcap = CASES[name]
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, h, n, 32, generator=draw) for h, n in ((4, queries), (2, keys), (2, keys)))
    model, start = Model(sinks, softcap), torch.tensor([first])
    program = program_of(capture(model, (q, k, v, start)))
    nodes = program.schedule.program.nodes
    assert sum(isinstance(n, Attention) for n in nodes) == 1
    stored = [b.size.constant or 0 for n in nodes for b in n.writes()]
    assert max(stored) <= max(queries * 4 * 32, 2048), "scores are stored"
    found = run_interpreted(program, interpreter, (q, k, v, start), {})
    wanted = model.double()(*(x.double() for x in (q, k, v)), start)
    for f, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(f, w.float(), rtol=1e-4, atol=1e-5)

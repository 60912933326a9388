"""Places compared with a limit, which becomes a number of lanes: limits of any size, on both sides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mycc
import pytest
import torch

from ..helpers.programs import Call1
from ..helpers.sources import kernel_sources
from ..vec.harness import cpu_levels

#: what this machine runs
TARGETS = [f"cpu:{isa}" for isa in cpu_levels() if isa not in ("x86-64", "native")] or ["cpu"]

N = 41
LIMITS = torch.tensor([-(2**63), 2**63 - 1, 2**63 - 40, -1, 0, 5, 15, 16, 17, 40, 41, 100])
x = torch.arange(1.0, 1.0 + len(LIMITS) * N).reshape(len(LIMITS), N)

FORMS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "below": lambda a, n: torch.where(torch.arange(N) < n, a, -1.0),
    "up_to": lambda a, n: torch.where(torch.arange(N) <= n, a, -1.0),
    "above": lambda a, n: torch.where(torch.arange(N) > n, a, -1.0),
    "no_less": lambda a, n: torch.where(torch.arange(N) >= n, a, -1.0),
    "limit_first": lambda a, n: torch.where(n > torch.arange(N), a, -1.0),
    "limit_first_up_to": lambda a, n: torch.where(n >= torch.arange(N), a, -1.0),
    "limit_first_above": lambda a, n: torch.where(n < torch.arange(N), a, -1.0),
    "limit_first_no_less": lambda a, n: torch.where(n <= torch.arange(N), a, -1.0),
    "both": lambda a, n: ((torch.arange(N) >= n) & (torch.arange(N) < n + 7)) | (a < 0),
    "reduced": lambda a, n: torch.where(torch.arange(N) < n, a, 0.0).sum(-1),
    "triangle": lambda a, n: a.tril(3) + n,
}


@pytest.mark.parametrize("target", TARGETS)
def test_limits(target: str, tmp_path: Path) -> None:
    entries = {name: (Call1(function), (x, LIMITS[:, None])) for name, function in FORMS.items()}
    path = mycc.compile(entries, out=tmp_path / "limits.pkg", target=target, verify=False)
    sources = "".join(kernel_sources(path))
    assert "lanes_below(" in sources
    assert "lanes_up_to(" in sources
    assert "iota" not in sources
    model = mycc.load(path)
    for name, function in FORMS.items():
        want = function(x, LIMITS[:, None])
        assert torch.equal(torch.as_tensor(model.entry(name)(x, LIMITS[:, None])), want), name

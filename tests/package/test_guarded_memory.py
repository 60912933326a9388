"""Kernels stay within the memory that they ask for, and read nothing in it that they have not written."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mycc
import pytest
import torch
from torch import nn
from torch.nn import functional as F

RUN = Path(__file__).with_name("guarded_run.py")


class Gated(nn.Module):
    """A gated layer behind a norm, as Llama has it: products of several depth blocks, and of pairs of columns."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(320)
        self.gate, self.up = nn.Linear(320, 1328, bias=False), nn.Linear(320, 1328, bias=False)
        self.down = nn.Linear(1328, 320, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Attention(nn.Module):
    """Causal, of a head size and a length that fill no tile."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(120, 360), nn.Linear(120, 120)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 3, 40)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


def convolutions() -> nn.Module:
    """A first layer, one of 3x3 taps, an inverted residual, a strided one."""
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(24, 40, 3, padding=1), nn.ReLU6(),
        nn.Conv2d(40, 120, 1), nn.ReLU6(), nn.Conv2d(120, 120, 3, padding=1, groups=120), nn.ReLU6(),
        nn.Conv2d(120, 40, 1),
        nn.Conv2d(40, 56, 3, stride=2, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(56, 19),
    )  # fmt: skip


class Rows(nn.Module):
    """Reductions, a softmax, a transpose and a concatenation of odd sizes."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.cat((x.softmax(-1), x.transpose(1, 2).reshape(x.shape).cumsum(-1)), -1)
        return y.std(1), y.amax((0, 2)), F.layer_norm(y, y.shape[-1:])


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "gated, 37 rows": (Gated, (37, 320)),
    "gated, 3 rows": (Gated, (3, 320)),
    "gated, a row": (Gated, (1, 320)),
    "attention": (Attention, (2, 77, 120)),
    "convolutions": (convolutions, (1, 3, 47, 45)),
    "rows": (Rows, (3, 19, 37)),
}


@pytest.mark.parametrize("case", CASES)
def test_kernels_keep_to_their_memory(case: str, tmp_path: Path) -> None:
    make, sizes = CASES[case]
    torch.manual_seed(0)
    package = tmp_path / "model.pkg"
    mycc.compile(make().eval(), (torch.randn(sizes),), out=package)
    run = subprocess.run([sys.executable, RUN, package, "1", "2", "5"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_guard_is_one() -> None:
    """A write behind the memory ends the process."""
    code = f"import sys; sys.path.insert(0, {str(RUN.parent)!r})\nimport guarded_run\nimport ctypes\n"
    inside = "memory = guarded_run.guarded(100)\nctypes.memset(memory.ctypes.data, 0, 100)"
    for text, code_of_exit in ((inside, 0), (inside.replace("0, 100", "0, 129"), -signal.SIGSEGV)):
        run = subprocess.run([sys.executable, "-c", code + text], capture_output=True)
        assert run.returncode == code_of_exit, run.stderr

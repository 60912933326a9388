"""A small model with modules of its own, compiled once, and measured: what the reports of the tests are about."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest

MODEL = """import torch
from torch import nn


class Half(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(64, 256)
        self.down = nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(x)))  # line 12


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Half()
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x) + x
        return self.head(self.norm(h)).softmax(-1)  # line 24


model = Net().eval()
example_inputs = (torch.randn(4, 64),)
dynamic_shapes = {"x": {0: torch.export.Dim("rows", min=1, max=512)}}
"""


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's file."""
    path = tmp_path_factory.mktemp("explained") / "net.py"
    path.write_text(MODEL)
    return path


@pytest.fixture(scope="session")
def package(source: Path) -> Path:
    """The model's package, beside its file."""
    import torch
    from mycc.compiler.capture.source import load_source

    torch.manual_seed(0)
    loaded = load_source(str(source))
    out = source.with_suffix(".pkg")
    return Path(mycc.compile(loaded.model, loaded.args, out=out, dynamic_shapes=loaded.dynamic_shapes))

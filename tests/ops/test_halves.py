"""Models of 16-bit floats on the CPU: weights stay in 16 bits, products sum in float32, errors are those of eager."""

from __future__ import annotations

import zipfile
from pathlib import Path

import mycc
import pytest
import torch
from torch import nn


class Block(nn.Module):
    """Embedding, attention, feed-forward, a tied head, and a product of two activations."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(100, 64)
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)
        self.norm = nn.LayerNorm(64)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.table(ids)
        batch, length, size = h.shape
        q, k, v = self.qkv(self.norm(h)).view(batch, length, 3, 4, 16).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.out(attended.transpose(1, 2).reshape(batch, length, size))
        h = h + self.down(nn.functional.gelu(self.up(self.norm(h))))
        return nn.functional.linear(h, self.table.weight), h @ h.transpose(1, 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_block_of_halves(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Block().eval().to(dtype)
    ids = torch.randint(0, 100, (2, 19))
    path = mycc.compile(model, (ids,), out=tmp_path / "block.pkg")
    with torch.no_grad():
        eager = model(ids)
        exact = Block.forward(model.double(), ids)
    for got, expected, other in zip(mycc.load(path)(ids), exact, eager, strict=True):
        assert got.dtype == dtype
        error = (got.double() - expected).abs().max().item()
        assert error <= 2 * (other.double() - expected).abs().max().item() + 1e-7
    with zipfile.ZipFile(path) as package:
        weights = sum(info.file_size for info in package.infolist() if info.filename == "weights.safetensors")
        sources = b"".join(package.read(name) for name in package.namelist() if name.endswith(".cpp"))
    stored = sum(p.numel() for p in model.parameters())
    assert weights < 2.5 * stored, "two bytes a parameter, padding and names"
    assert (b"GemmArgsBf16 args" if dtype == torch.bfloat16 else b"GemmArgsF16 args") in sources


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_convolutions_of_halves(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1, groups=32),
        nn.Conv2d(32, 48, 3, padding=1), nn.ConvTranspose2d(48, 16, 2, stride=2), nn.Conv2d(16, 8, 1, bias=False),
    )  # fmt: skip
    model = layers.eval().to(dtype)
    image = torch.randn(1, 3, 24, 24, dtype=dtype)
    got = mycc.load(mycc.compile(model, (image,), out=tmp_path / "conv.pkg"))(image)
    with torch.no_grad():
        eager, exact = model(image), model.double()(image.double())
    error = (got.double() - exact).abs().max().item()
    assert got.dtype == dtype
    assert error <= 2 * (eager.double() - exact).abs().max().item() + 1e-7

"""Steps of decoding with caches of several forms, beside the same module in float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

HEADS, KEY_HEADS, SIZE = 4, 2, 12


class Step(nn.Module):
    """Attention of new tokens over a cache and themselves; keys are turned as rotary embeddings turn them."""

    def __init__(self, given_back: bool = False) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, (HEADS + 2 * KEY_HEADS) * SIZE)
        self.given_back = given_back

    def forward(self, x: torch.Tensor, past: torch.Tensor) -> Any:
        sizes = (HEADS * SIZE, KEY_HEADS * SIZE, KEY_HEADS * SIZE)
        q, k, v = (t.unflatten(-1, (-1, SIZE)).transpose(1, 2) for t in self.qkv(x).split(sizes, -1))
        k = k * 0.8 + torch.cat((-k[..., SIZE // 2 :], k[..., : SIZE // 2]), -1) * 0.6
        k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        out = F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2).flatten(2)
        return (out, k, v) if self.given_back else out


class Rolling(Step):
    """The cache is a buffer that loses its oldest token; what is forgotten is read once more."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.randn(2, 1, KEY_HEADS, 9, SIZE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x, self.cache)
        self.cache.copy_(torch.cat((self.cache[:, :, :, 1:], self.cache[:, :, :, :1] + x.mean()), 3))
        return out


def compiled(model: nn.Module, args: tuple[torch.Tensor, ...], path: Path, **how: Any) -> Callable[..., list[Any]]:
    """Runs the package with one thread and with two: the bits are equal."""
    mycc.compile(model, args, out=path, **how)
    models = [mycc.load(path, threads=n) for n in (1, 2)]

    def run(*args: torch.Tensor) -> list[torch.Tensor]:
        one, two = (
            [torch.as_tensor(t) for t in (r if isinstance(r, tuple) else (r,))] for r in (m(*args) for m in models)
        )
        bits = [[t.view(torch.uint8) for t in results] for results in (one, two)]
        assert all(torch.equal(a, b) for a, b in zip(*bits, strict=True))
        return one

    return run


@pytest.mark.parametrize(("tokens", "given_back"), [(1, False), (11, False), (1, True)])
def test_caches_that_are_arguments(tokens: int, given_back: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Step(given_back).eval()
    example = torch.randn(2, tokens, 32), torch.randn(2, 2, KEY_HEADS, 6, SIZE)
    shapes = (None, {3: Dim("past", min=1, max=400)})
    run = compiled(model, example, tmp_path / "step.pkg", dynamic_shapes=shapes)
    for positions in (1, 127, 128, 300):
        args = torch.randn(2, tokens, 32), torch.randn(2, 2, KEY_HEADS, positions, SIZE)
        wanted = model.double()(*(t.double() for t in args))
        for got, want in zip(run(*args), wanted if given_back else (wanted,), strict=True):
            torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)
        model.float()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("tokens", [1, 11])
def test_caches_of_16_bits(dtype: str, tokens: int, tmp_path: Path) -> None:
    """Within twice the error of eager in the same type."""
    torch.manual_seed(0)
    model, own = Step().eval(), {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    example = torch.randn(2, tokens, 32), torch.randn(2, 2, KEY_HEADS, 6, SIZE)
    shapes = (None, {3: Dim("past", min=1, max=400)})
    run = compiled(model, example, tmp_path / "step.pkg", dynamic_shapes=shapes, dtype=dtype)
    for positions in (1, 127, 300):
        args = [t.to(own) for t in (torch.randn(2, tokens, 32), torch.randn(2, 2, KEY_HEADS, positions, SIZE))]
        eager = model.to(own)(*args).double()
        wanted = model.double()(*(t.double() for t in args))
        (got,) = run(*args)
        assert got.dtype == own
        assert (got.double() - wanted).norm() <= 2 * (eager - wanted).norm()
        model.float()


def test_a_cache_that_is_written_after_it_was_read(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Rolling().eval()
    xs = torch.randn(4, 1, 1, 32)
    wide = Rolling().eval().double()
    wide.load_state_dict(model.state_dict())
    run = compiled(model, (xs[0],), tmp_path / "rolling.pkg")
    for x in xs:
        torch.testing.assert_close(run(x)[0].double(), wide(x.double()), rtol=1e-5, atol=1e-5)

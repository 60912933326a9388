"""Results to the bit: at any number of threads, from several callers, by whichever compiler built the package.

Every size is odd, so that whole vectors, partial ones and single elements compute parts of one result, and where they
meet moves with the number of threads.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

COMPILERS = ("g++", "clang++")
THREADS = (2, 3, 5, 64)
CALLERS = 4


class Block(nn.Module):
    """1x1, depthwise, 1x1: a chain of convolutions."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6()),
            *(nn.Conv2d(inner, inner, 3, padding=1, groups=inner, bias=False), nn.BatchNorm2d(inner), nn.ReLU6()),
            *(nn.Conv2d(inner, channels, 1, bias=False), nn.BatchNorm2d(channels)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


class Picture(nn.Module):
    """Convolutions of all kinds, pools, norms over them, a resize."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 21, 3, stride=2)
        self.block = Block(21, 37)
        self.few = nn.Conv2d(3, 3, 3, groups=3)  # fewer channels than lanes
        self.grouped = nn.Conv2d(21, 42, 3, groups=3)
        self.norm = nn.GroupNorm(7, 42)
        self.head = nn.Linear(42, 19)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        large = functional.interpolate(self.few(x), size=(73, 91), mode="bilinear")
        y = functional.hardswish(self.norm(self.grouped(self.block(self.stem(x)))))
        y = functional.avg_pool2d(functional.max_pool2d(y, 3, 2, 1), 3, 2) * 0.7 + 0.1
        return large, y, self.head(y.mean((2, 3)))


class Tiles(nn.Module):
    """Winograd's convolutions by tiles of 3x3 and 2x2 outputs, with stride 2, and of 3 dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(3, 33, 3, padding=1)
        self.tiles = nn.Sequential(nn.Conv2d(33, 70, 3), nn.Conv2d(70, 64, 3, 2, 1), nn.Conv2d(64, 40, 3, padding=1))
        self.slices = nn.Conv3d(33, 32, (2, 3, 3), padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wide = functional.relu(self.wide(x[..., :29, :31]))
        return self.tiles(wide), self.slices(torch.stack((wide, wide * 0.5), 2))


class Text(nn.Module):
    """Products with partial panels, attention, norms, softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(33, 99)
        self.up = nn.Linear(33, 131)
        self.down = nn.Linear(131, 33)
        self.norm = nn.LayerNorm(33)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q, k, v = (t.unflatten(-1, (3, 11)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        x = x + functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.down(functional.gelu(self.up(self.norm(x)), approximate="tanh"))
        root = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.norm.weight
        return root, torch.softmax(root @ root.mT * 0.3, -1), root[:, :1] @ root.mT


class Loops(nn.Module):
    """Products and sums in maps, along rows and columns, in steps; of both widths."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = y.double()
        return (
            torch.lerp(x, y, 0.3) * x - y * 1.7,
            torch.addcmul(z, z, x.double(), value=0.3) - functional.gelu(z, approximate="tanh") * 0.9,
            (x * y).sum(0),
            (x * y - 0.2).sum(1),
            torch.var(y, 1) * 0.3 + torch.std(x, 1),
            torch.cumsum(x[:61] * 0.1, 0),
        )


class Everything(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.picture, self.tiles, self.text, self.loops = Picture(), Tiles(), Text(), Loops()

    def forward(
        self, image: torch.Tensor, text: torch.Tensor, x: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return *self.picture(image), *self.tiles(image), *self.text(text), *self.loops(x, y)


@pytest.fixture(scope="module")
def model() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    inputs = (torch.randn(1, 3, 67, 59), torch.randn(1, 29, 33), torch.randn(301, 233), torch.randn(301, 233))
    return Everything().eval(), inputs


@pytest.fixture(scope="module")
def package(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The package that a compiler built."""
    made: dict[str, Path] = {}

    def of(compiler: str) -> Path:
        if shutil.which(compiler) is None:
            pytest.skip(f"no {compiler} on this machine")
        if compiler not in made:
            out = tmp_path_factory.mktemp("same-bits") / "model.pkg"
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("CXX", compiler)
                mycc.compile(model[0], model[1], out=out, verify=False)
            made[compiler] = out
        return made[compiler]

    return of


def results(package: Path, inputs: Any, threads: int) -> list[np.ndarray]:
    return [np.asarray(y) for y in mycc.load(package, threads=threads)(*inputs)]


def check_same(got: list[np.ndarray], want: list[np.ndarray], what: str) -> None:
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        different = int((a.view(np.uint8) != b.view(np.uint8)).reshape(*a.shape, -1).any(-1).sum())
        assert not different, f"result {i}: {different} of {a.size} elements differ {what}"


@pytest.mark.parametrize("compiler", COMPILERS)
def test_threads_and_callers(model: Any, package: Any, compiler: str) -> None:
    module, inputs = model
    path = package(compiler)
    want = results(path, inputs, 1)
    with torch.no_grad():
        for got, exact in zip(want, module(*inputs), strict=True):
            np.testing.assert_allclose(got, exact.numpy(), rtol=1e-3, atol=1e-4)
    for threads in THREADS:
        check_same(results(path, inputs, threads), want, f"between {threads} threads and one")
    shared = mycc.load(path, threads=2)
    with ThreadPoolExecutor(CALLERS) as pool:
        for got in pool.map(lambda _: [np.asarray(y) for y in shared(*inputs)], range(3 * CALLERS)):
            check_same(got, want, f"between {CALLERS} callers and one")


def test_compilers(model: Any, package: Any) -> None:
    first, second = (results(package(compiler), model[1], 1) for compiler in COMPILERS)
    check_same(second, first, "between the compilers")

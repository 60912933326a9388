"""What the tests of convolutions share: their kinds, maps whose channels lie last, a check of many forms at once."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import mycc
import torch
from torch import Tensor, nn

#: dimensions -> plain, transposed, a map
KINDS: dict[int, tuple[Any, Any, tuple[int, ...]]] = {
    1: (nn.Conv1d, nn.ConvTranspose1d, (61,)),
    2: (nn.Conv2d, nn.ConvTranspose2d, (13, 37)),
    3: (nn.Conv3d, nn.ConvTranspose3d, (5, 9, 20)),
}


class Modules(nn.Module):
    def __init__(self, modules: list[nn.Module]) -> None:
        super().__init__()
        self.all = nn.ModuleList(modules)

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        return [module(x) for module, x in zip(self.all, inputs, strict=True)]


class ChannelsLast(nn.Module):
    """A convolution of maps whose channels lie last, and which are computed upon."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.inner(x.movedim(-1, 1) * 2)).movedim(1, -1)


def checked(cases: list[tuple[nn.Module, Tensor]], folder: Path, target: str = "cpu") -> None:
    """Against float64: twice torch's own error; the same bits at one and at three threads."""
    modules, inputs = [m.eval() for m, _ in cases], [x for _, x in cases]
    path = mycc.compile(Modules(modules), tuple(inputs), out=folder / "sums.pkg", verify=False, target=target)
    found, again = (mycc.load(path, threads=n)(*inputs) for n in (1, 3))
    with torch.no_grad():
        near = [m(x) for m, x in cases]
        exact = [m.double()(x.double()) for m, x in cases]
        for m in modules:
            m.float()
    for (module, _), mine, same, eager, want in zip(cases, found, again, near, exact, strict=True):
        assert torch.equal(mine, same), module
        assert mine.shape == want.shape
        allowed = 2 * (eager - want).abs().max() + 1e-6
        assert (mine - want).abs().max() <= allowed, module


def kernel_names(model: nn.Module, x: Tensor, folder: Path) -> list[str]:
    """Of the kernels that a model becomes."""
    options = {"build.flags": "-O0"}  # nothing runs
    return names_in(mycc.compile(model, (x,), out=folder / "named.pkg", verify=False, options=options))


def names_in(path: Path) -> list[str]:
    """Of a package's kernels."""
    with zipfile.ZipFile(path) as package:
        (entry,) = json.loads(package.read("manifest.json"))["entry_points"]
    return [kernel["name"] for kernel in entry["kernels"]]

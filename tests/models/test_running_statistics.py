"""Running statistics that torch's schemas do not declare as written: packages keep them between calls."""

import copy
from pathlib import Path

import mycc
import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

CASES = {
    "instance norm": (nn.InstanceNorm1d(3, 1e-3, 0.3, track_running_stats=True), (4, 3, 15)),
    "instance norm of one image": (nn.InstanceNorm2d(3, affine=True, track_running_stats=True), (3, 5, 4)),
    "cumulative average": (nn.BatchNorm1d(3, momentum=None), (4, 3, 15)),
    "cumulative average of images": (nn.BatchNorm2d(3, momentum=None, affine=False), (2, 3, 5, 4)),
}


class WithBuffers(nn.Module):
    """A module's result and its buffers after the call."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x), [b.clone() for b in self.inner.buffers()]


@pytest.mark.parametrize("name", CASES)
def test_statistics_of_three_calls(name: str, tmp_path: Path) -> None:
    module, shape = CASES[name]
    torch.manual_seed(0)
    model = WithBuffers(module).train()
    inputs = [torch.randn(shape) * (i + 1) + i for i in range(3)]
    package = mycc.load(mycc.compile(copy.deepcopy(model), (inputs[0],), out=tmp_path / "m.pkg"))
    for x in inputs:
        want, got = tree_leaves(model(x)), tree_leaves(package(x))
        for w, g in zip(want, got, strict=True):
            torch.testing.assert_close(torch.as_tensor(g), w, rtol=1e-5, atol=1e-5)

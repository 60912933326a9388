"""Our definitions of backward operators against torch's kernels: at each call of one, both on the same arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mycc.compiler.graph.decompose.all_families import DECOMPOSITIONS
from torch.utils._python_dispatch import TorchDispatchMode

F = torch.nn.functional
W = torch.arange(40, dtype=torch.float64).reshape(10, 4).cos()
CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "max 2d": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3, 9, 8)),
    "max 2d apart": (lambda x: F.max_pool2d(x, 2), (2, 3, 8, 6)),
    "max 2d with gaps": (lambda x: F.max_pool2d(x, 2, 3), (1, 2, 9, 8)),
    "max 2d dilated": (lambda x: F.max_pool2d(x, (3, 2), (2, 1), 1, (2, 1), ceil_mode=True), (2, 3, 9, 8)),
    "max 3d": (lambda x: F.max_pool3d(x, (1, 2, 3), 2, (0, 1, 1)), (2, 2, 4, 5, 6)),
    "max without a batch": (lambda x: F.max_pool2d(x, 2, 1), (3, 5, 5)),
    "adaptive max": (lambda x: F.adaptive_max_pool2d(x, (3, 2)), (2, 3, 7, 5)),
    "adaptive max 3d": (lambda x: F.adaptive_max_pool3d(x, 2), (1, 3, 3, 4, 5)),
    "mean 2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), (2, 3, 9, 8)),
    "mean of what is there": (lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), (2, 3, 8, 9)),
    "mean, ceiling": (lambda x: F.avg_pool2d(x, 3, 2, 1, True), (2, 3, 8, 9)),
    "mean, divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), (2, 3, 8, 9)),
    "mean 3d": (lambda x: F.avg_pool3d(x, (2, 1, 3), (1, 2, 2), (1, 0, 1)), (1, 2, 4, 4, 5)),
    "adaptive mean": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (2, 3, 7, 5)),
    "adaptive mean 3d": (lambda x: F.adaptive_avg_pool3d(x, (2, 1, 3)), (1, 2, 4, 4, 5)),
    "nearest": (lambda x: F.interpolate(x, (7, 3)), (2, 3, 4, 5)),
    "nearest 1d": (lambda x: F.interpolate(x, scale_factor=2.0), (2, 3, 4)),
    "nearest 3d": (lambda x: F.interpolate(x, (3, 5, 2)), (1, 2, 2, 4, 3)),
    "nearest exact": (lambda x: F.interpolate(x, (7, 3), mode="nearest-exact"), (2, 3, 4, 5)),
    "linear": (lambda x: F.interpolate(x, 7, mode="linear"), (2, 3, 4)),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=(2.0, 1.5), mode="bilinear"), (2, 3, 4, 5)),
    "bilinear, corners": (lambda x: F.interpolate(x, (9, 3), mode="bilinear", align_corners=True), (2, 3, 4, 5)),
    "trilinear": (lambda x: F.interpolate(x, (3, 5, 2), mode="trilinear"), (1, 2, 2, 4, 3)),
    "bicubic": (lambda x: F.interpolate(x, (9, 3), mode="bicubic"), (2, 3, 4, 5)),
    "antialiased": (lambda x: F.interpolate(x, (3, 9), mode="bilinear", antialias=True), (2, 3, 8, 5)),
    "antialiased bicubic": (lambda x: F.interpolate(x, (3, 9), mode="bicubic", antialias=True), (2, 3, 8, 5)),
    "replicated": (lambda x: F.pad(x, (1, 2, 0, 3), "replicate"), (2, 3, 4, 5)),
    "replicated 3d": (lambda x: F.pad(x, (1, 2, 0, 3, 2, 0), "replicate"), (1, 2, 2, 4, 3)),
    "weight norm": (lambda x: torch._weight_norm(x, x.sum((1, 2), keepdim=True), 0), (3, 4, 2)),
    "distances": (lambda x: torch.cdist(x, x.detach().flip(-1)), (2, 5, 3)),
    "distances, 1": (lambda x: torch.cdist(x, W[:, :3], 1), (5, 3)),
    "distances, 3": (lambda x: torch.cdist(x, torch.cat([W[:, :3], x.detach()[:1]]), 3.0), (5, 3)),
    "distances, infinity": (lambda x: torch.cdist(x, W[:, :3], float("inf")), (5, 3)),
    "bags": (
        lambda w: F.embedding_bag(torch.tensor([1, 2, 2, 0]), w, torch.tensor([0, 1, 1]), mode="mean", padding_idx=0),
        (4, 3),
    ),
    "weighted bags": (
        lambda w: F.embedding_bag(torch.tensor([[1, 2], [2, 0]]), w, mode="sum", per_sample_weights=W[:2, :2] + 1),
        (4, 3),
    ),
    "classes": (lambda x: F.nll_loss(x, torch.tensor([0, 3, -100, 2, 3])), (5, 4)),
    "classes, one ignored": (lambda x: F.nll_loss(x, torch.tensor([0, 3, 1, 2, 3]), W[:4, 0], ignore_index=3), (5, 4)),
    "classes, each": (
        lambda x: F.nll_loss(x, torch.tensor([3, 0]), W[:4, 1], reduction="none", ignore_index=0), (2, 4),
    ),
    "classes, sum": (lambda x: F.nll_loss(x, torch.tensor(2), reduction="sum"), (4,)),
    "classes of a map": (
        lambda x: F.nll_loss(x, torch.arange(12).reshape(2, 2, 3) % 4, W[:4, 2], ignore_index=1), (2, 4, 2, 3),
    ),
    "classes of a map, each": (
        lambda x: F.nll_loss(x, torch.arange(12).reshape(2, 2, 3) % 4, reduction="none"), (2, 4, 2, 3),
    ),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x.detach() * 0.5, x, is_causal=True), (2, 2, 5, 4)),
    "convolution": (lambda w: F.conv2d(torch.ones(2, 4, 7, 6).double().cumsum(-1), w, None, 2, 1, 1, 2), (6, 2, 3, 3)),
    "transposed": (lambda x: F.conv_transpose2d(x, W[:4, :].reshape(2, 2, 2, 2), None, 2, 1, 1), (2, 2, 4, 5)),
}  # fmt: skip


class Comparing(TorchDispatchMode):
    """Runs our definition of each backward operator beside torch's kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.compared: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        name = f"aten.{func._opname}"
        definition = DECOMPOSITIONS.get(name)
        if definition is not None and "backward" in name:
            own = definition(*args, **(kwargs or {}))
            wanted = found if isinstance(found, (tuple, list)) else [found]
            for a, b in zip(own if isinstance(own, (tuple, list)) else [own], wanted, strict=True):
                if b is not None and b.numel():
                    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
            self.compared.append(name)
        return found


@pytest.mark.parametrize("name", CASES)
def test_a_definition_is_torch_s_kernel(name: str) -> None:
    function, shape = CASES[name]
    torch.manual_seed(len(name))
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    y = function(x)
    with Comparing() as mode:
        torch.autograd.grad(y, x, torch.randn_like(y))
    assert mode.compared

"""What differentiation leaves in a graph: gradients of convolutions and of attention, against torch's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.graph.decompose.gradients import (
    efficient_attention_backward,
    flash_attention_backward,
)
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.lower.core.driver import unsupported
from mycc.compiler.verify import eager
from torch import Tensor
from torch.export import Dim
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from ..helpers.programs import Call1

aten = torch.ops.aten


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@dataclass(frozen=True)
class Conv:
    """A convolution: sizes of the space, channels in and out, and the operator's numbers."""

    size: tuple[int, ...]
    channels: tuple[int, int]
    kernel: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    transposed: bool = False
    behind: int = 0

    def arguments(self) -> tuple[Any, ...]:
        count = len(self.size)
        spread = ([n] * count for n in (self.stride, self.padding, self.dilation))
        return (*spread, self.transposed, [self.behind] * count, self.groups)

    def tensors(self, batch: int = 3) -> tuple[Tensor, Tensor, Tensor]:
        """The gradient of the result, the input, and the weights."""
        rows, columns = self.channels[:: 1 if self.transposed else -1]
        x = normal(batch, self.channels[0], *self.size)
        weight = normal(rows, columns // self.groups, *self.kernel, seed=1)
        shape = aten.convolution(x, weight, None, *self.arguments()).shape
        return normal(*shape, seed=2), x, weight


CONVS = {
    "1d": Conv((11,), (4, 6), (3,), padding=1),
    "1d strided": Conv((11,), (4, 6), (3,), stride=2, padding=1, dilation=2),
    "2d": Conv((7, 9), (3, 5), (3, 2), padding=1),
    "2d strided": Conv((8, 9), (3, 5), (3, 3), stride=2, padding=1),
    "2d left over": Conv((9, 10), (3, 4), (2, 2), stride=3),
    "2d groups": Conv((7, 8), (4, 6), (3, 3), padding=1, groups=2),
    "2d many channels": Conv((5, 5), (40, 20), (3, 3), padding=1, groups=2),
    "2d depthwise": Conv((7, 8), (4, 4), (3, 3), padding=1, stride=2, groups=4),
    "2d pointwise": Conv((4, 5), (6, 3), (1, 1)),
    "3d": Conv((4, 5, 6), (2, 3), (2, 3, 2), padding=1, stride=2),
    "1d transposed": Conv((6,), (4, 6), (3,), stride=2, padding=1, behind=1, transposed=True),
    "2d transposed": Conv((5, 6), (4, 6), (3, 3), stride=2, padding=1, behind=1, groups=2, transposed=True),
    "2d transposed dilated": Conv((5, 6), (4, 2), (3, 3), stride=2, dilation=3, behind=2, transposed=True),
    "3d transposed": Conv((3, 4, 3), (2, 3), (2, 2, 2), stride=2, transposed=True),
}


def same(function: Callable[..., Any], inputs: tuple[Tensor, ...], dynamic: Any = None, *others: Any) -> None:
    """The graph after the passes is lowered, and computes what `function` does, for inputs of other sizes too."""
    graph = capture(Call1(function).eval(), inputs, dynamic_shapes=dynamic)
    result = run_graph_passes(graph)
    assert not unsupported(result)
    for given in (inputs, *others):
        want = function(*given)
        for got, expected in zip(eager(result, given), want if isinstance(want, tuple) else (want,), strict=True):
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("name", CONVS)
def test_convolution_backward(name: str) -> None:
    conv = CONVS[name]

    def function(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        bias = [grad.shape[1]]
        whole = aten.convolution_backward(grad, x, weight, bias, *conv.arguments(), [True, True, True])
        of_x, _, _ = aten.convolution_backward(grad, x, weight, bias, *conv.arguments(), [True, False, False])
        _, of_weight, of_bias = aten.convolution_backward(grad, x, weight, bias, *conv.arguments(), [False, True, True])
        return (*whole, of_x, of_weight, of_bias)

    same(function, conv.tensors())


def gradients(stride: int) -> Callable[[Tensor, Tensor], tuple[Tensor, ...]]:
    def function(x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        y = aten.convolution(x, weight, None, [stride] * 2, [1, 1], [1, 1], False, [0, 0], 1)
        mask = [True, True, True]
        found = aten.convolution_backward(
            y, x, weight, [y.shape[1]], [stride] * 2, [1, 1], [1, 1], False, [0, 0], 1, mask
        )
        return tuple(found)

    return function


@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_backward_of_dynamic_sizes(stride: int) -> None:
    n, h = Dim("n", min=1, max=16), Dim("h", min=4, max=32)
    other = (normal(1, 3, 15, 8), normal(4, 3, 3, 3, seed=1))
    inputs = (normal(2, 3, 10, 8), normal(4, 3, 3, 3, seed=1))
    same(gradients(stride), inputs, (({0: n, 2: h}, None),), other, (normal(3, 3, 4, 8), other[1]))


MASK = torch.tensor([[True, False, True], [False, False, False]])
ATTENTION: dict[str, tuple[dict[str, Any], Tensor | None]] = {
    "plain": ({}, None),
    "causal": ({"is_causal": True}, None),
    "scale": ({"scale": 0.3}, None),
    "mask": ({}, MASK),
    "bias": ({}, normal(2, 3, seed=9).float()),
}


@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_attention_backward(name: str, dynamic: bool) -> None:
    """Of make_fx: torch's flash attention on CPUs, with the logarithms that its gradient reads."""
    named, mask = ATTENTION[name]

    def function(q: Tensor, k: Tensor, v: Tensor, *masks: Tensor) -> tuple[Tensor, ...]:
        parts = [t.detach().requires_grad_(True) for t in (q, k, v)]
        y = F.scaled_dot_product_attention(*parts, attn_mask=masks[0] if masks else None, **named)
        return tuple(torch.autograd.grad(y.pow(2).sum(), parts))

    def inputs(batch: int) -> tuple[Tensor, ...]:
        parts = [normal(batch, 2, rows, 8, seed=rows).float() for rows in (2, 3, 3)]
        return (*parts, *([] if mask is None else [mask]))

    traced = make_fx(function, tracing_mode="symbolic" if dynamic else "real")(*inputs(2))
    assert "flash_attention_for_cpu_backward" in traced.code
    if dynamic:
        size = {0: Dim("batch", min=1, max=8)}
        graph = capture(traced, inputs(2), dynamic_shapes=(size, size, size, *([] if mask is None else [None])))
    else:
        graph = capture(traced, inputs(2))
    result = run_graph_passes(graph)
    assert not unsupported(result)
    for batch in (2, 1, 5) if dynamic else (2,):
        for got, want in zip(eager(result, inputs(batch)), function(*inputs(batch)), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["flash", "efficient", "efficient, of the mask"])
@pytest.mark.parametrize("size", [8, 600], ids=["whole", "spelled out"])
def test_the_gradients_of_fused_attention_on_gpus(name: str, size: int) -> None:
    """Operators that torch has on GPUs alone: their definitions on tensors of a CPU. A head of 600 has no kernel."""
    parts = [normal(2, 2, rows, size, seed=rows).float().requires_grad_(True) for rows in (5, 7, 7)]
    mask = normal(1, 2, 5, 7, seed=3).float().requires_grad_(True) if name != "flash" else None
    y = F.scaled_dot_product_attention(*parts, attn_mask=mask)
    grad = normal(*y.shape, seed=4).float()
    wanted = torch.autograd.grad(y, [*parts, *([] if mask is None else [mask])], grad)
    scores = parts[0] @ parts[1].mT / size**0.5 + (0 if mask is None else mask)
    log, nothing = torch.logsumexp(scores, -1).detach(), torch.empty(0)
    q, k, v, out = (t.detach() for t in (*parts, y))
    bias = None if mask is None else mask.detach()
    if name == "flash":
        found: Any = flash_attention_backward(
            grad, q, k, v, out, log, nothing, nothing, 5, 7, 0.0, False, nothing, nothing
        )
    else:
        wants = [True, True, True, name != "efficient"]
        log = F.pad(log, (0, 27))
        found = efficient_attention_backward(grad, q, k, v, bias, out, log, nothing, nothing, 0.0, wants)
    for f, w in zip(found, wanted, strict=False):
        if f is not None:
            torch.testing.assert_close(f, w, rtol=1e-4, atol=1e-5)
    assert sum(f is not None for f in found) == (4 if name == "efficient, of the mask" else 3)

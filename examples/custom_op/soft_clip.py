"""A model with an operator of its own, three ways: over the loop IR, in C++, and in Triton.

    mycc compile examples/custom_op/soft_clip.py --out soft_clip.pkg
    python examples/custom_op/soft_clip.py                              # compiles it, runs it, compares with torch

`demo::soft_clip` is limit * tanh(x / limit), said with the operators of the loop IR: it is fused with what stands
around it, and needs no kernel of its own. `demo::running_best` is the largest value so far along a row, in C++ for
CPUs (running_best.cpp) and in Triton for GPUs (running_best.py): code of yours that goes into the package as it is.
"""

from __future__ import annotations

from pathlib import Path

import mycc
import torch
from mycc.compiler.lower.core.builder import call, number
from torch import nn

HERE = Path(__file__).parent


# the operators, as torch knows them --------------------------------------------------------------------------------
@torch.library.custom_op("demo::soft_clip", mutates_args=())
def soft_clip(x: torch.Tensor, limit: float) -> torch.Tensor:
    return limit * torch.tanh(x / limit)


@soft_clip.register_fake
def _(x: torch.Tensor, limit: float) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("demo::running_best", mutates_args=())
def running_best(x: torch.Tensor, start: float) -> torch.Tensor:
    return torch.cummax(x, dim=-1).values.clamp_min(start)


@running_best.register_fake
def _(x: torch.Tensor, start: float) -> torch.Tensor:
    return torch.empty_like(x)


# the operators, as mycc compiles them --------------------------------------------------------------------------------
@mycc.lowering("demo::soft_clip")
def lower_soft_clip(ctx, x, limit):
    """Element i of the result, as an expression of element i of x."""

    def element(i):
        value = x.at(i)
        bound = number(limit, value.dtype)
        return call("mul", bound, call("tanh", call("div", value, bound)))

    return ctx.map(element)


mycc.cpp_kernel("demo::running_best", HERE / "running_best.cpp")

try:
    import triton  # noqa: F401
except ImportError:
    pass
else:
    import running_best as _triton_form  # noqa: F401  registers the kernel for GPUs


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.ops.demo.soft_clip(self.linear(x), 0.75)
        return torch.ops.demo.running_best(x, -0.5)


model = Model().eval()
example_inputs = (torch.randn(4, 16),)
dynamic_shapes = {"x": {0: torch.export.Dim("rows", min=1, max=1024)}}


def main() -> None:
    path = mycc.compile(model, example_inputs, out="soft_clip.pkg", dynamic_shapes=dynamic_shapes)
    x = torch.randn(9, 16)
    error = (mycc.load(path)(x) - model(x)).abs().max()
    print(f"{path}: largest difference from torch {error:.1e}")


if __name__ == "__main__":
    main()

"""A model that calls a Triton kernel of its own: the gated half of a feed-forward layer in one pass over memory.

    mycc compile examples/triton_kernel.py --out triton_kernel.pkg --target cuda:sm_90

No GPU is needed to compile it. Packages for CPUs refuse the kernel.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def silu(x):
    return x / (1 + tl.exp(-x))


@triton.jit
def gate_kernel(both, out, columns, BLOCK: tl.constexpr):
    """A program has a row: out = silu(left half) * right half."""
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = column < columns
    left = tl.load(both + row * 2 * columns + column, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(both + (row * 2 + 1) * columns + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * columns + column, silu(left) * right, mask=inside)


class GatedLayer(nn.Module):
    def __init__(self, size: int = 256, hidden: int = 640) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(size, 2 * hidden), nn.Linear(hidden, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = self.up(x)
        rows, columns = both.shape[0], both.shape[1] // 2
        gated = both.new_empty(rows, columns)
        gate_kernel[(rows,)](both, gated, columns, BLOCK=triton.next_power_of_2(columns))
        return self.down(gated)


torch.manual_seed(0)
model = GatedLayer().eval()
example_inputs = (torch.randn(16, 256),)
dynamic_shapes = {"x": {0: torch.export.Dim("rows", min=1, max=4096)}}

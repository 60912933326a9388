"""A Triton kernel that writes over its arguments."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from mycc import TritonLaunch


@triton.jit
def momentum_kernel(result, m, v0, v1, p, g, n, LR: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    step = tl.load(g + i, mask=inside)
    mean = 0.9 * tl.load(m + i, mask=inside) + step
    tl.store(m + i, mean, mask=inside)
    tl.store(v0 + i, tl.load(v0 + i, mask=inside) + step, mask=inside)
    tl.store(v1 + i, tl.load(v1 + i, mask=inside) + step, mask=inside)
    tl.store(result + i, tl.load(p + i, mask=inside) - LR * mean, mask=inside)


def launch_momentum(ctx: Any, outputs: Any, p: Any, m: Any, g: Any, v: Any, lr: float) -> TritonLaunch:
    """One program for 64 elements; what mycc.triton_kernel registers."""
    n = p.shape[0] * p.shape[1]
    return TritonLaunch(momentum_kernel, [(n + 63) // 64], [outputs[0], m, *v, p, g, n], {"LR": lr, "BLOCK": 64})

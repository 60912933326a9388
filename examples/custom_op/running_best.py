"""demo::running_best in Triton: a program walks one row."""

from __future__ import annotations

import mycc
import triton
import triton.language as tl


@triton.jit
def running_best(x, y, columns, START: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    best = tl.full((), START, tl.float32)
    for i in range(columns):
        best = tl.maximum(best, tl.load(x + row * columns + i))
        tl.store(y + row * columns + i, best)


@mycc.triton_kernel("demo::running_best")
def launch(ctx, outputs, x, start):
    rows, columns = x.shape
    return mycc.TritonLaunch(running_best, grid=[rows], args=[x, outputs[0], columns], constants={"START": start})

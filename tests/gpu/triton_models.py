"""Models that call Triton kernels: directly, autotuned, through triton_op, in place, on turned tensors, in branches."""

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

SHIFT = tl.constexpr(3)


@triton.jit
def twice(x):
    return x * 2 + SHIFT


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=b // 32) for b in (128, 256)], key=["n"])
@triton.jit
def scale_kernel(x, out, BLOCK: tl.constexpr, n, factor, flag, DTYPE: tl.constexpr = tl.float32):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    value = twice(tl.load(x + i, mask=inside).to(DTYPE))
    tl.store(out + i, tl.where(flag, value * factor, value), mask=inside)


@triton.jit
def sum_kernel(x, out, columns, row_stride, column_stride, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * row_stride + column * column_stride, mask=column < columns, other=0.0)
    tl.store(out + row, tl.sum(value, 0))


@triton.jit
def bump_kernel(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (i < n) & (i % 2 == 0)
    tl.store(x + i, tl.load(x + i, mask=inside) + 1, mask=inside)


@triton_op("mycc_tests::add", mutates_args={})
def add(x: torch.Tensor, y: torch.Tensor, block: int = 128) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(add_kernel)[(triton.cdiv(out.numel(), block),)](x, y, out, out.numel(), BLOCK=block)
    return out


def operator(x, y):
    return add(x * 2, y, block=64) + 1


def plain(x, y):
    out = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(out.numel(), meta["BLOCK"]),)  # noqa: E731
    add_kernel[grid](x, y, out, out.numel(), BLOCK=128, num_warps=2)
    return out + 1


def tuned(x, y):
    out = torch.zeros_like(x)
    n = out.numel()
    scale_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n=n, factor=2.5, flag=True)
    return out + y


def turned(x, y):
    t = (x + y).t()
    out = torch.empty(t.shape[0])
    sum_kernel[(t.shape[0],)](t, out, t.shape[1], t.stride(0), t.stride(1), BLOCK=64)
    return out


def in_place(x, y):
    z = y * 2
    bump_kernel[(1,)](z[1:2].view(-1), z.shape[1], BLOCK=128)
    bump_kernel[(triton.cdiv(x.numel(), 128),)](x, x.numel(), BLOCK=128)
    return z + x


def in_branch(x, y):
    return torch.cond(x.sum() > 0, add, lambda x, y: x - y, (x, y))


def _in_place(x, y):
    z, x = y * 2, x.clone()
    z[1, ::2] += 1
    x.view(-1)[::2] += 1
    return z + x, x


#: name -> (model, what it computes: its result, and arguments that it writes to)
MODELS = {
    "operator": (operator, lambda x, y: (x * 2 + y + 1,)),
    "plain": (plain, lambda x, y: (x + y + 1,)),
    "tuned": (tuned, lambda x, y: ((x * 2 + 3) * 2.5 + y,)),
    "turned": (turned, lambda x, y: ((x + y).sum(0),)),
    "in_place": (in_place, _in_place),
    "in_branch": (in_branch, lambda x, y: (torch.where(x.sum() > 0, x + y, x - y),)),
}

"""Rules: Fourier transforms, dimension by dimension, through mycc::fft, rfft and irfft on the last one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...ir.fourier import table
from ...model.origins import FIXED
from ..node import Node
from ..work import Work
from .parts import Call, Complex, rule

mycc = torch.ops.mycc


def _along(dim: int, x: Complex, f: Callable[[Complex], Complex]) -> Complex:
    """f along a dimension, which is the last one meanwhile."""
    moved = f(Complex(x.re.movedim(dim, -1), x.im.movedim(dim, -1)))
    return Complex(moved.re.movedim(-1, dim), moved.im.movedim(-1, dim))


def _scaled(x: Any, shape: Sequence[Any], dims: Sequence[int], normalization: int) -> Any:
    """By torch's modes: 0 as it is, 1 by the root of the number of values, 2 by the number."""
    count: Any = 1
    for d in dims:
        count = count * shape[d]
    if normalization == 0:
        return x
    part = x.re if isinstance(x, Complex) else x
    divisor: Any = count
    if normalization == 1:
        fixed = isinstance(count, int)
        divisor = math.sqrt(count) if fixed else torch.sqrt(torch.full([], count, dtype=part.dtype))
    return Complex(x.re / divisor, x.im / divisor) if isinstance(x, Complex) else x / divisor


@rule("_fft_c2c")
def c2c(call: Call, x: Complex, dims: Sequence[int], normalization: int, forward: bool) -> Complex:
    for d in dims:
        x = _along(d, x, lambda v: Complex(*mycc.fft(v.re, v.im, None, forward)))
    return _scaled(x, x.re.shape, dims, normalization)


@rule("_fft_r2c")
def r2c(call: Call, x: Tensor, dims: Sequence[int], normalization: int, onesided: bool) -> Complex:
    """The last of the dimensions from real numbers, the others behind it."""
    *others, last = dims
    n = x.shape[last]
    y = Complex(*(p.movedim(-1, last) for p in mycc.rfft(x.movedim(last, -1), None)))
    if not onesided:  # the other half mirrors it; the dimensions that follow see all of it
        mirrored = Complex(*(p.narrow(last, 1, n - n // 2 - 1).flip(last) for p in y))
        y = Complex(torch.cat([y.re, mirrored.re], last), torch.cat([y.im, -mirrored.im], last))
    for d in others:
        y = _along(d, y, lambda v: Complex(*mycc.fft(v.re, v.im, None, True)))
    return _scaled(y, x.shape, dims, normalization)


@rule("_fft_c2r")
def c2r(call: Call, x: Complex, dims: Sequence[int], normalization: int, last_size: Any) -> Tensor:
    *others, last = dims
    shape = [last_size if d == last % x.re.dim() else n for d, n in enumerate(x.re.shape)]
    for d in others:
        x = _along(d, x, lambda v: Complex(*mycc.fft(v.re, v.im, None, False)))
    half = last_size // 2 + 1
    re, im = (p.narrow(last, 0, half).movedim(last, -1) for p in x)
    return _scaled(mycc.irfft(re, im, None, last_size).movedim(-1, last), shape, dims, normalization)


def add_tables(work: Work) -> None:
    """Gives every transform of a fixed size its table of roots of unity, a constant; equal ones share it."""
    for node in work.nodes():
        name = str(node.target).split(".")
        if name[0] != "mycc" or name[1] not in ("fft", "rfft", "irfft"):
            continue
        kind, position = name[1], {"fft": 2, "rfft": 1, "irfft": 2}[name[1]]
        val = node.args[0].meta["val"]
        size = node.args[3] if kind == "irfft" else val.shape[-1]
        if isinstance(size, int):
            args = list(node.args)
            args[position] = _table(work, node, "fft" if kind == "fft" else "rfft", size, val.dtype)
            node.args = tuple(args)


def _table(work: Work, node: Node, kind: str, size: int, dtype: torch.dtype) -> Any:
    name = f"{kind}_table_{size}_{str(dtype).removeprefix('torch.')}"
    if name in work.constants:
        with work.graph.inserting_before(node):
            again = work.graph.get_attr(name)
        again.meta = {"val": work.fake(work.constants[name])}
        return again
    return work.constant(name, torch.from_numpy(table(kind, size)).to(dtype), like=node, origin=FIXED)

"""Convolutions as sums over the window, element by element: for types without panels, and weights of dynamic sizes.

Any number of spatial dimensions, plain or transposed. Slower than conv.py's, and right for everything.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, IndexValue, cast
from ...ir.index import ZERO, Index, as_index, maximum, minimum
from ..core.builder import call, compare, number, where
from ..core.context import Context
from ..core.tensor import Tensor, squeeze, unsqueeze


def direct_convolution(
    ctx: Context,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    front: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    transposed: bool,
) -> Tensor:
    """x [n, c, ...] (or without n) with weight [out, c / groups, ...], transposed [c, out / groups, ...].

    front: zeros before each dimension; those behind follow from the shape of the result.
    """
    shape = ctx.result_shape()
    spatial = weight.rank - 2
    batched = x.rank == spatial + 2
    if not batched:
        x, shape = unsqueeze(x, 0), (as_index(1), *shape)
    compute = DTYPES[x.dtype].compute
    taps = tuple(range(spatial))
    out_group = shape[1] // as_index(groups)
    in_group = x.shape[1] // as_index(groups)
    lead = 2 + spatial

    def place(d: int, o: Index, k: Index) -> tuple[Index, list[Expr]]:
        """The position that a tap reads, inside the input, and the conditions under which it does."""
        n = x.shape[2 + d]
        if not transposed:
            at = o * stride[d] + k * dilation[d] - front[d]
            return minimum(maximum(at, ZERO), n - 1), within(at, n)
        ahead = o + front[d] - k * dilation[d]
        step = as_index(stride[d])
        at = maximum(ahead, ZERO) // step
        conditions = [*within(ahead, None), *within(at, n)]
        if stride[d] != 1:
            conditions.append(compare("eq", IndexValue(maximum(ahead, ZERO) % step), IndexValue(ZERO)))
        return minimum(at, n - 1), conditions

    holder: list[list[Index]] = []

    def term(i: list[Index]) -> Expr:
        holder.append(i)
        group, inner = i[1] // out_group, i[1] % out_group
        places = [place(d, i[2 + d], i[lead + 1 + d]) for d in taps]
        channel = group * in_group + i[lead]
        own = x.at([i[0], channel, *(at for at, _ in places)])
        kernel = i[lead + 1 :]
        w = weight.at([channel, inner, *kernel] if transposed else [i[1], i[lead], *kernel])
        value = call("mul", cast(own, compute), cast(w, compute))
        for condition in (c for _, conditions in places for c in conditions):
            value = where(condition, value, number(0, compute))
        return value

    def finish(accs: list[Expr]) -> Expr:
        return accs[0] if bias is None else call("add", accs[0], cast(bias.at([holder[0][1]]), compute))

    source = (*shape, in_group, *weight.shape[2:])
    (out,) = ctx.builder.reduce(source, list(range(lead, len(source))), [("sum", term)], [(x.dtype, finish)])
    return out if batched else squeeze(out, 0)


def within(at: Index, n: Index | None) -> list[Expr]:
    """0 <= at < n, as far as it is not known."""
    found = []
    if not at.nonnegative():
        found.append(compare("ge", IndexValue(at), IndexValue(ZERO)))
    if n is not None and not (n - at - 1).nonnegative():
        found.append(compare("lt", IndexValue(at), IndexValue(n)))
    return found

"""Padding by what lies inside: reflected, repeated or from the other end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.expr import Expr
from ...ir.index import ZERO, Index, as_index, maximum, minimum
from ..core.context import Context
from ..core.tensor import Tensor, slice_dim

Source = Callable[[Index], Index]


def bordered(ctx: Context, x: Tensor, pad: Sequence[Index], mode: str) -> Tensor:
    """x with `pad` = (before, after) of the last dimension first, in mode reflect, replicate or circular.

    On CPUs rows are made of three pieces, so that what lies between the borders is a plain copy.
    """
    shape = ctx.result_shape()
    before = {x.rank - 1 - j // 2: pad[j] for j in range(0, len(pad), 2)}
    last = x.rank - 1

    def reader(sources: dict[int, Source]) -> Callable[[list[Index]], Expr]:
        def element(i: list[Index]) -> Expr:
            return x.at([sources[d](place) if d in sources else place for d, place in enumerate(i)])

        return element

    sources = {d: _anywhere(mode, amount, x.shape[d]) for d, amount in before.items()}
    pieces = _pieces(mode, before[last], shape[last], x.shape[last]) if last in before else None
    if pieces is None or ctx.builder.family == "cuda":
        return ctx.builder.map(shape, x.dtype, reader(sources), x.memory_order())
    out = ctx.builder.temp(shape, x.dtype, x.memory_order())
    for start, length, source in pieces:
        piece = slice_dim(out, last, start, length)
        ctx.builder.map(piece.shape, x.dtype, reader({**sources, last: source}), out=piece)
    return out


def _anywhere(mode: str, before: Index, n: Index) -> Source:
    """The place in [0, n) that place i of the result reads, whatever i."""

    def source(i: Index) -> Index:
        own = i - before
        if mode == "replicate":
            return minimum(maximum(own, ZERO), n - 1)
        if mode == "circular":
            return (own + n) % n
        low = maximum(own, -own)  # reflect: |i|, then from the far end
        return (n - 1) - maximum(low - (n - 1), (n - 1) - low)

    return source


def _pieces(mode: str, before: Index, size: Index, n: Index) -> list[tuple[Index, Index, Source]] | None:
    """The pieces of a row in front of what lies inside, inside and behind: first place, length, and what each place of
    it reads; None where it is not known which there are."""
    numbers = before.constant, size.constant, n.constant
    if None in numbers:
        return None
    start, total, inner = numbers
    assert start is not None
    assert total is not None
    assert inner is not None
    first, end = max(start, 0), min(start + inner, total)  # places of the result that are inside
    if end <= first:
        return None
    ends: dict[str, tuple[Source, Source]] = {
        "replicate": (lambda i: ZERO, lambda i: n - 1),
        "circular": (lambda i: i - before + n, lambda i: i + end - before - n),
        "reflect": (lambda i: before - i, lambda i: (n - 1) * 2 - (i + end - before)),
    }
    front, behind = ends[mode]
    rows = [(0, first, front), (first, end, lambda i: i + first - before), (end, total, behind)]
    return [(as_index(a), as_index(b - a), source) for a, b, source in rows if b > a]

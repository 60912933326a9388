"""The epilogue of a product or a convolution over three loops, in which tiles finish their elements.

    y[b, i, j, c] = gelu(acc)     ->     y[z // H, z % H, m, column] = gelu(acc)

z runs over the batch, m over all rows, and column along the lanes. Values stay: the new loops run over the same
elements, each once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..expr import accumulators_first, substitute
from ..index import Atom, Index, Var, of, product
from ..nodes import Store
from ..structured import Conv, ConvChain, Gemm
from .loops import flattened


@dataclass(frozen=True)
class Epilogue:
    """The stores over the loops z, m and column."""

    z: Var
    m: Var
    column: Var
    stores: tuple[Store, ...]


def gemm_epilogue(node: Gemm) -> Epilogue:
    """The epilogue of a product: every loop but the last two is its batch."""
    *batch, m, n = node.dims
    return _over(node.stores, batch, [m], n)


def conv_epilogue(node: Conv, stores: Sequence[Store]) -> Epilogue:
    """The epilogue of a convolution with these stores: along the lanes run the channels, or the pixels where the
    algorithm writes channels first."""
    *rows, c = node.dims
    if node.algorithm != "transposing":  # "nchw" has its pixels last
        return _over(stores, [], rows, c)
    n, c, *depth, h, w = node.dims
    pixel = Var("pixel", h.extent * w.extent)
    digits = flattened((h, w), pixel)
    flat = [Store(s.buffer, s.index.substitute(digits), substitute(s.value, digits)) for s in stores]
    return _over(flat, [], [n, c, *depth], pixel)


def link_stores(chain: ConvChain, i: int) -> tuple[Store, ...]:
    """What link i of a chain stores; what stays in the chain lies pixel by pixel."""
    link = chain.links[i]
    inside = i < len(chain.locals)
    return tuple(Store(s.buffer, of(link.dims[-1]), s.value) for s in link.stores) if inside else link.stores


def _over(stores: Sequence[Store], batch: Sequence[Var], rows: Sequence[Var], n: Var) -> Epilogue:
    z, m = Var("z", product(v.extent for v in batch)), Var("m", product(v.extent for v in rows))
    column = Var("column", n.extent)
    values: dict[Atom, Index] = {**flattened(batch, z), **flattened(rows, m), n: of(column)}
    moved = (
        Store(s.buffer, s.index.substitute(values), accumulators_first(substitute(s.value, values))) for s in stores
    )
    return Epilogue(z, m, column, tuple(moved))

"""The loops of a matrix node, flattened to a batch, rows and columns; convolutions that are products."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.buffers import Operand
from ...ir.expr import accumulators_first, substitute
from ...ir.index import ONE, ZERO, Atom, Index, Var, of, product
from ...ir.nodes import Store
from ...ir.rewrite import flattened
from ...ir.structured import Attention, Conv, Gemm


class Axes:
    """The loops of a matrix node as z (all batch loops), m (all row loops) and n, as Triton kernels take them."""

    def __init__(self, node: Gemm | Conv | Attention, rows: int):
        *batch, n = node.dims
        self.batch, self.rows = batch[:-rows], batch[-rows:]
        self.z = Var("z", product(v.extent for v in self.batch))
        self.m = Var("m", product(v.extent for v in self.rows))
        self.n = Var("n", n.extent)
        outer: dict[Atom, Index] = dict.fromkeys(self.batch, ZERO)
        if self.z.extent != ONE:
            outer |= flattened(self.batch, self.z)
        self.values: dict[Atom, Index] = {**outer, **flattened(self.rows, self.m), n: of(self.n)}

    def moved(self, stores: Sequence[Store]) -> list[Store]:
        """The stores in terms of z, m, n."""
        values = self.values
        return [
            Store(s.buffer, s.index.substitute(values), accumulators_first(substitute(s.value, values))) for s in stores
        ]


def as_gemm(node: Conv) -> Gemm | None:
    """A window of one pixel, at every pixel of a dense map, is a matrix product; None when it is not that."""
    w = node.window
    if node.algorithm == "pixels" or w.kernel != (1, 1) or w.stride != (1, 1) or w.pad != (0, 0) or w.groups != 1:
        return None
    batch, rows, columns, channels = node.in_shape
    if tuple(v.extent for v in node.dims[:-1]) != node.in_shape[:-1]:
        return None  # some of the map only, or zeros behind it
    if node.x.strides[1] != columns * node.x.strides[2]:
        return None
    if batch != ONE and node.x.strides[0] != rows * node.x.strides[1]:
        return None
    axes = Axes(node, 3)
    a = Operand(node.x.buffer, node.x.offset, (node.x.strides[2], ONE))
    b = Operand(node.w, node.w_offset, (ONE, channels))
    return Gemm((axes.m, axes.n), tuple(axes.moved(node.stores)), node.origin, channels, a, b, False, node.acc)


def as_product(node: Gemm | Conv) -> Gemm | Conv:
    """The node, as a product where that is what it is."""
    return node if isinstance(node, Gemm) else as_gemm(node) or node

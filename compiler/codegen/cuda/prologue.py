"""The lines by which a product computes its left operand, between the load of a tile of it and the tensor cores.

a_tile = tl.load(a)                                      a tile of x[m, k]
at = step + tl.arange(0, 64)
a_tile = a_tile.to(tl.float32)
a_tile = (tl.maximum(a_tile, 0.0) * tl.load(w1 + at[None, :])).to(tl.bfloat16)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dtypes import DTYPES
from ...ir.expr import substitute
from ...ir.index import Index
from ...ir.plans.tiles import GemmTile
from ...ir.structured import Gemm
from .emit import Place, TritonEmitter, Value
from .kernel import TL_DTYPE
from .matrix import Axes, divides, scalar
from .scope import TritonScope


@dataclass(frozen=True)
class PrologueView:
    """before: lines in front of the loop over k, of what does not change in it; lines: behind the load of a tile."""

    before: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


def prologue_view(node: Gemm, tile: GemmTile, scope: TritonScope, axes: Axes) -> PrologueView:
    """The lines of a node's prologue, none for one without."""
    if node.prologue is None:
        return PrologueView()
    made, lanes = node.prologue, "" if tile.vector else "[None, :]"
    before = _rows(tile, scope, axes.m.extent) if tile.descriptors else []
    lines = []
    masks = {} if divides(tile.m, axes.m.extent) else {"m": "in_rows"}
    inside = "" if divides(tile.k, node.k) else f"inside{lanes}"
    if inside:
        masks["k"] = inside
        if tile.descriptors:
            end = "end" if tile.shared else scalar(scope, node.k)
            lines.append(f"inside = tl.arange(0, {tile.k}) < {end} - step")
    places = {
        axes.z: Place("z"),
        axes.m: Place("0") if tile.vector else Place("rows[:, None]", ("m",)),
        made.depth: Place(f"at{lanes}", ("k",)),
    }
    operand = Value("a_tile", ("k",) if tile.vector else ("m", "k"))
    emit = TritonEmitter(scope, places, masks, {made.acc.name: operand}, stem="p")
    value = substitute(made.value, axes.values)
    emit.count_uses([value])
    for load in value.loads:
        if made.depth not in load.own_vars():
            emit.load_early(load)
    early = len(emit.lines)
    rounded = tile.vector or made.dtype == "f32"
    text = emit.value(value) if rounded else f"{emit.operand(value)}.to({TL_DTYPE[made.dtype]})"
    if made.depth in value.vars():
        lines.append(f"at = step + tl.arange(0, {tile.k})")
    compute = DTYPES[made.acc.dtype].compute
    if compute != made.acc.dtype:
        lines.append(f"a_tile = a_tile.to({TL_DTYPE[compute]})")
    lines += [*emit.lines[early:], f"a_tile = {text}"]
    if inside:  # what is made of the zeros behind the end need not be zero
        lines.append(f"a_tile = tl.where({inside}, a_tile, 0.0)")
    return PrologueView((*before, *emit.lines[:early]), tuple(lines))


def _rows(tile: GemmTile, scope: TritonScope, m: Index) -> list[str]:
    """The rows of a tile, which a kernel whose operands come through descriptors has no use for otherwise."""
    lines = [f"rows = tile_m * {tile.m} + tl.arange(0, {tile.m})"]
    if scope.wide:
        lines.append("rows = rows.to(tl.int64)")
    if not divides(tile.m, m):
        lines.append(f"in_rows = (rows < {scalar(scope, m)})[:, None]")
    return lines

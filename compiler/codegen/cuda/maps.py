"""Maps as Triton kernels: flat runs of elements, or tiles where one loop is read along and another is written along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, substitute
from ...ir.index import ONE, ZERO, Atom, Index, Indirect, Var, product
from ...ir.nodes import Map, Node, Store
from ...machine.gpu import ACCESS, Device
from ...schedule.cost.estimates import number
from ...schedule.loops.collapse import collapse
from ...schedule.loops.row_form import flattened
from .blocks import MANY, blocks, power_of_two, share, warps_for, whole
from .emit import Place, TritonEmitter
from .kernel import Launch, TritonKernel, grid
from .module import render
from .scope import TritonScope

#: shorter inner loops are not worth an axis of a tile
LEAST_AXIS = 16
TILE = 64
LOADS_OF_MANY = 4


class View(Protocol):
    """What a template gets, a frozen dataclass; `params` is filled in when everything is printed."""

    @property
    def params(self) -> str: ...


@dataclass(frozen=True)
class MapFlat:
    params: str
    wide: str
    block: int
    masked: bool
    total: str
    body: tuple[str, ...]
    pdl: bool


@dataclass(frozen=True)
class MapTile:
    """x: the loop that is written side by side; y: the other axis; rest: all other loops, one value a program."""

    params: str
    wide: str
    block_x: int
    block_y: int
    size_x: str
    size_y: str
    tiles_x: str
    tiles_y: str
    masked_x: bool
    masked_y: bool
    rest: bool
    body: tuple[str, ...]
    pdl: bool


def map_launch(node: Map, name: str, device: Device) -> Launch:
    """The launch of a map."""
    node = collapse(node)
    x = _written_along(node)
    y = _read_along(node, x) if x is not None else None
    if x is not None and y is not None:
        return _tile(node, name, device, x, (y,), (TILE, TILE))
    if x is not None and x is node.dims[-1] and len(node.dims) > 1 and _rows_pay(node, x):
        block = min(1024, power_of_two(number(x.extent)))
        rows = node.dims[:-1]
        return _tile(
            node, name, device, x, rows, (block, share(product(v.extent for v in rows), device, 1, 2048 // block))
        )
    return _flat(node, name, device)


def _flat(node: Map, name: str, device: Device) -> Launch:
    scope = TritonScope.of(node)
    total = product(v.extent for v in node.dims)
    i = Var("i", total)
    each = ACCESS // max(DTYPES[b.dtype].size for b in (*node.reads(), *node.writes()))
    most = total.constant if total.constant is not None else 1024
    more = LOADS_OF_MANY if number(total) >= MANY else 1
    block = min(power_of_two(max(most, 1)), share(total, device, 128, 1024 * more))
    emit = TritonEmitter(scope, {i: Place("i", ("i",))}, {} if whole(total, block) else {"i": "i_inside"})
    emit_stores(emit, node.stores, flattened(node.dims, i) if total != ONE else dict.fromkeys(node.dims, ZERO))
    text = TritonEmitter(scope, {}).index(total)
    view = MapFlat("", _wide(scope), block, not whole(total, block), text, tuple(emit.lines), device.pdl)
    warps = warps_for(block, each * more)
    return finish("map_flat.py.j2", view, scope, name, grid(blocks(total, block)), node, warps, device)


def _tile(node: Map, name: str, device: Device, x: Var, along_y: tuple[Var, ...], block: tuple[int, int]) -> Launch:
    scope = TritonScope.of(node)
    others = tuple(v for v in node.dims if v is not x and v not in along_y)
    size_x, size_y = x.extent, product(v.extent for v in along_y)
    flat_x, flat_y, rest = Var("x", size_x), Var("y", size_y), Var("rest", product(v.extent for v in others))
    values = {**flattened((x,), flat_x), **flattened(along_y, flat_y), **flattened(others, rest)}
    block_x, block_y = (min(b, power_of_two(s.constant or b)) for b, s in zip(block, (size_x, size_y), strict=True))
    masks = {
        axis: f"{axis}_inside" for axis, s, b in (("x", size_x, block_x), ("y", size_y, block_y)) if not whole(s, b)
    }
    places = {flat_x: Place("x", ("x",)), flat_y: Place("y", ("y",) if block_y > 1 else ()), rest: Place("rest")}
    emit = TritonEmitter(scope, places, masks)
    emit_stores(emit, node.stores, values)
    plain = TritonEmitter(scope, {})
    tiles_x, tiles_y = blocks(size_x, block_x), blocks(size_y, block_y)
    view = MapTile(
        params="",
        wide=_wide(scope),
        block_x=block_x,
        block_y=block_y,
        size_x=operand(plain.index(size_x)),
        size_y=operand(plain.index(size_y)),
        tiles_x=operand(plain.index(tiles_x)),
        tiles_y=operand(plain.index(tiles_y)),
        masked_x="x" in masks,
        masked_y="y" in masks,
        rest=bool(others),
        body=tuple(emit.lines),
        pdl=device.pdl,
    )
    programs = grid(tiles_x * tiles_y * rest.extent)
    return finish("map_tile.py.j2", view, scope, name, programs, node, warps_for(block_x * block_y, most=8), device)


def emit_stores(emit: TritonEmitter, stores: Sequence[Store], values: dict[Atom, Index]) -> None:
    """The statements of stores whose loops become these values."""

    def moved(e: object) -> Expr:
        assert isinstance(e, Expr)
        return substitute(e, values)

    rows = [Store(s.buffer, s.index.substitute(values, moved), moved(s.value)) for s in stores]
    emit.count_uses(s.value for s in rows)
    for row in rows:
        emit.store(row)


def _written_along(node: Map) -> Var | None:
    """The loop along which every store is side by side."""
    for v in reversed(node.dims):
        if all(s.index.coefficient(v) == ONE for s in node.stores):
            return v
    return None


def _read_along(node: Map, x: Var) -> Var | None:
    """Another loop along which something is read side by side, while x jumps: the other axis of a tile."""
    if number(x.extent) < LEAST_AXIS:
        return None
    for e in node.expressions():
        for load in e.loads:
            step = load.index.coefficient(x)
            if step is None or step == ONE or not step.terms:
                continue
            for v in node.dims:
                if v is not x and load.index.coefficient(v) == ONE and number(v.extent) >= LEAST_AXIS:
                    return v
    return None


def _rows_pay(node: Map, x: Var) -> bool:
    """Places read from memory are the same for a whole row; a dynamic inner loop is no divisor of a flat one."""
    if number(x.extent) < LEAST_AXIS:
        return False
    if x.extent.constant is None:
        return True
    places = [load.index for e in node.expressions() for load in e.loads] + [s.index for s in node.stores]
    indirect = [a for index in places for a in index.atoms() if isinstance(a, Indirect)]
    return bool(indirect) and all(x not in a.value.vars() for a in indirect)  # type: ignore[attr-defined]


def operand(text: str) -> str:
    """A text that any operator may take."""
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _wide(scope: TritonScope) -> str:
    return ".to(tl.int64)" if scope.wide else ""


def finish(
    template: str, view: View, scope: TritonScope, name: str, programs: tuple[Index, Index, Index], node: Node,
    warps: int, device: Device,
) -> Launch:  # fmt: skip
    """The launch of a rendered view: the scope knows the parameters, once everything is printed."""
    params = scope.params()
    shown = replace(view, params=", ".join(p.name for p in params))  # type: ignore[type-var]
    text = render(template, shown, device.leaves_room(number(product(programs))))
    flush = scope.softmax and "libdevice" not in text.partition("@triton.jit")[2]
    kernel = TritonKernel(
        name, text, params, num_warps=warps, num_stages=2, pdl=device.pdl, flush=flush, fuses=not scope.rounds
    )
    return Launch(kernel, programs, scope.args(), node.origin)

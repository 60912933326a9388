"""The plans of maps: flat runs of elements, or tiles where one loop is read along and another is written along."""

from __future__ import annotations

from ...ir.bounds import largest
from ...ir.dtypes import DTYPES
from ...ir.expr import Call, substitute
from ...ir.fours import FOUR, takes_words_in_turn
from ...ir.index import ONE, Index, Indirect, Var, as_index, product
from ...ir.nodes import Map
from ...ir.plans.gpu import MapPlan
from ...ir.rewrite import flattened
from ...machine.gpu import ACCESS, Device
from ..cost.estimates import number
from ..fusion.early_casts import is_rounding
from .blocks import blocks, power_of_two, share, warps_for


def map_form(node: Map, device: Device) -> str:
    """flat, transpose or rows: see MapPlan."""
    x = _written_along(node)
    if x is None:
        return "flat"
    if _read_along(node, x, device) is not None:
        return "transpose"
    return "rows" if x is node.dims[-1] and len(node.dims) > 1 and _rows_pay(node, x, device) else "flat"


def map_axes(node: Map, plan: MapPlan, device: Device) -> tuple[Var, ...]:
    """The loop along which a tile is written, and the loops of its other axis; none of a flat map."""
    x = _written_along(node)
    if plan.form == "flat" or x is None:
        return ()
    if plan.form == "rows":
        return (x, *(v for v in node.dims if v is not x))
    y = _read_along(node, x, device)
    assert y is not None
    return (x, y)


def map_block(node: Map, plan: MapPlan, device: Device) -> tuple[int, ...]:
    """Elements of a program: of a flat map, or along both axes of a tile."""
    if plan.form == "flat" and plan.together:
        return (min(power_of_two(number(_total(node))), device.maps.most * device.maps.of_many),)
    if plan.form == "flat":
        total = _total(node)
        most = total.constant if total.constant is not None else device.maps.most
        return (
            min(
                power_of_two(max(most, 1)),
                share(total, device, _least(total, device), device.maps.most * _more(total, device)),
            ),
        )
    x, *y = plan.axes
    sizes = (x.extent, product(v.extent for v in y))
    wanted = (device.maps.side, device.maps.side)
    if plan.form == "rows":
        row = min(device.maps.most, power_of_two(number(x.extent)))
        wanted = (row, share(sizes[1], device, 1, device.maps.rows // row))
    return tuple(min(b, power_of_two(s.constant or b)) for b, s in zip(wanted, sizes, strict=True))


def map_fours(node: Map, plan: MapPlan) -> bool:
    """Whether neighbouring elements take the four words that a block of random numbers has."""
    if plan.form != "flat" or plan.block[0] % FOUR:
        return False
    flat = Var("i", _total(node))
    values = flattened(node.dims, flat)
    drawn = [e for own in node.expressions() for e in own.walk() if isinstance(e, Call) and e.op == "random_word"]
    moved = [substitute(e, values) for e in drawn]
    return bool(drawn) and all(isinstance(e, Call) and takes_words_in_turn(e, flat) for e in moved)


def map_together(node: Map, plan: MapPlan) -> bool:
    """Whether a map shares its launch with its neighbours: those that depend on nothing that the call computes."""
    return is_rounding(node) and not plan.wide


def map_warps(node: Map, plan: MapPlan, device: Device) -> int:
    """Warps of a program: a thread loads 16 bytes at once."""
    if plan.form != "flat":
        return warps_for(plan.block[0] * plan.block[1], device.maps.each, device.maps.most_warps)
    each = ACCESS // max(DTYPES[b.dtype].size for b in (*node.reads(), *node.writes()))
    if plan.together:
        return min(warps_for(plan.block[0], each), device.maps.most_warps)
    return warps_for(plan.block[0], each * _more(_total(node), device))


def map_room(node: Map, plan: MapPlan, device: Device) -> bool:
    """Whether the programs of the map leave room for those of the next kernel."""
    return device.leaves_room(number(product(map_programs(node, plan))))


def map_programs(node: Map, plan: MapPlan) -> tuple[Index, ...]:
    """How many programs there are along x, along y, and for the other loops."""
    if plan.form == "flat":
        return (blocks(_total(node), plan.block[0]), ONE, ONE)
    x, *y = plan.axes
    rest = product(v.extent for v in node.dims if v not in plan.axes)
    return (blocks(x.extent, plan.block[0]), blocks(product(v.extent for v in y), plan.block[1]), rest)


def _total(node: Map) -> Index:
    return product(v.extent for v in node.dims)


def _least(total: Index, device: Device) -> int:
    """The fewest elements of a program of a flat map: with a dynamic size, as many as a part of the most elements asks
    for. Few programs of many elements are as fast as many of few where there are few elements."""
    most = largest(total) if total.constant is None else None
    facts = device.maps
    return facts.least if most is None else share(as_index(most // facts.of_largest), device, facts.least, facts.most)


def _more(total: Index, device: Device) -> int:
    return device.maps.of_many if number(total) >= device.many else 1


def _written_along(node: Map) -> Var | None:
    """The loop along which every store is side by side."""
    for v in reversed(node.dims):
        if all(s.index.coefficient(v) == ONE for s in node.stores):
            return v
    return None


def _read_along(node: Map, x: Var, device: Device) -> Var | None:
    """Another loop along which something is read side by side, while x jumps: the other axis of a tile."""
    if number(x.extent) < device.maps.least_axis:
        return None
    for e in node.expressions():
        for load in e.loads:
            step = load.index.coefficient(x)
            if step is None or step == ONE or not step.terms:
                continue
            for v in node.dims:
                if v is not x and load.index.coefficient(v) == ONE and number(v.extent) >= device.maps.least_axis:
                    return v
    return None


def _rows_pay(node: Map, x: Var, device: Device) -> bool:
    """Places read from memory are the same for a whole row; a dynamic inner loop is no divisor of a flat one."""
    if number(x.extent) < device.maps.least_axis:
        return False
    if x.extent.constant is None:
        return True
    places = [load.index for e in node.expressions() for load in e.loads] + [s.index for s in node.stores]
    indirect = [a for index in places for a in index.atoms() if isinstance(a, Indirect)]
    return bool(indirect) and all(x not in a.value.vars() for a in indirect)  # type: ignore[attr-defined]

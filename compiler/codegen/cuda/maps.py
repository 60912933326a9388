"""Maps as Triton kernels: flat runs of elements, or tiles where one loop is read along and another is written along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ...ir.expr import Call, Expr, substitute
from ...ir.fours import FOUR
from ...ir.index import ONE, ZERO, Atom, Index, Var, as_index, product
from ...ir.nodes import Map, Node, Store
from ...ir.plans.gpu import GpuPlan, MapPlan
from ...ir.rewrite import flattened
from ...schedule.gpu.blocks import blocks, whole
from .emit import Place, TritonEmitter
from .kernel import PLACEHOLDER, KernelParam, Launch, LaunchArgument, TritonKernel, grid
from .module import kernel_text, module_text, render
from .scope import TritonScope

#: the number of a program of a kernel that is a map alone
PROGRAM = "tl.program_id(0)"


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
    program: str = PROGRAM


@dataclass(frozen=True)
class MapTile:
    """x: the loop that is written side by side; y: the other axis; rest: all other loops, one value a program."""

    params: str
    wide: str
    block_x: int
    block_y: int
    both: bool
    size_x: str
    size_y: str
    tiles_x: str
    tiles_y: str
    masked_x: bool
    masked_y: bool
    rest: bool
    body: tuple[str, ...]
    pdl: bool
    program: str = PROGRAM


@dataclass(frozen=True)
class MapsPart:
    """Which programs make a map, and the call of its function."""

    inside: str
    call: str


@dataclass(frozen=True)
class MapsTogether:
    params: str
    parts: tuple[MapsPart, ...]
    pdl: bool


@dataclass(frozen=True)
class _Printed:
    """A map in its template: its view, and how many programs there are."""

    template: str
    view: MapFlat | MapTile
    scope: TritonScope
    programs: Index


def map_launch(node: Map, name: str, plan: MapPlan) -> Launch:
    """The launch of a map."""
    made = _printed(node, plan)
    return finish(made.template, made.view, made.scope, name, grid(made.programs), node, plan)


def maps_launch(maps: Sequence[tuple[Map, MapPlan]], name: str) -> Launch:
    """One launch of several maps that depend on nothing of each other; those that print alike share a function."""
    functions: dict[str, str] = {}
    params: list[KernelParam] = []
    args: list[LaunchArgument] = []
    parts, begin = [], 0
    for i, (node, plan) in enumerate(maps):
        made = _printed(node, plan)
        own = made.scope.params()
        view = replace(made.view, params=", ".join([*(p.name for p in own), "program"]), pdl=False, program="program")
        function = functions.setdefault(kernel_text(made.template, view), f"part{len(functions)}")
        end = begin + as_number(made.programs)
        operands = [f"{p.name}_{i}" for p in own]
        call = f"{function}({', '.join([*operands, f'program - {begin}'])})"
        parts.append(MapsPart(f"(program >= {begin}) & (program < {end})", call))
        params += [replace(p, name=text) for p, text in zip(own, operands, strict=True)]
        args += made.scope.args()
        begin = end
    plans = [plan for _, plan in maps]
    view_ = MapsTogether(", ".join(p.name for p in params), tuple(parts), plans[0].pdl)
    texts = [text.replace(PLACEHOLDER, function) for text, function in functions.items()]
    source = module_text("\n\n\n".join([*texts, kernel_text("maps_together.py.j2", view_, plans[-1].room)]))
    kernel = TritonKernel(
        name, source, tuple(params), num_warps=max(plan.warps for plan in plans), num_stages=plans[0].stages,
        pdl=plans[0].pdl,
    )  # fmt: skip
    origin = maps[0][0].origin
    for node, _ in maps[1:]:
        origin = origin + node.origin
    return Launch(kernel, grid(as_index(begin)), tuple(args), origin)


def as_number(count: Index) -> int:
    """A fixed number of programs."""
    assert count.constant is not None
    return count.constant


def _printed(node: Map, plan: MapPlan) -> _Printed:
    return _tile(node, plan) if plan.axes else _flat(node, plan)


def _flat(node: Map, plan: MapPlan) -> _Printed:
    scope = TritonScope.of(node, plan)
    total = product(v.extent for v in node.dims)
    i, (block,) = Var("i", total), plan.block
    emit = TritonEmitter(scope, {i: Place("i", ("i",))}, {} if whole(total, block) else {"i": "i_inside"})
    values: dict[Atom, Index] = flattened(node.dims, i) if total != ONE else dict.fromkeys(node.dims, ZERO)
    if plan.fours:
        _words(emit, node, values, i, block)
    emit_stores(emit, node.stores, values)
    text = TritonEmitter(scope, {}).index(total)
    view = MapFlat("", _wide(scope), block, not whole(total, block), text, tuple(emit.lines), plan.pdl)
    return _Printed("map_flat.py.j2", view, scope, blocks(total, block))


def _words(emit: TritonEmitter, node: Map, values: dict[Atom, Index], i: Var, block: int) -> None:
    """Lines that make the random words of a run of elements, four at a time."""
    quarter, wide = block // FOUR, _wide(emit.scope)
    emit.lines.append(f"j = tl.program_id(0){wide} * {quarter} + tl.arange(0, {quarter})")
    words = TritonEmitter(emit.scope, {i: Place(f"(j * {FOUR})", ("j",))}, stem="word", lines=emit.lines)
    found = (e for s in node.stores for e in substitute(s.value, values).walk())
    drawn = [e for e in dict.fromkeys(found) if isinstance(e, Call) and e.op == "random_word"]
    for k, e in enumerate(drawn):
        operands = ", ".join(words.value(a) for a in e.args[:3])
        emit.lines.append(f"words{k} = random_fours({operands})")
        emit.bind(e, f"words{k}")


def _tile(node: Map, plan: MapPlan) -> _Printed:
    scope = TritonScope.of(node, plan)
    (x, *along_y), (block_x, block_y) = plan.axes, plan.block
    others = tuple(v for v in node.dims if v not in plan.axes)
    size_x, size_y = x.extent, product(v.extent for v in along_y)
    flat_x, flat_y, rest = Var("x", size_x), Var("y", size_y), Var("rest", product(v.extent for v in others))
    values = {**flattened((x,), flat_x), **flattened(along_y, flat_y), **flattened(others, rest)}
    masks = {
        axis: f"{axis}_inside" for axis, s, b in (("x", size_x, block_x), ("y", size_y, block_y)) if not whole(s, b)
    }
    places = {flat_x: Place("x", ("x",)), flat_y: Place("y", ("y",) if plan.both else ()), rest: Place("rest")}
    emit = TritonEmitter(scope, places, masks)
    emit_stores(emit, node.stores, values)
    plain = TritonEmitter(scope, {})
    tiles_x, tiles_y = blocks(size_x, block_x), blocks(size_y, block_y)
    view = MapTile(
        params="",
        wide=_wide(scope),
        block_x=block_x,
        block_y=block_y,
        both=plan.both,
        size_x=operand(plain.index(size_x)),
        size_y=operand(plain.index(size_y)),
        tiles_x=operand(plain.index(tiles_x)),
        tiles_y=operand(plain.index(tiles_y)),
        masked_x="x" in masks,
        masked_y="y" in masks,
        rest=bool(others),
        body=tuple(emit.lines),
        pdl=plan.pdl,
    )
    return _Printed("map_tile.py.j2", view, scope, tiles_x * tiles_y * rest.extent)


def emit_stores(emit: TritonEmitter, stores: Sequence[Store], values: dict[Atom, Index]) -> None:
    """The statements of stores whose loops become these values."""
    rows = [moved_store(s, values) for s in stores]
    emit.count_uses(s.value for s in rows)
    for row in rows:
        emit.store(row)


def moved_store(s: Store, values: dict[Atom, Index]) -> Store:
    """A store whose loops become these values."""

    def moved(e: object) -> Expr:
        assert isinstance(e, Expr)
        return substitute(e, values)

    return Store(s.buffer, s.index.substitute(values, moved), moved(s.value))


def operand(text: str) -> str:
    """A text that any operator may take."""
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _wide(scope: TritonScope) -> str:
    return ".to(tl.int64)" if scope.wide else ""


def finish(
    template: str, view: View, scope: TritonScope, name: str, programs: tuple[Index, Index, Index], node: Node,
    plan: GpuPlan,
) -> Launch:  # fmt: skip
    """The launch of a rendered view: the scope knows the parameters, once everything is printed."""
    params = scope.params()
    shown = replace(view, params=", ".join(p.name for p in params))  # type: ignore[type-var]
    text = render(template, shown, plan.room)
    kernel = TritonKernel(
        name, text, params, num_warps=plan.warps, num_stages=plan.stages, maxnreg=plan.registers, pdl=plan.pdl,
        flush=plan.flush, fuses=plan.fuses, widens=plan.widens,
    )  # fmt: skip
    return Launch(kernel, programs, scope.args(), node.origin)

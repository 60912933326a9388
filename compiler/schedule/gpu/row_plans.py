"""The plans of reductions and of nests over rows: what a program holds in registers, and what it walks through."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ...ir.bounds import largest
from ...ir.expr import Load
from ...ir.index import ONE, Index, Var, of
from ...ir.nodes import Nest, Reduce, Reduction
from ...ir.plans.gpu import PiecesPlan, RowsPlan
from ...machine.gpu import Device
from ..cost.estimates import number
from ..loops.row_form import RowForm, RowStage, row_form
from .blocks import MANY, blocks, power_of_two, share, warps_for
from .fit import divides
from .piece_plans import PIECES, element, pieces_of

#: elements of a tile of several rows, and of a block of a row that is walked through
TILE = 2048
PIECE = 4096
#: lengths of rows of which a program has one, and programs of a walk's thread and of a lane's
LONE = 1024
EACH_WALKED, EACH_LANE = 16, 8


@dataclass(frozen=True)
class Share:
    """Elements of a program's tile, and of one of its threads."""

    tile: int
    each: int


FEW = Share(TILE, 8)
#: of MANY elements: rows that are only reduced, so that their loads hide the time of the reductions; short ones with a
#: place to find in each; and rows that are written too. Measured on an H200 (docs/gpu-tiles.md)
REDUCED, PLACED, WRITTEN = Share(4096, 32), Share(4096, 16), Share(2048, 16)
#: steps that a lane takes by itself, programs of 256 lanes that are enough for that, and lanes of a program
FEW_STEPS = 64
ENOUGH_LANES = 256
LEAST_LANES, MOST_LANES = 128, 1024
#: steps whose loads are all begun at once
UNROLLED = 16
#: the longest row whose elements are looked at one by one for the place of an extremum, in MANY
SHORT = 512
#: places that a key of 32 bits has beside a value of 16
KEYED_INDICES = 1 << 16
#: rows side by side in memory that a program takes, so that it reads whole lines; and where they are so many that each
#: multiprocessor has several programs
NEIGHBOURS, NEIGHBOURS_OF_MANY = 32, 64
SEVERAL = 3
#: blocks of neighbouring rows that are under way
AHEAD = 3
POSITIONS = ("argmax", "argmin")


def rows_at_once(node: Reduce | Nest, device: Device) -> int:
    """Rows of a program."""
    form = form_of(node)
    extent, longest = _extent(form), _longest(form)
    if _in_lanes(node, form, device):
        return share(extent, device, LEAST_LANES, MOST_LANES)
    part = _share(form, extent, longest)
    at_once = _neighbours(extent, device) if _across(node, form) else _beside(extent, longest, part, device)
    return min(at_once, power_of_two(extent.constant or TILE))


def rows_form(node: Reduce | Nest, plan: RowsPlan, device: Device) -> str:
    """held, walked, lanes or pieces: see RowsPlan."""
    form = form_of(node)
    longest = _longest(form)
    if _in_lanes(node, form, device):
        return "lanes"
    if form.whole and plan.rows * longest <= max(_share(form, _extent(form), longest).tile, longest):
        return "held"
    pieces = plan.rows == 1 and not _across(node, form) and pieces_of(form) is not None
    return "pieces" if pieces else "walked"


def rows_blocks(node: Reduce | Nest, plan: RowsPlan) -> tuple[int, ...]:
    """Elements of a row at a time, for each stage."""
    most = {"lanes": 1, "walked": PIECE if plan.rows == 1 else max(TILE // plan.rows, 1)}.get(plan.form)
    columns = [s.column for s in form_of(node).stages]
    found = (1 if column is None else _block(column) for column in columns)
    return tuple(block if most is None else min(block, most) for block in found)


def rows_places(node: Reduce | Nest, plan: RowsPlan) -> tuple[str, ...]:
    """How each reduction of rows that are held finds the place of its extremum."""
    if plan.form != "held":
        return ()
    form = form_of(node)
    reductions = [
        (reduction, stage.column, block)
        for stage, block in zip(form.stages, plan.blocks, strict=True)
        if isinstance(stage.node, Reduce)
        for reduction in stage.node.reductions
    ]
    if not any(reduction.op in POSITIONS for reduction, _, _ in reductions):
        return ()
    return tuple(_place(reduction, column, block, _extent(form), plan.unit) for reduction, column, block in reductions)


def _place(reduction: Reduction, column: Var | None, block: int, rows: Index, unit: int) -> str:
    if reduction.op not in POSITIONS or column is None or not _many(rows, block):
        return "tile"
    if column.extent.constant == block and _in_keys(reduction, block):
        return "keys"
    return "units" if _in_units(reduction, column, unit) else "tile"


def rows_in_flight(node: Reduce | Nest, plan: RowsPlan) -> tuple[int, ...]:
    """Blocks that are under way, for each stage that reduces many neighbouring rows; none where no stage has any."""
    if plan.form not in ("walked", "lanes") or plan.rows < NEIGHBOURS_OF_MANY:
        return ()
    stages = zip(form_of(node).stages, plan.blocks, strict=True)
    found = tuple(AHEAD if isinstance(s.node, Reduce) and block > 1 else 0 for s, block in stages)
    return found if any(found) else ()


def rows_unrolled(node: Reduce | Nest, plan: RowsPlan) -> tuple[bool, ...]:
    """Which stages have their steps unrolled; none where no stage has."""
    if plan.form not in ("walked", "lanes"):
        return ()
    columns = [s.column for s in form_of(node).stages]
    steps = [c.extent.constant if c is not None else None for c in columns]
    found = tuple(b == 1 and n is not None and n <= UNROLLED for b, n in zip(plan.blocks, steps, strict=True))
    return found if any(found) else ()


def rows_pieces(node: Reduce | Nest, plan: RowsPlan) -> PiecesPlan | None:
    """How one long row is cut; None for rows of another form."""
    return pieces_of(form_of(node)) if plan.form == "pieces" else None


def rows_warps(node: Reduce | Nest, plan: RowsPlan) -> int:
    """Warps of a program."""
    if plan.pieces is not None:
        return PIECES[plan.pieces.size, plan.pieces.apart].warps
    most = plan.rows * max(plan.blocks)
    if plan.form == "held":
        form = form_of(node)
        return warps_for(most, _share(form, _extent(form), _longest(form)).each)
    lane = plan.form == "lanes" or (plan.rows > 1 and TILE // plan.rows <= 1)
    return warps_for(most, EACH_LANE if lane else EACH_WALKED)


def rows_registers(plan: RowsPlan) -> int | None:
    """Registers of a thread at most; None for what the compiler takes."""
    return None if plan.pieces is None else PIECES[plan.pieces.size, plan.pieces.apart].registers


def rows_room(node: Reduce | Nest, plan: RowsPlan, device: Device) -> bool:
    """Whether the programs leave room for those of the next kernel."""
    return device.leaves_room(number(blocks(_extent(form_of(node)), plan.rows)))


@lru_cache(maxsize=8)
def form_of(node: Reduce | Nest) -> RowForm:
    """The row form of a node, which the passes look at one after the other.

    Raises:
        ValueError: it has none.
    """
    form = row_form(node)
    if form is None:
        raise ValueError(f"{node.origin.describe()} has no row form")
    return form


def _extent(form: RowForm) -> Index:
    return form.row.extent if form.row is not None else ONE


def _longest(form: RowForm) -> int:
    return max((_block(s.column) for s in form.stages if s.column is not None), default=1)


def _across(node: Reduce | Nest, form: RowForm) -> bool:
    return isinstance(node, Reduce) and not _along_rows(form.stages[0])


def _in_lanes(node: Reduce | Nest, form: RowForm, device: Device) -> bool:
    """What is reduced fits no vector, but neighbouring rows do: each lane takes the steps of its own row."""
    many = number(_extent(form)) >= ENOUGH_LANES * device.sms
    return many and _longest(form) <= FEW_STEPS and _across(node, form)


def _in_keys(reduction: Reduction, block: int) -> bool:
    """Whether values and places of a reduction fit into one integer: those of a row of bfloat16 as it lies in
    memory."""
    value = element(reduction.value)
    return isinstance(value, Load) and value.dtype == "bf16" and block <= KEYED_INDICES


def _in_units(reduction: Reduction, column: Var, unit: int) -> bool:
    """Whether a reduction finds a place among 16-bit elements as they lie in memory, whose units are aligned."""
    value = element(reduction.value)
    if not isinstance(value, Load) or value.dtype not in ("f16", "bf16") or (column.extent.constant or 0) <= SHORT:
        return False
    start = value.index - of(column)
    return divides(unit, column.extent) and divides(unit, start) and column not in start.vars()


def _along_rows(stage: RowStage) -> bool:
    """Whether neighbours in the reduced dimension are neighbours in memory in most of what is reduced."""
    node, column = stage.node, stage.column
    if not isinstance(node, Reduce) or column is None:
        return True
    loads = [load.index for f in node.reductions for load in f.value.loads]
    side_by_side = sum(index.coefficient(column) == ONE for index in loads)
    across = sum(any(index.coefficient(v) == ONE for v in node.dims) for index in loads)
    return side_by_side >= max(across, 1)


def _share(form: RowForm, rows: Index, longest: int) -> Share:
    """What a program takes that holds rows in registers."""
    if not _many(rows, longest):
        return FEW
    if any(stage.column is not None and not isinstance(stage.node, Reduce) for stage in form.stages):
        return WRITTEN
    reductions = [
        reduction for stage in form.stages if isinstance(stage.node, Reduce) for reduction in stage.node.reductions
    ]
    one_by_one = any(reduction.op in POSITIONS and not _in_keys(reduction, longest) for reduction in reductions)
    return PLACED if longest < SHORT and one_by_one else REDUCED


def _beside(rows: Index, longest: int, part: Share, device: Device) -> int:
    if part is FEW and longest >= LONE:
        return 1
    return share(rows, device, 1, max(part.tile // longest, 1))


def _neighbours(rows: Index, device: Device) -> int:
    return NEIGHBOURS_OF_MANY if number(rows) >= NEIGHBOURS_OF_MANY * device.sms * SEVERAL else NEIGHBOURS


def _many(rows: Index, longest: int) -> bool:
    return number(rows) * longest >= MANY


def _block(column: Var) -> int:
    """The power of two that holds a row; of a dynamic one, the longest."""
    top = column.extent.constant
    if top is None:
        top = largest(column.extent)
    return power_of_two(max(top, 1)) if top is not None else PIECE

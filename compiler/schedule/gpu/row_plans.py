"""The plans of reductions and of nests over rows: what a program holds in registers, and what it walks through."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.bounds import largest
from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Load
from ...ir.index import ONE, Index, Indirect, Var, of
from ...ir.nodes import Nest, Reduce, Reduction
from ...ir.ops import of_a_library
from ...ir.plans.gpu import PiecesPlan, RowForm, RowsPlan, RowStage
from ...machine.gpu import Device
from ...machine.gpu_programs import Share
from ..cost.estimates import number
from ..loops.row_form import row_form
from .blocks import blocks, power_of_two, share, warps_for
from .fit import divides
from .piece_plans import element, pieces_of, program_of

#: places that a key of 32 bits has beside a value of 16
KEYED_INDICES = 1 << 16
POSITIONS = ("argmax", "argmin")


def rows_nest(node: Reduce | Nest, device: Device) -> RowForm:
    """The stages of a node with their loops flattened to a row and a column.

    Raises:
        ValueError: it has no such form.
    """
    form = row_form(node, device.rows)
    if form is None:
        raise ValueError(f"{node.origin.describe()} has no row form")
    return form


def rows_at_once(node: Reduce | Nest, plan: RowsPlan, device: Device) -> int:
    """Rows of a program."""
    form = plan.stages_of_rows
    extent, longest = _extent(form), _longest(form, device)
    if _in_lanes(node, form, device):
        return share(extent, device, device.rows.least_lanes, device.rows.most_lanes)
    part = _share(form, extent, longest, device)
    at_once = _neighbours(extent, device) if _across(node, form) else _beside(extent, longest, part, device)
    return min(at_once, power_of_two(extent.constant or device.rows.few.tile))


def rows_form(node: Reduce | Nest, plan: RowsPlan, device: Device) -> str:
    """held, walked, lanes or pieces: see RowsPlan."""
    form = plan.stages_of_rows
    longest = _longest(form, device)
    if _in_lanes(node, form, device):
        return "lanes"
    if form.whole and plan.rows * longest <= max(_share(form, _extent(form), longest, device).tile, longest):
        return "held"
    pieces = plan.rows == 1 and not _across(node, form) and pieces_of(form, device) is not None
    return "pieces" if pieces else "walked"


def rows_blocks(plan: RowsPlan, device: Device) -> tuple[int, ...]:
    """Elements of a row at a time, for each stage."""
    most = {
        "lanes": 1,
        "walked": device.rows.piece if plan.rows == 1 else max(device.rows.few.tile // plan.rows, 1),
    }.get(plan.form)
    columns = [s.column for s in plan.stages_of_rows.stages]
    found = (1 if column is None else _block(column, device) for column in columns)
    return tuple(block if most is None else min(block, most) for block in found)


def rows_places(plan: RowsPlan, device: Device) -> tuple[str, ...]:
    """How each reduction of rows that are held finds the place of its extremum."""
    if plan.form != "held":
        return ()
    form = plan.stages_of_rows
    reductions = [
        (reduction, stage.column, block)
        for stage, block in zip(form.stages, plan.blocks, strict=True)
        if isinstance(stage.node, Reduce)
        for reduction in stage.node.reductions
    ]
    if not any(reduction.op in POSITIONS for reduction, _, _ in reductions):
        return ()
    return tuple(_place(reduction, column, block, plan, device) for reduction, column, block in reductions)


def _place(reduction: Reduction, column: Var | None, block: int, plan: RowsPlan, device: Device) -> str:
    if reduction.op not in POSITIONS or column is None or not _many(_extent(plan.stages_of_rows), block, device):
        return "tile"
    if column.extent.constant == block and _in_keys(reduction, block):
        return "keys"
    return "units" if _in_units(reduction, column, plan.unit, device) else "tile"


def rows_in_flight(plan: RowsPlan, device: Device) -> tuple[int, ...]:
    """Blocks that are under way, for each stage that reduces many neighbouring rows; none where no stage has any."""
    if plan.form not in ("walked", "lanes") or plan.rows < device.rows.neighbours_of_many:
        return ()
    stages = zip(plan.stages_of_rows.stages, plan.blocks, strict=True)
    found = tuple(device.rows.ahead if isinstance(s.node, Reduce) and block > 1 else 0 for s, block in stages)
    return found if any(found) else ()


def rows_unrolled(plan: RowsPlan, device: Device) -> tuple[bool, ...]:
    """Which stages have their steps unrolled; none where no stage has."""
    if plan.form not in ("walked", "lanes"):
        return ()
    columns = [s.column for s in plan.stages_of_rows.stages]
    steps = [c.extent.constant if c is not None else None for c in columns]
    found = tuple(
        b == 1 and n is not None and n <= device.rows.unrolled for b, n in zip(plan.blocks, steps, strict=True)
    )
    return found if any(found) else ()


def rows_pieces(plan: RowsPlan, device: Device) -> PiecesPlan | None:
    """How one long row is cut; None for rows of another form."""
    return pieces_of(plan.stages_of_rows, device) if plan.form == "pieces" else None


def rows_warps(plan: RowsPlan, device: Device) -> int:
    """Warps of a program."""
    if plan.pieces is not None:
        return program_of(plan.pieces, device).warps
    most = plan.rows * max(plan.blocks)
    if plan.form == "held":
        form = plan.stages_of_rows
        return warps_for(most, _share(form, _extent(form), _longest(form, device), device).each)
    lane = plan.form == "lanes" or (plan.rows > 1 and device.rows.few.tile // plan.rows <= 1)
    return warps_for(most, device.rows.each_lane if lane else device.rows.each_walked)


def rows_early(plan: RowsPlan) -> tuple[Load, ...]:
    """Weights that rows that are held load in front of the wait for the kernel before, which does not write them."""
    if plan.form != "held" or not plan.pdl:
        return ()
    expressions = (e for stage in plan.stages_of_rows.stages for e in stage.node.expressions())
    loads = dict.fromkeys(load for e in expressions for load in e.loads if load.buffer.kind == "const")
    return tuple(load for load in loads if not any(isinstance(a, Indirect) for a in load.index.atoms()))


def rows_flush(plan: RowsPlan) -> bool:
    """Whether exponentials may take numbers below the normal ones for zero: they are weights of a softmax, and no other
    function is a part of the kernel."""
    stages = plan.stages_of_rows.stages
    calls = {e for s in stages for own in s.node.expressions() for e in own.walk() if isinstance(e, Call)}
    return any(_is_weight(e, stages) for e in calls) and not any(of_a_library(e.op, e.args[-1].dtype) for e in calls)


def _is_weight(e: Call, stages: Sequence[RowStage]) -> bool:
    """Whether it is the exponential of an element of a row without the row's largest, which an earlier stage has
    stored."""
    if e.op not in ("exp", "exp_weight") or DTYPES[e.dtype].compute != "f32":
        return False
    (shifted,) = e.args
    if not (isinstance(shifted, Call) and shifted.op == "sub" and isinstance(top := shifted.args[1], Load)):
        return False
    value, columns = shifted.args[0], {s.column for s in stages if s.column is not None}
    stored = any((s.buffer, s.index) == (top.buffer, top.index) for stage in stages for s in stage.node.stores)
    return stored and not columns & top.index.vars() and bool(columns & value.vars())


def rows_widen(plan: RowsPlan) -> bool:
    """Rows that registers hold stay with their warps: shorter accesses take longer."""
    return plan.pieces is None or not plan.pieces.held


def rows_registers(plan: RowsPlan, device: Device) -> int | None:
    """Registers of a thread at most; None for what the compiler takes."""
    return None if plan.pieces is None else dict(device.pieces.programs)[plan.pieces.size, plan.pieces.apart].registers


def rows_room(plan: RowsPlan, device: Device) -> bool:
    """Whether the programs leave room for those of the next kernel."""
    return device.leaves_room(number(blocks(_extent(plan.stages_of_rows), plan.rows)))


def _extent(form: RowForm) -> Index:
    return form.row.extent if form.row is not None else ONE


def _longest(form: RowForm, device: Device) -> int:
    return max((_block(s.column, device) for s in form.stages if s.column is not None), default=1)


def _across(node: Reduce | Nest, form: RowForm) -> bool:
    return isinstance(node, Reduce) and not _along_rows(form.stages[0])


def _in_lanes(node: Reduce | Nest, form: RowForm, device: Device) -> bool:
    """What is reduced fits no vector, but neighbouring rows do: each lane takes the steps of its own row."""
    many = number(_extent(form)) >= device.rows.enough_lanes * device.sms
    return many and _longest(form, device) <= device.rows.few_steps and _across(node, form)


def _in_keys(reduction: Reduction, block: int) -> bool:
    """Whether values and places of a reduction fit into one integer: those of a row of bfloat16 as it lies in
    memory."""
    value = element(reduction.value)
    return isinstance(value, Load) and value.dtype == "bf16" and block <= KEYED_INDICES


def _in_units(reduction: Reduction, column: Var, unit: int, device: Device) -> bool:
    """Whether a reduction finds a place among 16-bit elements as they lie in memory, whose units are aligned."""
    value = element(reduction.value)
    if (
        not isinstance(value, Load)
        or value.dtype not in ("f16", "bf16")
        or (column.extent.constant or 0) <= device.rows.short
    ):
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


def _share(form: RowForm, rows: Index, longest: int, device: Device) -> Share:
    """What a program takes that holds rows in registers."""
    if not _many(rows, longest, device):
        return device.rows.few
    if any(stage.column is not None and not isinstance(stage.node, Reduce) for stage in form.stages):
        return device.rows.written
    reductions = [
        reduction for stage in form.stages if isinstance(stage.node, Reduce) for reduction in stage.node.reductions
    ]
    one_by_one = any(reduction.op in POSITIONS and not _in_keys(reduction, longest) for reduction in reductions)
    return device.rows.placed if longest < device.rows.short and one_by_one else device.rows.reduced


def _beside(rows: Index, longest: int, part: Share, device: Device) -> int:
    if part == device.rows.few and longest >= device.rows.lone:
        return 1
    return share(rows, device, 1, max(part.tile // longest, 1))


def _neighbours(rows: Index, device: Device) -> int:
    facts = device.rows
    many = number(rows) >= facts.neighbours_of_many * device.sms * facts.several
    return facts.neighbours_of_many if many else facts.neighbours


def _many(rows: Index, longest: int, device: Device) -> bool:
    return number(rows) * longest >= device.many


def _block(column: Var, device: Device) -> int:
    """The power of two that holds a row; of a dynamic one, the longest."""
    top = column.extent.constant
    if top is None:
        top = largest(column.extent)
    return power_of_two(max(top, 1)) if top is not None else device.rows.piece

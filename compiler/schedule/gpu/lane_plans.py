"""The plans of scans and scatters: lanes side by side, or pieces of rows where the steps of a scan combine."""

from __future__ import annotations

from ...ir.expr import Load
from ...ir.in_place import addend
from ...ir.index import ONE, Index, Indirect, Var, product
from ...ir.nodes import Scan, Scatter, Store
from ...ir.plans.gpu import Combination, ScanPlan, ScatterPlan
from ...machine.gpu import Device
from ..cost.estimates import number
from .blocks import blocks, power_of_two, share, warps_for
from .combinations import combination


def scan_combination(node: Scan, device: Device) -> Combination | None:
    """How stretches of a row are put together; None where steps are taken in order."""
    return combination(node.carries) if _pays(node, device) else None


def scan_form(plan: ScanPlan) -> str:
    """steps or rows: see ScanPlan."""
    return "steps" if plan.combination is None else "rows"


def _pays(node: Scan, device: Device) -> bool:
    """Whether scanning rows side by side is faster than a lane for each row."""
    if number(node.step.extent) < device.lanes.least_steps:
        return False
    rows = number(product(v.extent for v in node.dims))
    loads = [load.index for e in node.expressions() for load in e.loads]
    along = any(index.coefficient(node.step) == ONE for index in loads)
    return along or rows < device.lanes.enough_rows * device.sms


def scan_block(node: Scan, plan: ScanPlan, device: Device) -> int:
    """Steps that a program scans at once."""
    return (
        1
        if plan.form == "steps"
        else min(device.lanes.piece, power_of_two(node.step.extent.constant or device.lanes.piece))
    )


def scan_rows(node: Scan, plan: ScanPlan, device: Device) -> int:
    """Rows of a program."""
    rows = product(v.extent for v in node.dims)
    return (
        _lanes(rows, device.lanes.lanes)
        if plan.form == "steps"
        else share(rows, device, 1, max(device.lanes.tile // plan.block, 1))
    )


def scan_warps(plan: ScanPlan) -> int:
    """Warps of a program: lanes are its threads, pieces of rows have several elements in each."""
    return warps_for(plan.rows, 1) if plan.form == "steps" else warps_for(plan.block * plan.rows)


def scan_room(node: Scan, plan: ScanPlan, device: Device) -> bool:
    """Whether the programs leave room for those of the next kernel."""
    return device.leaves_room(number(blocks(product(v.extent for v in node.dims), plan.rows)))


def scatter_form(node: Scatter, device: Device) -> str:
    """ordered, last or first: see ScatterPlan. What overwrites an element counts from the last step alone, which a
    program finds by the indices. What is added to an element has an order of its own: the steps run in order, or, where
    there are few lanes for each and not too many steps, by a program for each element."""
    late = set(node.udims[node.parallel :])
    if not late or not all(_by_whole_indices(node, update, late) for update in node.updates):
        return "ordered"
    if not any(_found(node, update) for update in node.updates):
        return "last"
    own = all({(load.buffer, load.index) for load in _found(node, u)} <= {(u.buffer, u.index)} for u in node.updates)
    few = number(_free(node)) < device.lanes.enough_rows * device.sms
    several = device.lanes.least_steps <= number(_steps(node)) <= device.lanes.most_steps
    return "first" if own and few and several else "ordered"


def _by_whole_indices(node: Scatter, update: Store, late: set[Var]) -> bool:
    """Whether steps lead to the places of an update by whole indices that are the same for all updates of a step."""
    free = set(node.udims) - late
    atoms = list(update.index.atoms())
    indices = [atom for monomial in update.index.terms for atom in monomial if isinstance(atom, Indirect)]
    return (
        len(indices) == sum(isinstance(atom, Indirect) for atom in atoms) > 0
        and not late & set(atoms)
        and not any(free & atom.value.vars() for atom in indices)  # type: ignore[attr-defined]
    )


def _found(node: Scatter, update: Store) -> list[Load]:
    """What an update reads of what the node writes."""
    written = {b.root for b in node.writes()}
    return [load for load in update.value.loads if load.buffer.root in written]


def scatter_block(node: Scatter, plan: ScatterPlan, device: Device) -> int:
    """Updates that a program makes at once."""
    return _lanes(_free(node), device.lanes.lanes if plan.form == "ordered" else device.lanes.row)


def scatter_ahead(node: Scatter, plan: ScatterPlan, device: Device) -> int:
    """Indices of other steps that a program compares at once."""
    return 1 if plan.form == "ordered" else _lanes(_steps(node), device.lanes.ahead)


def scatter_rows(node: Scatter, plan: ScatterPlan, device: Device) -> int:
    """Steps whose updates of a place are added at once: sums alone have no other order than that of rounding."""
    sums = plan.form == "first" and all(addend(update) is not None for update in node.updates)
    return device.lanes.added if sums else 0


def scatter_warps(plan: ScatterPlan) -> int:
    """Warps of a program: a thread for each update, or for several of one step."""
    return warps_for(plan.block, 1) if plan.form == "ordered" else warps_for(max(plan.block, plan.ahead), 4)


def scatter_room(node: Scatter, plan: ScatterPlan, device: Device) -> bool:
    """Whether the programs leave room for those of the next kernel."""
    steps = 1 if plan.form == "ordered" else number(_steps(node))
    return device.leaves_room(number(blocks(_free(node), plan.block)) * steps)


def _steps(node: Scatter) -> Index:
    """The updates that are made in order."""
    return product(v.extent for v in node.udims[node.parallel :])


def _free(node: Scatter) -> Index:
    """The updates that may be made in any order."""
    return product(v.extent for v in node.udims[: node.parallel])


def _lanes(total: Index, most: int) -> int:
    return min(most, power_of_two(total.constant if total.constant is not None else most))

"""The plans of routines: how many kernels compute one, and what a program of each takes.

A plan without parts is that of a routine that GPUs do not compute: see refusal().
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ...ir.bounds import largest
from ...ir.dtypes import DTYPES
from ...ir.fourier import LEAST, Pass, passes
from ...ir.index import ONE, Index, maximum, product
from ...ir.plans.gpu import PartPlan, RoutinePlan
from ...ir.program import Assert
from ...ir.routines import Routine
from ...machine.gpu import Device
from ...machine.gpu_programs import MATRIX_IN_MEMORY, MATRIX_IN_REGISTERS, MATRIX_OF_EXP, MATRIX_OF_SOLVER
from ..cost.estimates import number
from .blocks import blocks, power_of_two, share, warps_for
from .width import INT32_MAX, fits_int32, is_wide


@dataclass(frozen=True)
class MatrixLimits:
    """Of a factorisation: how many of its sizes are of tiles, the most of each, and whether rows lie in memory."""

    tiles: int
    most: int = MATRIX_IN_REGISTERS
    in_memory: bool = False

    @property
    def oblong(self) -> bool:
        """Whether rows and columns have a tile each."""
        return self.tiles == 2


MATRICES: Mapping[str, MatrixLimits] = {
    "lu": MatrixLimits(2),
    "pivot_order": MatrixLimits(1, MATRIX_IN_MEMORY),
    "triangular": MatrixLimits(1, MATRIX_OF_SOLVER),
    "cholesky": MatrixLimits(1),
    "ldl": MatrixLimits(1),
    "ldl_solve": MatrixLimits(1, MATRIX_OF_SOLVER),
    "qr": MatrixLimits(2),
    "reflectors": MatrixLimits(2),
    "matrix_exp": MatrixLimits(1, MATRIX_OF_EXP),
    "eigh": MatrixLimits(1, MATRIX_IN_MEMORY, True),
    "eig": MatrixLimits(1, MATRIX_IN_MEMORY, True),
    "svd": MatrixLimits(2, MATRIX_IN_MEMORY, True),
}
#: routines of boxes and of states. Their loops, and those of factorisations, end by what a sum says: all lanes have to
#: read the same, or some wait for others that have left; but lanes whose FMAs differ do not
IN_ORDER = ("nms", "roi_align", "roi_pool", "ctc", "recursive_filter")
#: factorisations whose programs share the columns of a right-hand side
SOLVERS = ("triangular", "ldl_solve")


def routine_parts(node: Routine | Assert, plan: RoutinePlan, device: Device) -> tuple[PartPlan, ...]:
    """The plans of the launches of a routine, in order; none where it has no kernel."""
    if isinstance(node, Assert):
        return (_part("check", 1, (ONE,), device, 1),)
    if plan.refused:
        return ()
    parts = _matrix(node, device) if node.function in MATRICES else PLANNERS[node.function](node, device)
    fuses = node.function not in (*MATRICES, *IN_ORDER)
    return tuple(replace(part, wide=part.wide or is_wide(node), fuses=fuses) for part in parts)


def refusal(node: Routine | Assert) -> str:
    """Why a routine is not computed on a GPU; empty where it is."""
    if isinstance(node, Assert):
        return ""
    if node.function == "sort":
        return "" if size_bound(node.sizes[0]) is not None else "it needs to know how long a row is at most"
    limits = MATRICES.get(node.function)
    if limits is None:
        return "" if node.function in PLANNERS else "mycc has no kernel for it there"
    for size in node.sizes[: limits.tiles]:
        bound = size_bound(size)
        if bound is None or bound > limits.most:
            found = "one of a size without an upper bound" if bound is None else f"one of {bound}"
            return f"its kernel takes matrices of at most {limits.most} rows or columns, and this is {found}"
    return ""


def size_bound(size: Index) -> int | None:
    """The largest that a size can be; None when nothing is known."""
    return size.constant if size.constant is not None else largest(size)


def transforms(n: int, dtype: str) -> tuple[tuple[Pass, ...], ...]:
    """The passes of each kernel of a Fourier transform. Two of float32 are one kernel; of more, and in float64, tiles
    would be too short."""
    found = passes(n)
    return (found,) if len(found) == 2 and dtype == "f32" else tuple((step,) for step in found)


def _part(
    form: str, block: int, programs: tuple[Index, ...], device: Device, warps: int, *, step: int = 0, run: int = 0,
    shares: int = 1, tiles: tuple[int, ...] = (), wide: bool = False,
) -> PartPlan:  # fmt: skip
    room, places = device.leaves_room(number(product(programs))), 64 if 2 * run > INT32_MAX else 32
    return PartPlan(
        form, warps, pdl=device.pdl, room=room, wide=wide, block=block, step=step, run=run, shares=shares, tiles=tiles,
        places=places,
    )  # fmt: skip


def _matrix(node: Routine, device: Device) -> tuple[PartPlan, ...]:
    facts = device.routines
    limits = MATRICES[node.function]
    tiles = [power_of_two(size_bound(size) or 0) for size in node.sizes[: limits.tiles]]
    programs: tuple[Index, ...] = (node.count,)
    if node.function in SOLVERS:
        tiles.append(min(facts.columns, power_of_two(size_bound(node.sizes[1]) or facts.columns)))
        programs = (node.count, blocks(node.sizes[1], tiles[1]))
    held = tiles[0] if limits.in_memory else tiles[0] * tiles[-1]
    return (_part("matrix", held, programs, device, warps_for(held, facts.summed), tiles=tuple(tiles)),)


def _sort(node: Routine, device: Device) -> tuple[PartPlan, ...]:
    """Runs that are sorted by counting, which are then merged two by two."""
    facts = device.routines
    n, bound = node.sizes[0], size_bound(node.sizes[0])
    assert bound is not None
    found = []
    for i, run in enumerate([facts.run, *(facts.run << i for i in range(64) if facts.run << i < bound)]):
        block = min(facts.merged if i else facts.sorted, power_of_two(bound or facts.run))
        step = min(facts.step, block)
        warps = warps_for(block * (1 if i else step), facts.compared)
        programs = (node.count, blocks(n, block))
        found.append(_part("merge" if i else "runs", block, programs, device, warps, step=step, run=run))
    return tuple(found)


def _mode(node: Routine, device: Device) -> tuple[PartPlan, ...]:
    facts = device.routines
    block = min(facts.sorted, power_of_two(size_bound(node.sizes[0]) or facts.sorted))
    step = min(facts.step, block)
    return (_part("mode", block, (node.count,), device, warps_for(block * step, device.routines.compared), step=step),)


def _nonzero_indices(node: Routine, device: Device) -> tuple[PartPlan, ...]:
    """One program where a mask is short; else programs that count, and then programs that write."""
    facts = device.routines
    (n,) = node.sizes
    bound, warps = size_bound(n), warps_for(facts.block)
    if bound is not None and bound <= facts.alone:
        return (_part("alone", facts.block, (ONE,), device, warps, run=facts.alone),)
    part = maximum(ONE, blocks(n, facts.block * facts.parts)) * facts.block
    programs = ((maximum(n, ONE) + part - 1) // part,)  # one that counts nothing, too
    return tuple(_part(form, facts.block, programs, device, warps, shares=facts.parts) for form in ("count", "write"))


def _ends_before(node: Routine, device: Device) -> tuple[PartPlan, ...]:
    facts = device.routines
    total = node.sizes[1]
    block = min(facts.searched, power_of_two(size_bound(total) or facts.searched))
    return (_part("search", block, (blocks(total, block),), device, warps_for(block, 2)),)


def _row_order(node: Routine, device: Device) -> tuple[PartPlan, ...]:
    """Sorted runs of rows, twice as long with every kernel."""
    facts = device.routines
    n, bound = node.sizes[0], size_bound(node.sizes[0]) or INT32_MAX
    block = min(facts.rows, power_of_two(bound))
    runs = [1, *(1 << i for i in range(1, 31) if 1 << i < bound)]
    return tuple(
        _part("merge rows", block, (blocks(n, block),), device, warps_for(block, 1), run=run) for run in runs
    )  # fmt: skip


def _nms(node: Routine, device: Device) -> tuple[PartPlan, ...]:
    facts = device.routines
    block = min(facts.lanes, power_of_two(size_bound(node.sizes[0]) or facts.lanes))
    return (_part("boxes", block, (ONE,), device, warps_for(block, 4)),)


def _region(node: Routine, device: Device) -> tuple[PartPlan, ...]:
    facts = device.routines
    channels, _, _, _, bins_y, bins_x, *_ = node.sizes
    programs = (node.count, blocks(channels * bins_y * bins_x, facts.pooled))
    return (_part("bins", facts.pooled, programs, device, warps_for(facts.pooled, 1)),)


def _ctc(node: Routine, device: Device) -> tuple[PartPlan, ...]:
    facts = device.routines
    block = min(facts.lanes, power_of_two(size_bound(node.sizes[2] * 2 + 1) or facts.lanes))
    return (_part("states", block, (node.count,), device, warps_for(block, 4)),)


def _recursive_filter(node: Routine, device: Device) -> tuple[PartPlan, ...]:
    facts = device.routines
    block = power_of_two(max(size_bound(node.sizes[1]) or facts.lanes, 2))
    return (_part("states", block, (node.count,), device, 1),)


def _fourier(node: Routine, device: Device) -> tuple[PartPlan, ...]:
    """A kernel for each pass, or one for both."""
    facts = device.routines
    n, dtype = node.sizes[0].constant, DTYPES[node.outputs[0].buffer.dtype].compute
    assert n is not None
    found, wide = [], not fits_int32(node.count * (4 * n))  # the passes meet in scratch memory
    sums = facts.sums if dtype == "f32" else facts.sums_f64
    for steps in transforms(n, dtype):
        padded = math.prod(s.padded for s in steps)
        total = node.count * (n // math.prod(s.radix for s in steps))
        least = 1 if len(steps) > 1 else LEAST
        most = max(number(total), 1) if total.constant is not None else facts.transforms * facts.transforms
        fits = min(
            sums // padded,
            share(total, device, least, facts.transforms),
            power_of_two(most),
        )
        block, form = max(fits, least), "tensor cores" if dtype == "f32" else "sums"
        warps = warps_for(block * padded, facts.summed, facts.most_warps)
        found.append(_part(form, block, (blocks(total, block),), device, warps, shares=len(steps), wide=wide))
    return tuple(found)


#: routine -> the plans of its launches; of factorisations see MATRICES
PLANNERS: Mapping[str, Callable[[Routine, Device], tuple[PartPlan, ...]]] = {
    "sort": _sort,
    "mode": _mode,
    "nonzero_indices": _nonzero_indices,
    "ends_before": _ends_before,
    "row_order": _row_order,
    "nms": _nms,
    "roi_align": _region,
    "roi_pool": _region,
    "ctc": _ctc,
    "recursive_filter": _recursive_filter,
    **dict.fromkeys(("fft", "rfft", "irfft"), _fourier),
}

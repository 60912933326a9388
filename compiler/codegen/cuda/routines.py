"""Routines as Triton kernels: factorisations of matrices, one for each program, and sorts of rows.

A matrix lies in registers as a tile, or in scratch memory where rows or columns of it are rotated; both bound its size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ....runtime.errors import CompileError
from ...ir.dtypes import DTYPES
from ...ir.index import Index, as_index, minimum
from ...ir.plans.gpu import PartPlan, RoutinePlan
from ...ir.routines import Routine
from ...schedule.gpu.blocks import blocks
from ...schedule.gpu.routine_plans import MATRICES, SOLVERS
from .data_sizes import PLACES, wide_places
from .emit import TritonEmitter
from .fourier import fourier_launches
from .kernel import TL_DTYPE, Launch, grid
from .maps import finish, operand
from .scope import TritonScope
from .vision import SEQUENTIAL


@dataclass(frozen=True)
class OperandView:
    """An operand of a routine: the names of the block's pointer and of the buffer, and elements from block to block."""

    name: str
    pointer: str
    stride: str


@dataclass(frozen=True)
class RoutineView:
    """tiles: powers of two that hold the sizes. least: the smaller of the first two. scratch: elements of a block."""

    params: str
    operands: tuple[OperandView, ...]
    sizes: tuple[str, ...]
    tiles: tuple[int, ...]
    least: str
    scratch: str
    pdl: bool


@dataclass(frozen=True)
class SortView:
    """n: elements of a row, of which `count` are wanted. run: length of the sorted runs; turn: which half of the
    scratch memory they are in. key: tl dtype that elements are compared in, by the function `before`. last: the result
    is written. wide: makes 64 bits of a place where a pair of runs has more elements than 32 bits count."""

    params: str
    wide: str
    n: str
    count: str
    key: str
    before: str
    run: int
    block: int
    step: int
    halvings: int
    turn: bool
    last: bool
    pdl: bool


#: factorisations that work in scratch memory -> its doubles for a block, from the sizes
SCRATCH: Mapping[str, Callable[..., Index]] = {
    "matrix_exp": lambda n: n * n * 2,
    "eigh": lambda n: n * n * 2,
    "eig": lambda n: n * n * 4,
    "svd": lambda m, n, columns: n + m * columns * 2 + n * n,
}


def routine_launches(node: Routine, name: str, plan: RoutinePlan) -> tuple[Launch, ...]:
    """The launches of a routine.

    Raises:
        CompileError: it has no kernel, or a size is too large or has no upper bound.
    """
    if plan.refused:
        raise _refusal(node, plan.refused)
    if node.function == "sort":
        return _sort(node, name, plan.parts)
    if node.function == "mode":
        return (_mode(node, name, *plan.parts),)
    if node.function in ("fft", "rfft", "irfft"):
        return fourier_launches(node, name, plan.parts)
    if node.function in PLACES:
        return PLACES[node.function](node, name, plan.parts)
    if node.function in SEQUENTIAL:
        return SEQUENTIAL[node.function](node, name, plan.parts)
    return (_matrix(node, name, *plan.parts),)


def _refusal(node: Routine, why: str) -> CompileError:
    return CompileError(
        f"cannot compile {node.origin.describe()} for a GPU: {why}",
        hint="Compute it outside of the model, or compile for the CPU.",
    )


def _matrix(node: Routine, name: str, plan: PartPlan) -> Launch:
    scope = TritonScope.of(node, plan)
    text = TritonEmitter(scope, {})
    number = [operand(text.index(size)) for size in node.sizes]
    solver, two = node.function in SOLVERS, MATRICES[node.function].oblong
    programs = grid(node.count, blocks(node.sizes[1], plan.tiles[1])) if solver else grid(node.count)
    scratch = ""
    if node.function in SCRATCH:
        each = SCRATCH[node.function](*node.sizes)
        scope.scratch = ("fp64", each * node.count * 8)
        scratch = operand(text.index(each))
    named = [(f"out{i}", b) for i, b in enumerate(node.outputs)] + [(f"in{i}", b) for i, b in enumerate(node.inputs)]
    operands = tuple(OperandView(n, scope.buffer(b.buffer), operand(text.index(b.stride))) for n, b in named)
    least = operand(text.index(minimum(*node.sizes[:2]) if two else node.sizes[0]))
    view = RoutineView("", operands, tuple(number), plan.tiles, least, scratch, plan.pdl)
    return finish(f"{node.function}.py.j2", view, scope, name, programs, node, plan)


# sorts ---------------------------------------------------------------------------------------------------------------
def _sort(node: Routine, name: str, parts: tuple[PartPlan, ...]) -> tuple[Launch, ...]:
    """Runs that are sorted by counting, which are then merged two by two."""
    launches = []
    for i, plan in enumerate(parts):
        stem = f"{name}_merge" if i else name
        launches.append(_sort_launch(node, stem, plan, i % 2 == 0, plan is parts[-1]))
    return tuple(launches)


def _sort_launch(node: Routine, name: str, plan: PartPlan, turn: bool, last: bool) -> Launch:
    n, count, descending = node.sizes
    scope = TritonScope.of(node, plan)
    text = TritonEmitter(scope, {})
    merging = plan.form == "merge"
    _pointers(scope, node, outputs=last)
    if merging or not last:
        scope.scratch = ("i32", node.count * n * 8)
    view = SortView(
        params="",
        wide=wide_places(plan),
        n=operand(text.index(n)),
        count=operand(text.index(count)),
        key=_key(node),
        before="sorts_after" if descending == as_index(1) else "sorts_before",
        run=plan.run,
        block=plan.block,
        step=plan.step,
        halvings=plan.run.bit_length(),
        turn=turn,
        last=last,
        pdl=plan.pdl,
    )
    template = "sort_merge.py.j2" if merging else "sort_runs.py.j2"
    return finish(template, view, scope, name, grid(node.count, blocks(n, plan.block)), node, plan)


def _mode(node: Routine, name: str, plan: PartPlan) -> Launch:
    (n,) = node.sizes
    scope = TritonScope.of(node, plan)
    _pointers(scope, node, outputs=True)
    length = operand(TritonEmitter(scope, {}).index(n))
    view = SortView(
        "", "", length, length, _key(node), "sorts_before", 0, plan.block, plan.step, 0, False, True, plan.pdl
    )  # fmt: skip
    return finish("mode.py.j2", view, scope, name, grid(node.count), node, plan)


def _pointers(scope: TritonScope, node: Routine, outputs: bool) -> None:
    """The templates call the input x0 and the outputs y0 and y1."""
    scope.buffers[node.inputs[0].buffer] = "x0"
    if outputs:
        scope.buffers |= {b.buffer: f"y{i}" for i, b in enumerate(node.outputs)}


def _key(node: Routine) -> str:
    compute = DTYPES[node.inputs[0].buffer.dtype].compute
    return TL_DTYPE["i32" if compute == "bool" else compute]

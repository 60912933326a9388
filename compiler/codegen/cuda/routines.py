"""Routines as Triton kernels: factorisations of matrices, one for each program, and sorts of rows.

A matrix lies in registers as a tile, or in scratch memory where rows or columns of it are rotated; both bound its size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ....runtime.errors import CompileError
from ...ir.dtypes import DTYPES
from ...ir.index import Index, as_index, minimum
from ...ir.routines import Routine
from ...machine.gpu import Device
from ...schedule.gpu.blocks import blocks, power_of_two, warps_for
from .data_sizes import PLACES, size_bound, wide_places
from .emit import TritonEmitter
from .fourier import fourier_launches
from .kernel import TL_DTYPE, Launch, grid
from .maps import finish_routine, operand
from .scope import TritonScope
from .vision import SEQUENTIAL

#: rows and columns of a matrix in registers
MOST_IN_REGISTERS = 128
#: and of one in scratch memory, of which a row or a column is in registers
MOST_IN_MEMORY = 4096
#: columns of a right-hand side for one program
COLUMNS = 16
#: elements of a run that is sorted by counting, of a program, and of those compared at once
RUN, BLOCK, STEP = 1024, 128, 128


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


@dataclass(frozen=True)
class MatrixForm:
    """A factorisation: its template, how many of its sizes are of tiles, the most of each, and the doubles of scratch
    memory for a block, from its sizes."""

    tiles: int
    most: int = MOST_IN_REGISTERS
    scratch: Callable[..., Index] | None = None


FORMS: Mapping[str, MatrixForm] = {
    "lu": MatrixForm(2),
    "pivot_order": MatrixForm(1, MOST_IN_MEMORY),
    "triangular": MatrixForm(1, 1024),
    "cholesky": MatrixForm(1),
    "ldl": MatrixForm(1),
    "ldl_solve": MatrixForm(1, 1024),
    "qr": MatrixForm(2),
    "reflectors": MatrixForm(2),
    "matrix_exp": MatrixForm(1, 64, lambda n: n * n * 2),
    "eigh": MatrixForm(1, MOST_IN_MEMORY, lambda n: n * n * 2),
    "eig": MatrixForm(1, MOST_IN_MEMORY, lambda n: n * n * 4),
    "svd": MatrixForm(2, MOST_IN_MEMORY, lambda m, n, columns: n + m * columns * 2 + n * n),
}


def routine_launches(node: Routine, name: str, device: Device) -> tuple[Launch, ...]:
    """The launches of a routine.

    Raises:
        CompileError: it has no kernel, or a size is too large or has no upper bound.
    """
    if node.function == "sort":
        return _sort(node, name, device)
    if node.function == "mode":
        return (_mode(node, name, device),)
    if node.function in ("fft", "rfft", "irfft"):
        return fourier_launches(node, name, device)
    if node.function in PLACES:
        return PLACES[node.function](node, name, device)
    if node.function in SEQUENTIAL:
        return SEQUENTIAL[node.function](node, name, device)
    form = FORMS.get(node.function)
    if form is None:
        raise _refusal(node, "mycc has no kernel for it there")
    return (_matrix(node, form, name, device),)


def _refusal(node: Routine, why: str) -> CompileError:
    return CompileError(
        f"cannot compile {node.origin.describe()} for a GPU: {why}",
        hint="Compute it outside of the model, or compile for the CPU.",
    )


def _matrix(node: Routine, form: MatrixForm, name: str, device: Device) -> Launch:
    tiles = [_tile(node, size, form.most) for size in node.sizes[: form.tiles]]
    scope = TritonScope.of(node)
    text = TritonEmitter(scope, {})
    number = [operand(text.index(size)) for size in node.sizes]
    programs = grid(node.count)
    if node.function in ("triangular", "ldl_solve"):
        tiles.append(min(COLUMNS, power_of_two(size_bound(node.sizes[1]) or COLUMNS)))
        programs = grid(node.count, blocks(node.sizes[1], tiles[1]))
    scratch = ""
    if form.scratch is not None:
        each = form.scratch(*node.sizes)
        scope.scratch = ("fp64", each * node.count * 8)
        scratch = operand(text.index(each))
    named = [(f"out{i}", b) for i, b in enumerate(node.outputs)] + [(f"in{i}", b) for i, b in enumerate(node.inputs)]
    operands = tuple(OperandView(n, scope.buffer(b.buffer), operand(text.index(b.stride))) for n, b in named)
    least = operand(text.index(minimum(*node.sizes[:2]) if form.tiles == 2 else node.sizes[0]))
    view = RoutineView("", operands, tuple(number), tuple(tiles), least, scratch, device.pdl)
    held = tiles[0] if scratch and node.function != "matrix_exp" else tiles[0] * tiles[-1]
    template = f"{node.function}.py.j2"
    made = finish_routine(template, view, scope, name, programs, node, warps_for(held, 16), device)
    # its loops end by what a sum says: all lanes have to read the same, or some wait for others that have left
    return replace(made, kernel=replace(made.kernel, fuses=False))


def _tile(node: Routine, size: Index, most: int) -> int:
    bound = size_bound(size)
    if bound is None or bound > most:
        found = "one of a size without an upper bound" if bound is None else f"one of {bound}"
        raise _refusal(node, f"its kernel takes matrices of at most {most} rows or columns, and this is {found}")
    return power_of_two(bound)


# sorts ---------------------------------------------------------------------------------------------------------------
def _sort(node: Routine, name: str, device: Device) -> tuple[Launch, ...]:
    """Runs that are sorted by counting, which are then merged two by two."""
    n = node.sizes[0]
    bound = size_bound(n)
    if bound is None:
        raise _refusal(node, "it needs to know how long a row is at most")
    runs = [RUN << i for i in range(64) if RUN << i < bound]
    launches = []
    for i, run in enumerate([RUN, *runs]):
        template = "sort_merge.py.j2" if i else "sort_runs.py.j2"
        stem = f"{name}_merge" if i else name
        launches.append(_sort_launch(node, template, stem, run, i % 2 == 0, i == len(runs), device))
    return tuple(launches)


def _sort_launch(
    node: Routine, template: str, name: str, run: int, turn: bool, last: bool, device: Device
) -> Launch:  # fmt: skip
    n, count, descending = node.sizes
    scope = TritonScope.of(node)
    text = TritonEmitter(scope, {})
    merging = template == "sort_merge.py.j2"
    _pointers(scope, node, outputs=last)
    if merging or not last:
        scope.scratch = ("i32", node.count * n * 8)
    block = min(256 if merging else BLOCK, power_of_two(size_bound(n) or RUN))
    view = SortView(
        params="",
        wide=wide_places(run),
        n=operand(text.index(n)),
        count=operand(text.index(count)),
        key=_key(node),
        before="sorts_after" if descending == as_index(1) else "sorts_before",
        run=run,
        block=block,
        step=min(STEP, block),
        halvings=run.bit_length(),
        turn=turn,
        last=last,
        pdl=device.pdl,
    )
    warps = warps_for(block * (1 if merging else view.step), 64)
    return finish_routine(template, view, scope, name, grid(node.count, blocks(n, block)), node, warps, device)


def _mode(node: Routine, name: str, device: Device) -> Launch:
    (n,) = node.sizes
    scope = TritonScope.of(node)
    _pointers(scope, node, outputs=True)
    block = min(BLOCK, power_of_two(size_bound(n) or BLOCK))
    length = operand(TritonEmitter(scope, {}).index(n))
    view = SortView(
        "", "", length, length, _key(node), "sorts_before", 0, block, min(STEP, block), 0, False, True, device.pdl
    )  # fmt: skip
    return finish_routine(
        "mode.py.j2", view, scope, name, grid(node.count), node, warps_for(block * view.step, 64), device
    )


def _pointers(scope: TritonScope, node: Routine, outputs: bool) -> None:
    """The templates call the input x0 and the outputs y0 and y1."""
    scope.buffers[node.inputs[0].buffer] = "x0"
    if outputs:
        scope.buffers |= {b.buffer: f"y{i}" for i, b in enumerate(node.outputs)}


def _key(node: Routine) -> str:
    compute = DTYPES[node.inputs[0].buffer.dtype].compute
    return TL_DTYPE["i32" if compute == "bool" else compute]

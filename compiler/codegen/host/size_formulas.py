"""The size formulas of an entry point, C++ of the type mycc::Size (kernels/math/sizes.h), which does not wrap; and
which sizes are checked alone, as no memory has them.

    dims[1] = (size_n * size_n).value;
    sizes[0] = lines(size_n * size_n * 4);
    sizes[1] = lines(excess(size_n * size_n * size_n)); // a sum over n x n x n elements that are never stored

Long sums of sizes (all that a detector keeps, of each of 90 classes) are variables, for products of them have thousands
of terms: `const Size sum_0 = size_u0 + size_u1 + ...; sizes[2] = lines(sum_0 * sum_0)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...ir.bounds import largest
from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.index import ONE, Index, Var, product
from ...ir.nodes import Nest, Node, Reduce, Scan, Scatter
from ...schedule import Schedule
from .size_text import LONG, SizeText, quotient
from .step_views import known

__all__ = ["BufferView", "SizeViews", "size_views"]

_COUNTED = 1 << 56  # mycc::excess has the same limit


@dataclass(frozen=True)
class BufferView:
    """An arena buffer; known: how many of the sizes that the run finds it needs."""

    first: int
    last: int
    bytes: str
    known: int


@dataclass(frozen=True)
class SizeViews:
    """The size formulas of an entry point. sums: the variables that output_dims and buffers use. offsets, arena: the
    places of the buffers, where all sizes are fixed."""

    sums: tuple[str, ...]
    input_dims: tuple[str, ...]
    output_dims: tuple[str, ...]
    buffers: tuple[BufferView, ...]
    offsets: tuple[int, ...] | None
    arena: int


def size_views(
    schedule: Schedule, input_shapes: Sequence[Sequence[Index]], output_shapes: Sequence[Sequence[Index]]
) -> SizeViews:  # fmt: skip
    """Behind the buffers of the memory plan stand some that take no memory, or more than there is: see `unstored`."""
    memory, program = schedule.memory, schedule.program
    sums = tuple(_long_sums(program.nodes, output_shapes))
    text = SizeText(sums=sums)
    buffers = [
        BufferView(t.first, t.last, text.index(t.bytes), known(schedule, t.buffer.size)) for t in memory.lifetimes
    ]
    stored = [t.bytes for t in memory.lifetimes]
    for tensors, shapes in ((program.inputs, input_shapes), (program.outputs, output_shapes)):
        stored += [product(s) * DTYPES[b.dtype].size for b, s in zip(tensors, shapes, strict=False)]
    checked = unstored(schedule, stored)
    for needed in sorted({known(schedule, n) for n in checked}):
        total = " + ".join(f"excess({text.index(n)})" for n in checked if known(schedule, n) == needed)
        buffers.append(BufferView(0, 0, total, needed))
    offsets = memory.offsets if len(buffers) == len(memory.lifetimes) else None
    return SizeViews(
        tuple(SizeText().index(s) for s in sums),
        tuple(SizeText().number(d) for shape in input_shapes for d in shape),
        tuple(text.number(d) for shape in output_shapes for d in shape),
        tuple(buffers),
        offsets,
        memory.arena if offsets is not None else 0,
    )


def unstored(schedule: Schedule, stored: Sequence[Index]) -> tuple[Index, ...]:
    """What kernels go through, in elements or bytes, that may be beyond what can be counted although all tensors fit.

    stored: the bytes of tensors that have their memory before kernels run: what is no larger needs no check.
    """
    names = {*schedule.program.sizes, *(d.size.name for d in schedule.program.defines)}
    found: list[Index] = []
    for number in dict.fromkeys(n for node in schedule.program.nodes for n in _counted(node)):
        top = largest(number)
        known = top is not None and top <= _COUNTED and number.nonnegative()
        own = all(s.name in names for s in number.sizes())  # the turns of a loop are no size of a tensor
        if own and not known and not any((other - number).nonnegative() for other in (*stored, *found)):
            found.append(number)
    return tuple(found)


def _long_sums(nodes: Sequence[object], shapes: Sequence[Sequence[Index]]) -> list[Index]:
    """Extents of loops and sizes of results that are sums of many terms, over sizes alone; no products of others."""
    found = [d for shape in shapes for d in shape]
    for node in nodes:
        for part in node.stages if isinstance(node, Nest) else (node,):
            if isinstance(part, Node):
                found += [v.extent for v in part.dims]
    sums: list[Index] = []
    for one in sorted(dict.fromkeys(found), key=lambda d: len(d.terms)):
        long = len(one.terms) > LONG and not one.vars()
        if long and all(quotient(one, s) is None for s in sums):
            sums.append(one)
    return sums


def _counted(node: object) -> Iterator[Index]:
    """Elements that loops go through, and bytes of their own memory."""
    if isinstance(node, Nest):
        for stage in node.stages:
            yield from _counted(stage)
        yield from (_bytes(b) for b in node.locals)
    elif isinstance(node, Node):
        yield _elements(node.dims)
        if isinstance(node, Reduce):
            yield _elements((*node.dims, *node.rdims))
        elif isinstance(node, Scan):
            yield _elements((*node.dims, node.step))
        elif isinstance(node, Scatter):
            yield _elements(node.udims)


def _elements(loops: Sequence[Var]) -> Index:
    return product(v.extent for v in loops) if loops else ONE


def _bytes(buffer: Buffer) -> Index:
    return buffer.size * DTYPES[buffer.dtype].size

"""Scheduling piece by piece: no node moves across a barrier: a size that the host reads, what the model asserts.

a = ...; count = ...  | u0 = count[0] |  b[u0] = f(a)     ->     two programs; the first keeps a and count
a = ...; ok = ...     | assert ok     |  b = table[a]     ->     the same, and the assertion between them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..ir.buffers import Buffer
from ..ir.index import ONE, ZERO
from ..ir.nodes import Origin
from ..ir.program import AnyNode, Assert, Found, Program
from ..ir.routines import Blocks, Routine

#: the routine that stands for the readers behind a barrier while a piece is scheduled; it is no kernel
KEEP = "keep"


def in_pieces(program: Program, schedule: Callable[[Program], Sequence[AnyNode]]) -> Program:
    """The program with its nodes scheduled between its barriers; `defines` follow their places."""
    asserted = [i for i, n in enumerate(program.nodes) if isinstance(n, (Assert, Found))]
    barriers = sorted({d.after for d in program.defines} | {b for i in asserted for b in (i, i + 1)})
    if not barriers:
        return program.with_nodes(tuple(schedule(program)))
    ends = [*(b for b in barriers if b < len(program.nodes)), len(program.nodes)]
    nodes: list[AnyNode] = []
    moved: dict[int, int] = {0: 0}
    start = 0
    for end in ends:
        piece = program.nodes[start:end]
        if isinstance(next(iter(piece), None), (Assert, Found)):
            nodes += piece
            moved[end], start = len(nodes), end
            continue
        keep = _keep(piece, program, end)
        part = replace(program, nodes=(*piece, *keep), defines=(), checks=())
        nodes += [n for n in schedule(part) if not is_keep(n)]
        moved[end] = len(nodes)
        start = end
    defines = tuple(replace(d, after=moved[d.after]) for d in program.defines)
    return replace(program, nodes=tuple(nodes), defines=defines)


def is_keep(node: AnyNode) -> bool:
    return isinstance(node, Routine) and node.function == KEEP


def _keep(piece: Sequence[AnyNode], program: Program, end: int) -> tuple[AnyNode, ...]:
    """A node that reads what the piece writes and something behind it reads."""
    later = {b for n in program.nodes[end:] for b in n.reads()} | {d.buffer for d in program.defines if d.after >= end}
    kept = tuple(b for b in dict.fromkeys(b for n in piece for b in n.writes()) if b in later and b.kind == "temp")
    return keep_node(kept)


def keep_node(kept: Sequence[Buffer]) -> tuple[AnyNode, ...]:
    """A node that reads buffers which others need later; none for no buffer."""
    if not kept:
        return ()
    end_mark = Buffer("kept", "bool", ONE, "output")
    return (Routine((), (), Origin(), KEEP, ONE, tuple(Blocks(b, ZERO) for b in kept), (Blocks(end_mark, ZERO),), ()),)

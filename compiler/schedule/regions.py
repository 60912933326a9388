"""Branches and loops while a program is scheduled: their blocks are scheduled one by one, then put in one row.

choose y by p { a; b } else { c }          ->     a; b; c       Branches(p, 0, 2, 3)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ..ir.buffers import Buffer
from ..ir.program import AnyNode, Branches, Choose, Define, Found, Loop, Program, Repeat
from .barriers import is_keep, keep_node

Schedule = Callable[[Program], Sequence[AnyNode]]


def scheduled_blocks(program: Program, nodes: Sequence[AnyNode], schedule: Schedule) -> tuple[AnyNode, ...]:
    """The nodes with the blocks inside them scheduled too."""
    return tuple(_with_blocks(program, node, schedule) for node in nodes)


def _with_blocks(program: Program, node: AnyNode, schedule: Schedule) -> AnyNode:
    if not isinstance(node, (Choose, Repeat)):
        return node
    kept = {*node.results, node.flag}

    def block(nodes: tuple[AnyNode, ...]) -> tuple[AnyNode, ...]:
        written = dict.fromkeys(b for n in nodes for b in n.writes())
        keep = keep_node([b for b in written if b in kept and b.kind == "temp"])
        part = replace(program, nodes=(*nodes, *keep), defines=(), checks=())
        return tuple(n for n in schedule(part) if not is_keep(n))

    if isinstance(node, Choose):
        return replace(node, then=block(node.then), other=block(node.other))
    return replace(node, test=block(node.test), body=block(node.body))


def in_a_row(program: Program) -> Program:
    """The program with the nodes of all blocks in one row, where the blocks begin and end, and the sizes that are found
    inside of them."""
    if not any(isinstance(n, (Choose, Repeat)) for n in program.nodes):
        return program
    row, waiting = _Row(), list(program.defines)
    for i, node in enumerate((*program.nodes, None)):
        while waiting and waiting[0].after == i:
            row.defines.append(replace(waiting.pop(0), after=len(row.nodes)))
        if node is not None:
            row.add(node, None)
    return replace(program, nodes=tuple(row.nodes), regions=tuple(row.regions), defines=tuple(row.defines))


@dataclass
class _Row:
    nodes: list[AnyNode] = field(default_factory=list)
    regions: list[Branches | Loop] = field(default_factory=list)
    defines: list[Define] = field(default_factory=list)

    def add(self, node: AnyNode, block: tuple[int, int] | None) -> None:
        """A node of a block; those inside it."""
        if isinstance(node, Found):
            self.defines.append(Define(node.size, node.buffer, len(self.nodes), node.where, block))
            return
        if not isinstance(node, (Choose, Repeat)):
            self.nodes.append(node)
            return
        place, first = len(self.regions), len(self.nodes)
        ends: list[int] = []
        self.regions.append(Loop(None, None, None, 0, 0, 0))  # until its end is known
        for side, nodes in enumerate(node.blocks):
            for inner in nodes:
                self.add(inner, (place, side))
            ends.append(len(self.nodes))
        if isinstance(node, Choose):
            self.regions[place] = Branches(node.flag, first, *ends)
        else:
            self.regions[place] = Loop(node.flag, node.iteration, node.count, first, *ends)


def flags_of(program: Program) -> list[Buffer]:
    """What the host reads to choose and to stop."""
    return [region.flag for region in program.regions if region.flag is not None]


def span_in_loops(first: int, last: int, buffer: Buffer, regions: Sequence[Branches | Loop]) -> tuple[int, int]:
    """The kernels during which a buffer keeps its memory: all of a loop that it crosses the border of, or that hands it
    on; the flag of a branch until the branch."""
    for region in reversed(regions):  # inner ones first
        if region.flag is buffer:
            first, last = min(first, region.first), max(last, region.first)
        if isinstance(region, Branches) or region.last == region.first:
            continue
        end = region.last - 1
        touches = first <= end and last >= region.first
        inside = region.first <= first and last <= end and buffer.kind != "carry" and region.flag is not buffer
        if touches and not inside:
            first, last = min(first, region.first), max(last, end)
    return first, last

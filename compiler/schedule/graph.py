"""The program as a graph while it is scheduled: who writes and who reads each buffer, and edits that keep the order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import TypeVar

from ..ir.buffers import Buffer
from ..ir.expr import Load
from ..ir.in_place import overwrites, shared_roots
from ..ir.nodes import Node
from ..ir.program import AnyNode, Choose, Program, Repeat
from ..ir.routines import Routine
from ..ir.structured import Attention, AttentionGradient, Conv, Gemm

N = TypeVar("N", bound=Node)


class NodeGraph:
    """An ordered list of nodes with its readers and writers; every edit returns nothing and keeps them right."""

    def __init__(self, program: Program):
        self.program = program
        self.nodes: list[AnyNode] = list(program.nodes)
        self._index()

    def _index(self) -> None:
        self._readers: dict[Buffer, list[AnyNode]] = {}
        self._writers: dict[Buffer, list[AnyNode]] = {}
        self._position: dict[AnyNode, int] = {}
        for i, node in enumerate(self.nodes):
            self._enter(node, i)

    def _enter(self, node: AnyNode, position: int) -> None:
        self._position[node] = position
        for buffer in node.reads():
            self._readers.setdefault(buffer, []).append(node)
        for buffer in node.writes():
            self._writers.setdefault(buffer, []).append(node)

    def readers(self, buffer: Buffer) -> list[AnyNode]:
        """The nodes that read a buffer."""
        return self._readers.get(buffer, [])

    def writers(self, buffer: Buffer) -> list[AnyNode]:
        """The nodes that store to a buffer."""
        return self._writers.get(buffer, [])

    def producer(self, buffer: Buffer) -> AnyNode | None:
        """The only node that writes a buffer, or None."""
        writers = self.writers(buffer)
        return writers[0] if len(writers) == 1 else None

    def free_name(self, name: str) -> str:
        """The name, with a number behind it where a buffer of the graph has it already."""
        taken = {b.name for b in (*self._readers, *self._writers)}
        names = (f"{name}{i or ''}" for i in count())
        return next(n for n in names if n not in taken)

    def position(self, node: AnyNode) -> int:
        """Where a node stands in the order of the program, from 0 on."""
        return self._position[node]

    def replace(self, old: AnyNode, new: AnyNode) -> None:
        """Puts a node in another's place; its readers and writers follow."""
        position = self._position.pop(old)
        self._leave(old)
        self.nodes[position] = new
        self._enter(new, position)

    def expand(self, node: AnyNode, nodes: Sequence[AnyNode]) -> None:
        """Puts several nodes in the place of one."""
        position = self.nodes.index(node)
        self.nodes[position : position + 1] = nodes
        self._index()

    def replace_by(self, old: AnyNode, new: Sequence[AnyNode]) -> None:
        """Puts nodes in another's place, in their order."""
        position = self._position[old]
        self.nodes[position : position + 1] = new
        self._index()

    def remove(self, node: AnyNode) -> None:
        """Takes a node out; positions of the others keep their order."""
        self._leave(node)
        del self._position[node]
        self.nodes.remove(node)
        self._position = {n: i for i, n in enumerate(self.nodes)}

    def _leave(self, node: AnyNode) -> None:
        for table, buffers in ((self._readers, node.reads()), (self._writers, node.writes())):
            for buffer in buffers:
                table[buffer].remove(node)

    def move(self, node: AnyNode, position: int) -> None:
        """Moves a node to a position in the order."""
        self.nodes.remove(node)
        self.nodes.insert(position, node)
        self._position = {n: i for i, n in enumerate(self.nodes)}

    def crosses(self, buffers: Iterable[Buffer], first: AnyNode, last: AnyNode) -> bool:
        """Whether a node between two others writes over the memory that one of the buffers lies in: then nothing that
        reads them there may move from one to the other."""
        roots = shared_roots(buffers)
        if not roots:
            return False
        low, high = sorted((self.position(first), self.position(last)))
        return any(roots & overwrites(node) for node in self._between(low, high))

    def meets_readers(self, node: AnyNode, other: AnyNode) -> bool:
        """Whether a node between the two reads what `node` writes over: then it may not move there."""
        roots = overwrites(node)
        if not roots:
            return False
        low, high = sorted((self.position(node), self.position(other)))
        return any(b.root in roots for n in self._between(low, high) for b in (*n.reads(), *n.writes()))

    def _between(self, low: int, high: int) -> list[AnyNode]:
        return [n for n in self.nodes if low < self.position(n) < high]

    def result(self) -> Program:
        """The program with the graph's nodes."""
        return self.program.with_nodes(tuple(self.nodes))


def operand_buffers(node: AnyNode) -> tuple[Buffer, ...]:
    """Buffers that a structured node reads as strided operands: nothing can be computed on the way."""
    match node:
        case Gemm():
            return (node.a.buffer, node.b.buffer, *(node.quantised.buffers if node.quantised is not None else ()))
        case Conv():
            return (node.x.buffer, node.w)
        case Attention():
            return tuple(o.buffer for o in (*node.operands, *node.tables))
        case AttentionGradient():
            return tuple(o.buffer for o in node.operands)
        case Routine() | Choose() | Repeat():
            return node.reads()
    return ()


def loads_of(node: AnyNode, buffer: Buffer) -> list[Load]:
    """The distinct loads of a buffer in a node's expressions."""
    return list(dict.fromkeys(ld for e in node.expressions() for ld in e.loads if ld.buffer is buffer))


def label(node: AnyNode) -> str:
    """How remarks call a node: its operators and what it writes."""
    ops = "+".join(op.removeprefix("aten.") for op in node.origin.ops) or type(node).__name__.lower()
    buffers = node.writes()
    return f"{ops} ({buffers[0].name})" if buffers else ops

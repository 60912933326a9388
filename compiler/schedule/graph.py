"""The program as a graph while it is scheduled: who writes and who reads each buffer, and edits that keep the order."""

from __future__ import annotations

from bisect import bisect_left
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
        self._overwriters: dict[Buffer, list[AnyNode]] = {}  # by the piece of memory
        self._position = {n: i for i, n in enumerate(self.nodes)}
        for node in self.nodes:
            self._enter(node)
        #: lists that may not be in the order of the program any more
        self._disordered: dict[int, list[AnyNode]] = {}

    def _enter(self, node: AnyNode) -> None:
        for table, buffers in self._tables(node):
            for buffer in buffers:
                table.setdefault(buffer, []).append(node)

    def _enter_late(self, node: AnyNode) -> None:
        """Of a node that is not the last one: behind those that are there."""
        self._enter(node)
        for table, buffers in self._tables(node):
            self._disordered |= {id(table[buffer]): table[buffer] for buffer in buffers}

    def _leave(self, node: AnyNode) -> None:
        for table, buffers in self._tables(node):
            for buffer in buffers:
                table[buffer].remove(node)

    def _tables(self, node: AnyNode) -> tuple[tuple[dict[Buffer, list[AnyNode]], Iterable[Buffer]], ...]:
        return (
            (self._readers, node.reads()),
            (self._writers, node.writes()),
            (self._overwriters, overwrites(node)),
        )

    def _place(self, node: AnyNode) -> int:
        """Where a node lies in the list of nodes: positions have holes where nodes were taken out."""
        return bisect_left(self.nodes, self._position[node], key=self.position)

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
        """A number that is larger for each later node of the program."""
        return self._position[node]

    def replace(self, old: AnyNode, new: AnyNode) -> None:
        """Puts a node in another's place; its readers and writers follow."""
        place = self._place(old)
        self._leave(old)
        self._position[new] = self._position.pop(old)
        self.nodes[place] = new
        self._enter_late(new)

    def replace_by(self, old: AnyNode, new: Sequence[AnyNode]) -> None:
        """Puts nodes in another's place, in their order."""
        place = self._place(old)
        self._leave(old)
        self.nodes[place : place + 1] = new
        self._position = {n: i for i, n in enumerate(self.nodes)}
        for node in new:
            self._enter_late(node)
        for nodes in self._disordered.values():
            nodes.sort(key=self.position)
        self._disordered = {}

    def remove(self, node: AnyNode) -> None:
        """Takes a node out."""
        del self.nodes[self._place(node)]
        del self._position[node]
        self._leave(node)

    def move_to_end(self, node: AnyNode) -> None:
        """Puts a node behind all others."""
        del self.nodes[self._place(node)]
        self._position[node] = self._position[self.nodes[-1]] + 1 if self.nodes else 0
        self.nodes.append(node)
        for table, buffers in self._tables(node):
            self._disordered |= {id(table[buffer]): table[buffer] for buffer in buffers}

    def move_to_front(self, node: AnyNode) -> None:
        """Puts a node in front of all others."""
        del self.nodes[self._place(node)]
        self._position[node] = self._position[self.nodes[0]] - 1 if self.nodes else 0
        self.nodes.insert(0, node)
        for table, buffers in self._tables(node):
            self._disordered |= {id(table[buffer]): table[buffer] for buffer in buffers}

    def crosses(self, buffers: Iterable[Buffer], first: AnyNode, last: AnyNode) -> bool:
        """Whether a node between two others writes over the memory that one of the buffers lies in: then nothing that
        reads them there may move from one to the other."""
        roots = shared_roots(buffers)
        if not roots:
            return False
        low, high = sorted((self.position(first), self.position(last)))
        return any(low < self.position(node) < high for root in roots for node in self._overwriters.get(root, ()))

    def meets_readers(self, node: AnyNode, other: AnyNode) -> bool:
        """Whether a node between the two reads what `node` writes over: then it may not move there."""
        roots = overwrites(node)
        if not roots:
            return False
        low, high = sorted((self._place(node), self._place(other)))
        between = self.nodes[low + 1 : high]
        return any(b.root in roots for n in between for b in (*n.reads(), *n.writes()))

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

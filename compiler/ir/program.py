"""Programs of the loop IR: nodes in order, and what the host does between and around them.

Every element of a temporary is written once, before it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from .buffers import Buffer
from .index import Index, Size
from .nodes import Map, Nest, Node, Reduce, Scan, Scatter
from .routines import Routine
from .structured import Attention, AttentionGradient, Conv, ConvChain, Gemm


@dataclass(frozen=True, eq=False)
class Assert(Node):
    """The call fails with `text` unless condition[0] (bool). What it guards stays behind it: no node moves across."""

    condition: Buffer
    text: str

    def reads(self) -> tuple[Buffer, ...]:
        """The buffer of its condition."""
        return (self.condition,)


@dataclass(frozen=True, eq=False)
class Found(Node):
    """In a branch or loop: the host reads a size from element 0 of `buffer`, as for Define, which it becomes in the
    schedule. No node moves across."""

    size: Size
    buffer: Buffer
    where: str = ""

    def reads(self) -> tuple[Buffer, ...]:
        """The buffer that the size lies in."""
        return (self.buffer,)


@dataclass(frozen=True, eq=False)
class Choose(Node):
    """if flag[0] { then } else { other }; both write all of `results`. Until the schedule is made: see Branches."""

    flag: Buffer
    then: tuple[AnyNode, ...]
    other: tuple[AnyNode, ...]
    results: tuple[Buffer, ...]

    @property
    def blocks(self) -> tuple[tuple[AnyNode, ...], ...]:
        """The nodes of each branch."""
        return (self.then, self.other)

    def reads(self) -> tuple[Buffer, ...]:
        """The buffers that the flag and the branches read and that none of the branches makes."""
        return _read_inside(self.blocks, self.flag)

    def writes(self) -> tuple[Buffer, ...]:
        """The buffers that it writes."""
        return self.results


@dataclass(frozen=True, eq=False)
class Repeat(Node):
    """A loop. With `count`: count times { body }, where `iteration` is the number of the time; else
    for ever { test; unless flag[0] stop; body }. `results` are the last values of what it hands on (kind carry).
    """

    test: tuple[AnyNode, ...]
    flag: Buffer | None
    iteration: Size | None
    count: Index | None
    body: tuple[AnyNode, ...]
    results: tuple[Buffer, ...]

    @property
    def blocks(self) -> tuple[tuple[AnyNode, ...], ...]:
        """The nodes of the test, and of the body."""
        return (self.test, self.body)

    def reads(self) -> tuple[Buffer, ...]:
        """The buffers that the test and the body read and that neither makes."""
        return _read_inside(self.blocks, None)

    def writes(self) -> tuple[Buffer, ...]:
        """The buffers that it writes."""
        return self.results


def _read_inside(blocks: Sequence[Sequence[AnyNode]], flag: Buffer | None) -> tuple[Buffer, ...]:
    """What blocks read of buffers from outside of them."""
    found: dict[Buffer, None] = dict.fromkeys([flag] if flag is not None else [])
    for block in blocks:
        written: set[Buffer] = set()
        for node in block:
            found |= dict.fromkeys(b for b in node.reads() if b not in written)
            written.update(node.writes())
    return tuple(found)


def _found(nodes: Sequence[AnyNode]) -> list[str]:
    names: list[str] = []
    for node in nodes:
        if isinstance(node, Found):
            names.append(node.size.name)
        for block in node.blocks if isinstance(node, (Choose, Repeat)) else ():
            names += _found(block)
    return names


AnyNode: TypeAlias = (
    Map
    | Reduce
    | Gemm
    | Conv
    | ConvChain
    | Attention
    | AttentionGradient
    | Nest
    | Scan
    | Scatter
    | Routine
    | Assert
    | Found
    | Choose
    | Repeat
)


@dataclass(frozen=True)
class Branches:
    """Of a scheduled program: kernels first..middle run if flag[0], else middle..last."""

    flag: Buffer
    first: int
    middle: int
    last: int


@dataclass(frozen=True)
class Loop:
    """Of a scheduled program: kernels first..last run `count` times, which `iteration` counts; without a
    count as long as flag[0] holds after first..middle."""

    flag: Buffer | None
    iteration: Size | None
    count: Index | None
    first: int
    middle: int
    last: int


@dataclass(frozen=True)
class Define:
    """A size that the run finds: element 0 of `buffer` (i64), read by the host when the first `after` nodes have run.

    A value outside of size.lo..size.hi fails the call; `where` is the place in the user's model. block: of a scheduled
    program, the region that it stands in, by its place among the regions, and which of its two blocks.
    """

    size: Size
    buffer: Buffer
    after: int
    where: str = ""
    block: tuple[int, int] | None = None


@dataclass(frozen=True)
class Check:
    """What the model asks of sizes that the run finds: a `op` b (eq, ne, lt or le), tested when the first `defined` of
    them are known; else the call fails with `text`."""

    op: str
    a: Index
    b: Index
    defined: int
    text: str


@dataclass(frozen=True, eq=False)
class Program:
    """One entry point: its buffers by role and its nodes in order.

    Sizes that the run finds are defined between nodes, in the order of `defines`; no node moves across one.
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    sizes: tuple[str, ...]  # names of the size symbols of the inputs, in the order of mycc_call.symbols
    nodes: tuple[AnyNode, ...]
    defines: tuple[Define, ...] = ()
    checks: tuple[Check, ...] = ()
    regions: tuple[Branches | Loop, ...] = ()  # of a scheduled program, outer ones before those inside
    state: tuple[Buffer, ...] = ()  # what the program reads or changes of the model's state

    def found(self) -> list[str]:
        """The names of the sizes that the run finds, those in branches and loops too: Check.defined counts them."""
        names: list[str] = []
        for i in range(len(self.nodes) + 1):
            names += [d.size.name for d in self.defines if d.after == i]
            names += _found(self.nodes[i : i + 1])
        return names

    def with_nodes(self, nodes: tuple[AnyNode, ...]) -> Program:
        """The program with these nodes in place of its own."""
        return replace(self, nodes=nodes)

"""Nodes of the loop IR: loops over elements. Frozen dataclasses; buffers are flat memory, indices are in elements.

    h1 = map[m:s0, n:3072] h1[m*3072 + n] = gelu(h0[m*3072 + n] + b1[n])

Every node finishes its elements with `stores`, so that an epilogue is nothing but a longer stored expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar

from .buffers import Buffer
from .expr import Acc, Expr, Load
from .index import Index, Indirect, Var, product


@dataclass(frozen=True)
class Origin:
    """Where a node comes from in the user's model: aten operators and source lines ("model.py:88").

    nodes: the names of the graph's nodes; they say nothing of what the loops do, so equal loops stay equal.
    """

    ops: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    nodes: tuple[str, ...] = field(default=(), compare=False)

    def describe(self) -> str:
        """`embedding (model.py:41)`: for a person."""
        ops = ", ".join(op.removeprefix("aten.") for op in self.ops)
        return f"{ops} ({', '.join(self.lines)})" if self.lines else ops

    def __add__(self, other: Origin) -> Origin:
        return Origin(_union(self.ops, other.ops), _union(self.lines, other.lines), _union(self.nodes, other.nodes))


def _union(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    return a + tuple(x for x in b if x not in a)


@dataclass(frozen=True)
class Store:
    """buffer[index] = value, for all loop variables of the node."""

    buffer: Buffer
    index: Index
    value: Expr

    def __str__(self) -> str:
        return f"{self.buffer.name}[{self.index}] = {self.value}"


N = TypeVar("N", bound="Node")


def kept(question: Callable[[N], tuple[Buffer, ...]]) -> Callable[[N], tuple[Buffer, ...]]:
    """A question to a node, whose answer the node keeps: passes ask it many times, and nodes do not change."""
    name = f"_{question.__qualname__}"

    @wraps(question)
    def answered(node: N) -> tuple[Buffer, ...]:
        answers: dict[str, Any] = node.__dict__
        if name not in answers:
            answers[name] = question(node)
        found: tuple[Buffer, ...] = answers[name]
        return found

    return answered


@dataclass(frozen=True, eq=False)
class Node:
    """Base: `dims` are the loops over the elements that the node finishes."""

    dims: tuple[Var, ...]
    stores: tuple[Store, ...]
    origin: Origin

    def expressions(self) -> Iterator[Expr]:
        """Every scalar expression of the node."""
        for store in self.stores:
            yield store.value

    @kept
    def reads(self) -> tuple[Buffer, ...]:
        """The buffers that its expressions load from, each once."""
        found: dict[Buffer, None] = {}
        for e in self.expressions():
            for load in e.loads:
                found[load.buffer] = None
        for store in self.stores:
            for load in _index_loads(store.index):
                found[load.buffer] = None
        return tuple(found)

    @kept
    def writes(self) -> tuple[Buffer, ...]:
        """The buffers that it stores to, each once."""
        return tuple(dict.fromkeys(s.buffer for s in self.stores))

    @property
    def extent(self) -> Index:
        """How many times the body runs: the product of the loops' extents."""
        return product(d.extent for d in self.dims)


@dataclass(frozen=True, eq=False)
class Map(Node):
    """for dims: stores."""


@dataclass(frozen=True)
class Reduction:
    """acc = reduce(op, value) over the reduced loops. op: sum, prod, max, min, any, all, argmax, argmin; top: the
    largest number, or NaN where there is one, as the target likes; its reader finds NaN by other means; welford: the
    sum of squared deviations from the mean of all values (see schedule/algebra/welford.py)."""

    acc: Acc
    op: str
    value: Expr


@dataclass(frozen=True, eq=False)
class Reduce(Node):
    """for dims: { reduce by `reductions` over rdims; stores (which may use their Acc) }."""

    rdims: tuple[Var, ...]
    reductions: tuple[Reduction, ...]

    def expressions(self) -> Iterator[Expr]:
        for f in self.reductions:
            yield f.value
        yield from super().expressions()


@dataclass(frozen=True, eq=False)
class Nest(Node):
    """One loop over the rows (dims) around several stages, each a Map or a Reduce over the rest of its loops.

    dims are the rows; `stages` have dims = rows + inner loops; `locals` are buffers that only live within a row.
    pipeline_stages: one for each stage, in order, where the rows are pipelined: a stage of stage p runs p rows behind
    (see schedule/loops/pipeline_columns.py); empty where each row is done before the next. walk: the loop behind the
    rows that stages of the first pipeline stage and those of the last one share (see
    schedule/loops/pipeline_samples.py).
    """

    stages: tuple[Map | Reduce, ...]
    locals: tuple[Buffer, ...] = ()
    pipeline_stages: tuple[int, ...] = ()
    walk: Var | None = None

    def expressions(self) -> Iterator[Expr]:
        for stage in self.stages:
            yield from stage.expressions()

    @kept
    def reads(self) -> tuple[Buffer, ...]:
        """The buffers that its stages load from and that none of them writes, each once."""
        written = {b for s in self.stages for b in s.writes()}
        found = dict.fromkeys(b for s in self.stages for b in s.reads())
        return tuple(b for b in found if b not in written)

    @kept
    def writes(self) -> tuple[Buffer, ...]:
        """The buffers that its stages store to and that outlive it, each once."""
        return tuple(dict.fromkeys(b for s in self.stages for b in s.writes() if b not in self.locals))


@dataclass(frozen=True)
class Carry:
    """A value that a scan hands from step to step: `start` at first, then `next`, which may read every Acc of the scan
    as it was before the step."""

    acc: Acc
    start: Expr
    next: Expr


@dataclass(frozen=True, eq=False)
class Scan(Node):
    """for dims: { start `carries`; for step: { all carries take their next value; stores } }, the steps in order."""

    step: Var
    carries: tuple[Carry, ...]

    def expressions(self) -> Iterator[Expr]:
        for carry in self.carries:
            yield carry.start
            yield carry.next
        yield from super().expressions()


@dataclass(frozen=True, eq=False)
class Scatter(Node):
    """for dims: stores; then for udims, in order: updates, at places that may be read from memory.

    An update may read the buffers that the node fills, but only the element that it writes. The first `parallel` of
    udims lead to places of their own. Over a value that is written in place (Buffer.of) there are updates alone: what
    they do not touch stays.
    """

    udims: tuple[Var, ...]
    updates: tuple[Store, ...]
    parallel: int = 0

    def expressions(self) -> Iterator[Expr]:
        yield from super().expressions()
        for update in self.updates:
            yield update.value

    @kept
    def reads(self) -> tuple[Buffer, ...]:
        """As of Node, with what the places of the updates are loaded from."""
        found = dict.fromkeys(super().reads())
        found |= dict.fromkeys(load.buffer for u in self.updates for load in _index_loads(u.index))
        return tuple(b for b in found if b not in self.writes())

    @kept
    def writes(self) -> tuple[Buffer, ...]:
        """The buffers of its stores and of its updates, each once."""
        return tuple(dict.fromkeys(s.buffer for s in (*self.stores, *self.updates)))


def _index_loads(index: Index) -> Iterator[Load]:
    for atom in index.atoms():
        if isinstance(atom, Indirect):
            value = atom.value
            assert isinstance(value, Expr)
            yield from value.loads

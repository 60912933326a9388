"""Tensor-level nodes of the loop IR. Frozen dataclasses; buffers are flat memory, indices are in elements.

    h1 = map[m:s0, n:3072] h1[m*3072 + n] = gelu(h0[m*3072 + n] + b1[n])

A program is a list of nodes in order; every element of a temporary is written once, before it is read. Every node
finishes its elements with `stores`, so that an epilogue is nothing but a longer stored expression.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from .expr import Acc, Expr, Load
from .index import Index, Size, Var, product

_ids = itertools.count()


@dataclass(frozen=True, eq=False)
class Buffer:
    """Flat memory of `size` elements.

    kind: input, output, const (weights), temp (arena), local (to a row); of memory that is written in place: state (of
    the model), inout (an input that is written to), carry (arena: what a loop hands on).
    of: the buffer in whose memory this one lies: it is a later value of it, written over it in part or as a whole.
    """

    name: str
    dtype: str
    size: Index
    kind: str
    slot: int = -1  # which input, output or tensor of the state; -1 otherwise
    of: Buffer | None = None
    ident: int = field(default_factory=lambda: next(_ids))

    @property
    def root(self) -> Buffer:
        """The first value in its memory."""
        return self if self.of is None else self.of

    def __str__(self) -> str:
        return self.name


#: kinds of buffers that have several values, one after the other
IN_PLACE = ("state", "inout", "carry")


@dataclass(frozen=True)
class Origin:
    """Where a node comes from in the user's model: aten operators and source lines ("model.py:88")."""

    ops: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    def describe(self) -> str:
        """`embedding (model.py:41)`: for a person."""
        ops = ", ".join(op.removeprefix("aten.") for op in self.ops)
        return f"{ops} ({', '.join(self.lines)})" if self.lines else ops

    def __add__(self, other: Origin) -> Origin:
        return Origin(_union(self.ops, other.ops), _union(self.lines, other.lines))


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

    def reads(self) -> tuple[Buffer, ...]:
        found: dict[Buffer, None] = {}
        for e in self.expressions():
            for load in e.loads:
                found[load.buffer] = None
        for store in self.stores:
            for load in _index_loads(store.index):
                found[load.buffer] = None
        return tuple(found)

    def writes(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys(s.buffer for s in self.stores))

    @property
    def extent(self) -> Index:
        return product(d.extent for d in self.dims)


@dataclass(frozen=True, eq=False)
class Map(Node):
    """for dims: stores."""


@dataclass(frozen=True)
class Fold:
    """acc = fold(op, value) over the reduced loops. op: sum, prod, max, min, any, all, argmax, argmin; top: the
    largest number, or NaN where there is one, as the target likes; its reader finds NaN by other means."""

    acc: Acc
    op: str
    value: Expr


@dataclass(frozen=True, eq=False)
class Reduce(Node):
    """for dims: { fold `folds` over rdims; stores (which may use the folds' Acc) }."""

    rdims: tuple[Var, ...]
    folds: tuple[Fold, ...]

    def expressions(self) -> Iterator[Expr]:
        for f in self.folds:
            yield f.value
        yield from super().expressions()


@dataclass(frozen=True)
class Operand:
    """A strided operand of a structured node: buffer[offset + sum(stride * loop)]."""

    buffer: Buffer
    offset: Index
    strides: tuple[Index, ...]


@dataclass(frozen=True)
class Prologue:
    """What a product multiplies instead of its left operand as it lies in memory: `value` at (z, m, depth), rounded to
    `dtype`. In it `acc` is the operand's element."""

    depth: Var
    acc: Acc
    value: Expr
    dtype: str


@dataclass(frozen=True, eq=False)
class Gemm(Node):
    """acc[z, m, n] = sum over k of a[z, m, k] * b[z, k, n]; then stores. dims = (z..., m, n).

    a.strides = (z..., m, k) with k dense. b: panels [ceil(n/16)][k][16] when `packed`, else strides (z..., k, n).
    also: more products of a, each with its sum, whose operands lie like b: a gate beside its value.
    prologue: what becomes of a before it is multiplied.
    """

    k: Index
    a: Operand
    b: Operand
    packed: bool
    acc: Acc
    also: tuple[tuple[Operand, Acc], ...] = ()
    prologue: Prologue | None = None

    @property
    def a_dtype(self) -> str:
        """The type in which the left operand is multiplied."""
        return self.a.buffer.dtype if self.prologue is None else self.prologue.dtype

    def expressions(self) -> Iterator[Expr]:
        if self.prologue is not None:
            yield self.prologue.value
        yield from super().expressions()

    def reads(self) -> tuple[Buffer, ...]:
        others = (b.buffer for b, _ in self.also)
        return tuple(dict.fromkeys((self.a.buffer, self.b.buffer, *others, *super().reads())))


@dataclass(frozen=True)
class Window:
    """Geometry of a convolution of 2 or 3 dimensions, all in elements of the map.

    pad: zeros in front; those behind follow from the sizes. Below 0 where the first window starts inside the input.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def moved(self, zeros: Sequence[int]) -> Window:
        """The window with so many more zeros in front."""
        return replace(self, pad=tuple(p + z for p, z in zip(self.pad, zeros, strict=True)))

    def lifted(self) -> Window:
        """With one more dimension, of size 1, in front."""
        sides = {"kernel": 1, "stride": 1, "pad": 0, "dilation": 1}
        changed: dict[str, Any] = {name: (first, *getattr(self, name)) for name, first in sides.items()}
        return replace(self, **changed)


#: how a convolution is computed; grouped: for groups of few channels
Algorithm: TypeAlias = Literal["direct", "winograd2", "winograd3", "winograd4", "winograd2s2", "grouped"]
#: Winograd's convolutions of 3x3 or d x 3x3: outputs of a tile along each dimension, and the stride
WINOGRAD_FORMS: Mapping[str, tuple[int, int]] = {
    "winograd2": (2, 1), "winograd3": (3, 1), "winograd4": (4, 1), "winograd2s2": (2, 2)
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Conv(Node):
    """Convolution in channels-last: dims = (n, h, w, c of the output); x.strides = (n, h, w) with dense channels, or
    (n, h, w, c).

    In 3 dimensions there is a depth in front of h. in_shape = (batch, height, width, channels). w is packed: depthwise
    [taps][channels], else [groups][ceil(out/groups/16)][taps][in/groups][16], for Winograd
    [d][weights][ceil(out/16)][in][16], for GPUs [out][taps][in/groups].
    """

    x: Operand
    w: Buffer
    w_offset: Index
    in_shape: tuple[Index, ...]
    window: Window
    acc: Acc
    algorithm: Algorithm = "direct"

    @property
    def depthwise(self) -> bool:
        groups, flat = self.window.groups, len(self.dims) == 4
        return flat and groups > 1 and self.in_shape[3] == groups == self.dims[3].extent

    def reads(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys((self.x.buffer, self.w, *super().reads())))


@dataclass(frozen=True, eq=False)
class ConvChain(Node):
    """Convolutions one after the other, in bands of rows: expand (1x1), depthwise, project (1x1); one of the 1x1 may be
    missing. dims and stores are those of the last.

    links: in their order. locals: what each of them but the last makes for the next one; it never leaves the cache.
    """

    links: tuple[Conv, ...]
    locals: tuple[Buffer, ...]

    def expressions(self) -> Iterator[Expr]:
        for link in self.links:
            yield from link.expressions()

    def reads(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys(b for link in self.links for b in link.reads() if b not in self.locals))


@dataclass(frozen=True)
class Rest:
    """The rows of an operand from row `first` on, which lie elsewhere: what a call adds to a cache."""

    first: Index
    operand: Operand


@dataclass(frozen=True, eq=False)
class Attention(Node):
    """softmax(scale * q k^T + score) v, never writing the scores. dims = (b, h, m, d of the output).

    q.strides = (b, h, m), k, v the same over keys; the last dimension is dense. `score` changes a scaled score
    (an Acc named "score") at (b, h, m, key). The output is stored dense in its last dimension. Of k and v the last keys
    may lie elsewhere.
    """

    q: Operand
    k: Operand
    v: Operand
    out: Operand
    kv_heads: Index
    keys: Index
    head_size: Index
    scale: float
    causal: bool
    key: Var
    score: Expr | None
    k_rest: Rest | None = None
    v_rest: Rest | None = None

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All that is read, the rests behind q, k and v."""
        rests = (self.k_rest, self.v_rest)
        return (self.q, self.k, self.v, *(rest.operand for rest in rests if rest is not None))

    def expressions(self) -> Iterator[Expr]:
        if self.score is not None:
            yield self.score
        yield from super().expressions()

    def reads(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys((*(o.buffer for o in self.operands), *super().reads())))

    def writes(self) -> tuple[Buffer, ...]:
        return (self.out.buffer,)


@dataclass(frozen=True, eq=False)
class Nest(Node):
    """One loop over the rows (dims) around several stages, each a Map or a Reduce over the rest of its loops.

    dims are the rows; `stages` have dims = rows + inner loops; `locals` are buffers that only live within a row.
    phases: one for each stage, in order, where the rows are pipelined: a stage of phase p runs p rows behind (see
    schedule/pipelined.py); empty where each row is done before the next.
    """

    stages: tuple[Map | Reduce, ...]
    locals: tuple[Buffer, ...] = ()
    phases: tuple[int, ...] = ()

    def expressions(self) -> Iterator[Expr]:
        for stage in self.stages:
            yield from stage.expressions()

    def reads(self) -> tuple[Buffer, ...]:
        written = {b for s in self.stages for b in s.writes()}
        found = dict.fromkeys(b for s in self.stages for b in s.reads())
        return tuple(b for b in found if b not in written)

    def writes(self) -> tuple[Buffer, ...]:
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

    def reads(self) -> tuple[Buffer, ...]:
        found = dict.fromkeys(super().reads())
        found |= dict.fromkeys(load.buffer for u in self.updates for load in _index_loads(u.index))
        return tuple(b for b in found if b not in self.writes())

    def writes(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys(s.buffer for s in (*self.stores, *self.updates)))


@dataclass(frozen=True)
class Blocks:
    """A dense operand of a routine: block i begins at element i * stride."""

    buffer: Buffer
    stride: Index


@dataclass(frozen=True, eq=False)
class Routine(Node):
    """For each of `count` blocks: a C++ function of lower/routines.py on the block's inputs, outputs and sizes."""

    function: str
    count: Index
    inputs: tuple[Blocks, ...]
    outputs: tuple[Blocks, ...]
    sizes: tuple[Index, ...]

    def reads(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys(b.buffer for b in self.inputs))

    def writes(self) -> tuple[Buffer, ...]:
        return tuple(b.buffer for b in self.outputs)


@dataclass(frozen=True, eq=False)
class Assert(Node):
    """The call fails with `text` unless condition[0] (bool). What it guards stays behind it: no node moves across."""

    condition: Buffer
    text: str

    def reads(self) -> tuple[Buffer, ...]:
        return (self.condition,)


@dataclass(frozen=True, eq=False)
class Choose(Node):
    """if flag[0] { then } else { other }; both write all of `results`. Until the schedule is made: see Branches."""

    flag: Buffer
    then: tuple[AnyNode, ...]
    other: tuple[AnyNode, ...]
    results: tuple[Buffer, ...]

    @property
    def blocks(self) -> tuple[tuple[AnyNode, ...], ...]:
        return (self.then, self.other)

    def reads(self) -> tuple[Buffer, ...]:
        return _read_inside(self.blocks, self.flag)

    def writes(self) -> tuple[Buffer, ...]:
        return self.results


@dataclass(frozen=True, eq=False)
class Repeat(Node):
    """A loop. With `count`: count times { body }, where `turn` is the number of the time; else
    for ever { test; unless flag[0] stop; body }. `results` are the last values of what it hands on (kind carry).
    """

    test: tuple[AnyNode, ...]
    flag: Buffer | None
    turn: Size | None
    count: Index | None
    body: tuple[AnyNode, ...]
    results: tuple[Buffer, ...]

    @property
    def blocks(self) -> tuple[tuple[AnyNode, ...], ...]:
        return (self.test, self.body)

    def reads(self) -> tuple[Buffer, ...]:
        return _read_inside(self.blocks, None)

    def writes(self) -> tuple[Buffer, ...]:
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


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in its buffer; all in elements."""

    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    offset: Index


@dataclass(frozen=True)
class CppSource:
    """A C++ function of the user's (mycc/custom.h) and the translation unit that defines it."""

    function: str
    text: str


@dataclass(frozen=True)
class TritonSource:
    """A Triton kernel of the user's: its text from `def` on, its parameters, and its launch.

    arguments: of parameters that are no constants: ("tensor", position among outputs and inputs), ("size", value),
    ("int", value; of 32 bits where that is enough) or ("number", a float or a bool). head: what stands in front of the
    kernel: definitions that it needs.
    """

    function: str
    text: str
    parameters: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...]
    arguments: tuple[tuple[str, int | float | bool | Index], ...]
    grid: tuple[Index, ...]
    num_warps: int
    num_stages: int
    head: str = ""
    num_ctas: int = 1
    maxnreg: int | None = None


@dataclass(frozen=True, eq=False)
class Custom(Routine):
    """A kernel of the user's on whole tensors. layouts: of the outputs, then of the inputs."""

    source: CppSource | TritonSource
    layouts: tuple[Layout, ...]
    numbers: tuple[int | float | Index, ...]


AnyNode: TypeAlias = (
    Map | Reduce | Gemm | Conv | ConvChain | Attention | Nest | Scan | Scatter | Routine | Assert | Choose | Repeat
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
    """Of a scheduled program: kernels first..last run `count` times, `turn` being the number of the time; without a
    count as long as flag[0] holds after first..middle."""

    flag: Buffer | None
    turn: Size | None
    count: Index | None
    first: int
    middle: int
    last: int


@dataclass(frozen=True)
class Define:
    """A size that the run finds: element 0 of `buffer` (i64), read by the host when the first `after` nodes have run.

    A value outside of size.lo..size.hi fails the call; `where` is the place in the user's model.
    """

    size: Size
    buffer: Buffer
    after: int
    where: str = ""


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

    def with_nodes(self, nodes: tuple[AnyNode, ...]) -> Program:
        return replace(self, nodes=nodes)


def _index_loads(index: Index) -> Iterator[Load]:
    from .index import Indirect

    for atom in index.atoms():
        if isinstance(atom, Indirect):
            value = atom.value
            assert isinstance(value, Expr)
            yield from value.loads

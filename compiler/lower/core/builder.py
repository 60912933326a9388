"""The builder that lowerings write nodes with: buffers, maps, reductions, constants, the current origin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from ....runtime.errors import CompileError
from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES, from_torch
from ...ir.expr import (
    Acc,
    Call,
    Const,
    Expr,
    IndexValue,
    cast,
)
from ...ir.index import (
    ONE,
    ZERO,
    Index,
    Size,
    Var,
    as_index,
    of,
    product,
)
from ...ir.nodes import Map, Origin, Reduce, Reduction, Store
from ...ir.program import AnyNode, Define, Found
from ...machine.targets import Family
from ...tune.choices.choices import NO_CHOICES, Choices
from .constants import Constant, Dense, Layout
from .old_values import old_values_first
from .renamed import renamed_argument
from .shapes import Sizes
from .tensor import Shape, Strided, Tensor, dense_strides, is_dense, reshape

#: Winograd's convolution: F(2 x 2, 3 x 3) where it is faster, F(4 x 4, 3 x 3) on large maps, or none
WinogradChoice = Literal["f23", "f33", "f43", "off"]
NAMES = ("i", "j", "k", "l", "o", "p", "q", "r", "s", "t", "u", "v")


@dataclass
class Builder:
    """State of the lowering of one entry point; lowerings only add nodes to it."""

    sizes: Sizes
    family: Family = "cpu"  # of the targets that the program is for
    nodes: list[AnyNode] = field(default_factory=list)
    constants: dict[Constant, Buffer] = field(default_factory=dict)
    origin: Origin = field(default_factory=Origin)
    hint: str = "t"
    #: graph constants that a GEMM reads, with the layout they are stored in
    packed: dict[str, Layout] = field(default_factory=dict)
    winograd: WinogradChoice = "f33"
    choices: Choices = NO_CHOICES
    #: the random numbers' generator as the last draw left it; none before the first one
    generator: Tensor | None = None
    #: on a GPU: blocks of random words that torch's threads have drawn each
    drawn: Index = ZERO
    #: sizes that the run finds, in the order in which it does; `places` says for a message where the model asks for one
    defines: list[Define] = field(default_factory=list)
    #: the names of all of them, with those of branches and loops, and of those that are known where nodes are added now
    found: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    depth: int = 0  # of branches and loops around the nodes
    places: Mapping[str, str] = field(default_factory=dict)
    #: operators that may write into the memory of their first operand
    updates: dict[torch.fx.Node, None] = field(default_factory=dict)
    #: what they write to, where the values of the lowering have become copies
    bases: dict[torch.fx.Node, Tensor] = field(default_factory=dict)
    _latest: dict[Buffer, Buffer] = field(default_factory=dict)
    #: buffers that are a tensor with zeros around it: both, and how many zeros are in front of each dimension
    _padded: dict[Buffer, tuple[Tensor, Tensor, tuple[int, ...]]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    _vars: int = 0

    # names -----------------------------------------------------------------------------------------------------------
    def fresh(self, stem: str) -> str:
        """A name that no buffer has yet, made from `stem`."""
        n = self._counts.get(stem, 0)
        while (name := f"{stem}{n}" if n else stem) in self._names:  # atan, atan1, and the operator atan2
            n += 1
        self._names.add(name)
        self._counts[stem] = n + 1
        return name

    def var(self, extent: Index, name: str = "i") -> Var:
        """A loop variable from 0 up to `extent`, under a name of its own."""
        self._vars += 1
        return Var(f"{name}{self._vars}", extent)

    def loops(self, shape: Shape) -> tuple[tuple[Var, ...], list[Index]]:
        """A loop variable per dimension, and the indices (0 for dimensions of size 1)."""
        loops = [None if n == ONE else self.var(n, NAMES[min(d, len(NAMES) - 1)]) for d, n in enumerate(shape)]
        return tuple(v for v in loops if v is not None), [ZERO if v is None else of(v) for v in loops]

    # buffers ---------------------------------------------------------------------------------------------------------
    def temp(self, shape: Shape, dtype: str, order: Sequence[int] | None = None) -> Tensor:
        """A new dense arena tensor whose dimensions lie in memory in `order`."""
        buffer = Buffer(self.fresh(self.hint), dtype, product(shape), "temp")
        return Tensor(shape, dtype, Strided(buffer, dense_strides(shape, order)))

    def latest(self, root: Buffer) -> Buffer:
        """The last value in memory that is written in place."""
        return self._latest.get(root, root)

    def later(self, buffer: Buffer) -> Buffer:
        """The next value in that memory: what no node writes is as in the one before."""
        root = buffer.root
        made = Buffer(self.fresh(root.name), root.dtype, root.size, root.kind, root.slot, root)
        self._latest[root] = made
        return made

    def latest_view(self, t: Tensor) -> Tensor:
        """The same view of the last value in the tensor's memory."""
        return t if t.strided is None else replace(t, strided=replace(t.strided, buffer=self.latest(t.strided.buffer)))

    def later_view(self, t: Tensor) -> Tensor:
        """The same view of the next value in the tensor's memory, for nodes to write."""
        assert t.strided is not None
        return replace(t, strided=replace(t.strided, buffer=self.later(t.strided.buffer)))

    def constant(self, target: str, tensor: torch.Tensor, layout: Layout | None = None) -> Buffer:
        """The buffer of a constant in a layout (None: dense), the same one each time it is asked for."""
        key = Constant(target, tensor, layout or Dense())
        if key not in self.constants:
            self.constants[key] = Buffer(
                self.fresh("w_" + target.replace(".", "_")), from_torch(tensor.dtype), as_index(key.elements), "const"
            )
        return self.constants[key]

    def derived(self, target: str, tensor: torch.Tensor) -> Buffer:
        """The buffer of a dense constant made from others: those of a name are one where their values are equal."""
        for c, buffer in self.constants.items():
            alike = c.target == target and isinstance(c.layout, Dense) and c.tensor.dtype == tensor.dtype
            if alike and torch.equal(c.tensor, tensor):
                return buffer
        return self.constant(target, tensor)

    # sizes that the run finds --------------------------------------------------------------------------------------
    def finds(self, value: int | torch.SymInt) -> Size | None:
        """The size symbol that `value` is and that the run has yet to find; None for any other size."""
        size = self.sizes.own(value)
        return None if size is None or size.name not in self.places else size

    def define(self, value: int | torch.SymInt, t: Tensor) -> Index:
        """The size `value`, which the host reads from a tensor of one element where no node before has found it."""
        size = self.finds(value)
        if size is not None and size.name not in self.known:
            self._define(size, t)
        return self.sizes.index(value)

    def _define(self, size: Size, t: Tensor) -> None:
        if size.name in self.found:
            raise CompileError(
                f"the size {size.name} is found in two branches or loops", details=[self.places[size.name]]
            )
        here = t.dtype == "i64" and is_dense(t) and t.strided is not None and t.strided.buffer.kind != "const"
        line = self.realize(t if here else self.map((), "i64", t.at))  # the host reads no weights
        assert line.strided is not None
        buffer, where = line.strided.buffer, self.places[size.name]
        if self.depth:
            self.nodes.append(Found((), (), self.origin, size, buffer, where))
        else:
            self.defines.append(Define(size, buffer, len(self.nodes), where))
        self.found.append(size.name)
        self.known.append(size.name)

    # nodes -----------------------------------------------------------------------------------------------------------
    def add(self, node: AnyNode) -> None:
        """Appends a node; values that it overwrites while it reads them are copied before."""
        self.nodes.extend(old_values_first(node, self.fresh))

    def map(
        self,
        shape: Shape,
        dtype: str,
        value: Callable[[list[Index]], Expr],
        order: Sequence[int] | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """A new tensor (or `out`) with out[i...] = value(i...), converted to its dtype."""
        out = out or self.temp(shape, dtype, order)
        assert out.strided is not None
        order = out.memory_order()
        loops: list[Var | None] = [None] * len(shape)
        for d in order:
            if shape[d] != ONE:
                loops[d] = self.var(shape[d], NAMES[min(d, len(NAMES) - 1)])
        indices = [ZERO if v is None else of(v) for v in loops]
        dims = tuple(v for d in order if (v := loops[d]) is not None)
        store = Store(out.strided.buffer, out.place(indices), cast(value(indices), dtype))
        self.add(Map(dims, (store,), self.origin))
        return out

    @renamed_argument("folds", "reductions")
    def reduce(
        self,
        source: Shape,
        axes: Sequence[int],
        reductions: Sequence[tuple[str, Callable[[list[Index]], Expr]]],
        finish: Sequence[tuple[str, Callable[[list[Expr]], Expr]]],
        keepdim: bool = False,
        order: Sequence[int] | None = None,
        into: Tensor | None = None,
    ) -> list[Tensor]:
        """Reduces over `axes` of a tensor of shape `source`; one output tensor per row of `finish` (dtype, value).

        The outputs keep the memory order `order` of the source's dimensions; the only one may be `into`, which has a
        dimension of 1 for every axis.
        """
        order = order or range(len(source))
        loops: list[Var | None] = [None] * len(source)
        for d in order:
            if source[d] != ONE:
                loops[d] = self.var(source[d], NAMES[min(d, len(NAMES) - 1)])
        indices = [ZERO if v is None else of(v) for v in loops]
        dims = tuple(v for d in order if d not in axes and (v := loops[d]) is not None)
        rdims = tuple(v for d in order if d in axes and (v := loops[d]) is not None)
        accs, rows = [], []
        for op, value in reductions:
            e = value(indices)
            dtype = "i64" if op in ("argmax", "argmin") else e.dtype
            acc = Acc(self.fresh("acc"), dtype)
            accs.append(acc)
            rows.append(Reduction(acc, op, e))
        shape = tuple(ONE if d in axes else n for d, n in enumerate(source))
        outs, stores = [], []
        for dtype, result in finish:
            out = into or self.temp(shape, dtype, order)
            assert out.strided is not None
            kept = [ZERO if d in axes else i for d, i in enumerate(indices)]
            outs.append(out)
            stores.append(Store(out.strided.buffer, out.place(kept), cast(result(list(accs)), dtype)))
        self.add(Reduce(dims, tuple(stores), self.origin, rdims, tuple(rows)))
        if keepdim:
            return outs
        return [_drop(o, axes) for o in outs]

    # padding ---------------------------------------------------------------------------------------------------------
    def remember_padding(self, out: Tensor, x: Tensor, front: Sequence[Index]) -> None:
        """`out` is x with zeros around it, for readers that can do without them."""
        sizes = [n.constant for n in front]
        outside = all(n.nonnegative() for n in (o - f - i for o, f, i in zip(out.shape, front, x.shape, strict=True)))
        if out.strided is not None and outside and all(n is not None and n >= 0 for n in sizes):
            self._padded[out.strided.buffer] = (out, x, tuple(n or 0 for n in sizes))

    def unpadded(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """x without zeros around its spatial dimensions ([n, c, ...]), and how many were in front of each dimension."""
        none = (0,) * x.rank
        if x.strided is None or x.strided.buffer not in self._padded:
            return x, none
        out, inner, front = self._padded[x.strided.buffer]
        if out != x or inner.shape[:2] != x.shape[:2]:
            return x, none
        return inner, front

    # tensors ---------------------------------------------------------------------------------------------------------
    def realize(self, t: Tensor, order: Sequence[int] | None = None) -> Tensor:
        """The tensor in memory; in `order` when one is given and it does not lie so already."""
        if t.strided is not None:
            if order is None:
                return t
            want = dense_strides(t.shape, order)
            if all(a == b or n == ONE for a, b, n in zip(t.strided.strides, want, t.shape, strict=True)):
                return t
        return self.copy(t, order)

    def dense(self, t: Tensor) -> Tensor:
        """The tensor row-major without holes."""
        return t if is_dense(t) else self.copy(t, tuple(range(t.rank)))

    def copy(self, t: Tensor, order: Sequence[int] | None = None) -> Tensor:
        """A copy in another memory order; in reports it is a copy, not the operator that needs it."""
        origin, self.origin = self.origin, replace(self.origin, ops=("aten.copy",))
        out = self.map(t.shape, t.dtype, t.at, order)
        self.origin = origin
        return out

    def reshape(self, t: Tensor, shape: Shape, order: Sequence[int] | None = None) -> Tensor:
        """A view when the strides allow it, else of a copy: row-major, or in an order that allows it."""
        view = reshape(t, shape)
        if view is None:
            view = reshape(self.dense(t) if order is None else self.realize(t, order), shape)
        assert view is not None
        return view


def _drop(t: Tensor, axes: Sequence[int]) -> Tensor:
    assert t.strided is not None
    keep = [d for d in range(t.rank) if d not in axes]
    strides = tuple(t.strided.strides[d] for d in keep)
    return Tensor(tuple(t.shape[d] for d in keep), t.dtype, Strided(t.strided.buffer, strides, t.strided.offset))


# shorthand for expressions -------------------------------------------------------------------------------------------
def call(op: str, *args: Expr) -> Expr:
    """An operator whose result has its operands' type."""
    return Call(op, args, args[-1].dtype)


def compare(op: str, *args: Expr) -> Expr:
    """An operator whose result is a bool."""
    return Call(op, args, "bool")


def quotient(a: Expr, b: Expr) -> Expr:
    """a / b; of integers what C makes of it."""
    return call("div" if DTYPES[a.dtype].kind == "f" else "trunc_div", a, b)


def number(value: float | int | bool, dtype: str) -> Expr:
    """A Python number as a constant of element type `dtype`. A tensor among the arguments is refused (CompileError)."""
    if isinstance(value, Tensor):
        value = float(value)  # refuses it
    return cast(
        Const(value, "f64" if isinstance(value, float) else "bool" if isinstance(value, bool) else "i64"), dtype
    )


def size_value(size: Index, dtype: str) -> Expr:
    """A size as a number of type dtype."""
    if size.constant is not None:
        return number(size.constant, dtype)
    return cast(IndexValue(size), dtype)


def where(condition: Expr, a: Expr, b: Expr) -> Expr:
    """condition ? a : b, element by element; condition is bool, a and b have one element type."""
    return Call("where", (condition, a, b), a.dtype)

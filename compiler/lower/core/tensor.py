"""Values during lowering: strided views of buffers, and generated tensors that need no memory (full, arange)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....runtime.errors import CompileError
from ...ir.buffers import Buffer, Layout
from ...ir.expr import Expr, Load
from ...ir.index import ONE, ZERO, Index, as_index, product
from ...ir.routines import Blocks

Shape = tuple[Index, ...]


def channels_last(rank: int) -> tuple[int, ...]:
    """Memory order of an [n, c, ...] tensor."""
    return (0, *range(2, rank), 1)


@dataclass(frozen=True)
class Strided:
    """buffer[offset + sum(stride * index)], in elements."""

    buffer: Buffer
    strides: Shape
    offset: Index = ZERO


@dataclass(frozen=True)
class Tensor:
    """A tensor value: its shape, element type and how to read an element.

    `strided` when it lies in memory, else `make(indices)` gives the expression of an element.
    """

    shape: Shape
    dtype: str
    strided: Strided | None = None
    make: Callable[[Sequence[Index]], Expr] | None = None

    @property
    def rank(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    def __float__(self) -> float:
        raise CompileError("a number that the run finds is an argument that has to be known when it is compiled")

    __int__ = __float__

    def at(self, indices: Sequence[Index]) -> Expr:
        """The expression of element `indices`."""
        if self.strided is None:
            assert self.make is not None
            return self.make(indices)
        return Load(self.strided.buffer, self.place(indices))

    def place(self, indices: Sequence[Index]) -> Index:
        """Where element `indices` of a tensor in memory lies in its buffer."""
        assert self.strided is not None
        index = self.strided.offset
        for i, stride in zip(indices, self.strided.strides, strict=True):
            index = index + i * stride
        return index

    def at_broadcast(self, indices: Sequence[Index]) -> Expr:
        """The element that `indices` of a tensor of higher rank reads after torch's broadcasting."""
        own = indices[len(indices) - self.rank :]
        return self.at([ZERO if n == ONE else i for i, n in zip(own, self.shape, strict=True)])

    def memory_order(self) -> tuple[int, ...]:
        """Dimensions from the slowest to the fastest in memory; row-major for generated tensors."""
        if self.strided is None:
            return tuple(range(self.rank))
        strides = self.strided.strides
        order = list(range(self.rank))
        for i in range(1, self.rank):  # insertion sort: strides are only partly ordered (symbols, broadcasts)
            j = i
            while j > 0 and _faster(strides[order[j - 1]], strides[order[j]], self.shape[order[j - 1]]):
                order[j - 1], order[j] = order[j], order[j - 1]
                j -= 1
        return tuple(order)


def _faster(a: Index, b: Index, extent_a: Index) -> bool:
    """a is proved smaller than b: it belongs behind b. Broadcast (0) and size-1 dimensions stay in place."""
    if not a.terms or not b.terms or extent_a == ONE:
        return False
    return (b - a - 1).nonnegative()


def dense_strides(shape: Shape, order: Sequence[int] | None = None) -> Shape:
    """Strides of a dense tensor whose dimensions lie in memory in `order` (slowest first)."""
    strides: list[Index] = [ONE] * len(shape)
    step = ONE
    for d in reversed(order if order is not None else range(len(shape))):
        strides[d] = step
        step = step * shape[d]
    return tuple(strides)


def is_dense(t: Tensor) -> bool:
    """Row-major without holes, from the start of its buffer."""
    if t.strided is None:
        return False
    want = dense_strides(t.shape)
    same = all(a == b or n == ONE for a, b, n in zip(t.strided.strides, want, t.shape, strict=True))
    return same and t.strided.offset == ZERO and t.strided.buffer.size == product(t.shape)


# views ---------------------------------------------------------------------------------------------------------------
def permute(t: Tensor, order: Sequence[int]) -> Tensor:
    """The view whose dimension d is dimension order[d] of t."""
    shape = tuple(t.shape[d] for d in order)
    if t.strided is not None:
        s = t.strided
        return Tensor(shape, t.dtype, Strided(s.buffer, tuple(s.strides[d] for d in order), s.offset))
    back = [list(order).index(d) for d in range(t.rank)]
    return Tensor(shape, t.dtype, make=lambda i: t.at([i[b] for b in back]))


def expand(t: Tensor, shape: Shape) -> Tensor:
    """Broadcasts to `shape`; new dimensions in front."""
    extra = len(shape) - t.rank
    if t.strided is not None:
        strides = [ZERO] * extra
        for n, own, stride in zip(shape[extra:], t.shape, t.strided.strides, strict=True):
            strides.append(ZERO if own == ONE and n != ONE else stride)
        return Tensor(shape, t.dtype, Strided(t.strided.buffer, tuple(strides), t.strided.offset))
    return Tensor(shape, t.dtype, make=lambda i: t.at_broadcast(i))


def slice_dim(t: Tensor, dim: int, start: Index, length: Index, step: int = 1) -> Tensor:
    """The view of `length` elements of a dimension: start, start + step, ... The caller has checked the bounds."""
    shape = (*t.shape[:dim], length, *t.shape[dim + 1 :])
    if t.strided is not None:
        s = t.strided
        strides = (*s.strides[:dim], s.strides[dim] * step, *s.strides[dim + 1 :])
        return Tensor(shape, t.dtype, Strided(s.buffer, strides, s.offset + s.strides[dim] * start))

    def make(i: Sequence[Index]) -> Expr:
        return t.at([*i[:dim], i[dim] * step + start, *i[dim + 1 :]])

    return Tensor(shape, t.dtype, make=make)


def select(t: Tensor, dim: int, index: Index) -> Tensor:
    """The view at `index` of one dimension, which is dropped."""
    return squeeze(slice_dim(t, dim, index, ONE), dim)


def squeeze(t: Tensor, dim: int) -> Tensor:
    """Drops a dimension of size 1."""
    shape = t.shape[:dim] + t.shape[dim + 1 :]
    if t.strided is not None:
        s = t.strided
        return Tensor(shape, t.dtype, Strided(s.buffer, s.strides[:dim] + s.strides[dim + 1 :], s.offset))
    return Tensor(shape, t.dtype, make=lambda i: t.at([*i[:dim], ZERO, *i[dim:]]))


def unsqueeze(t: Tensor, dim: int) -> Tensor:
    """The view with a dimension of size 1 in front of dimension `dim`."""
    shape = (*t.shape[:dim], ONE, *t.shape[dim:])
    if t.strided is not None:
        s = t.strided
        return Tensor(shape, t.dtype, Strided(s.buffer, (*s.strides[:dim], ZERO, *s.strides[dim:]), s.offset))
    return Tensor(shape, t.dtype, make=lambda i: t.at([*i[:dim], *i[dim + 1 :]]))


def flip(t: Tensor, dims: Sequence[int]) -> Tensor:
    """The tensor read backwards along `dims`: a view, which copies nothing."""

    def make(i: Sequence[Index]) -> Expr:
        return t.at([t.shape[d] - 1 - x if d in dims else x for d, x in enumerate(i)])

    return Tensor(t.shape, t.dtype, make=make)


def linear_index(indices: Sequence[Index], shape: Shape) -> Index:
    """The place of an element in a dense, row-major tensor of `shape`, in elements."""
    flat = ZERO
    for i, stride in zip(indices, dense_strides(shape), strict=True):
        flat = flat + i * stride
    return flat


def split_index(flat: Index, shape: Shape) -> list[Index]:
    """The indices of a flat row-major position."""
    found = []
    for d, (n, stride) in enumerate(zip(shape, dense_strides(shape), strict=True)):
        place = flat // stride if stride != ZERO else flat  # of an empty shape, which no loop ever asks for
        found.append(place % n if d and n != ZERO else place)
    return found


def reshape(t: Tensor, shape: Shape) -> Tensor | None:
    """A view with another shape of the same number of elements; None when the strides do not allow it."""
    if t.strided is None:
        return Tensor(shape, t.dtype, make=lambda i: t.at(split_index(linear_index(i, shape), t.shape)))
    strides = _view_strides(t.shape, t.strided.strides, shape)
    return None if strides is None else Tensor(shape, t.dtype, Strided(t.strided.buffer, strides, t.strided.offset))


def _view_strides(old: Shape, strides: Shape, new: Shape) -> Shape | None:
    """Strides of the view, found by matching groups of old dimensions with groups of new ones from the right."""
    if ZERO in old:  # no element at all: any strides do
        return dense_strides(new)
    groups = _merge(old, strides)
    result: list[Index] = [ZERO] * len(new)
    d = len(new) - 1
    for extent, stride in reversed(groups):
        left, step = extent, stride
        while d >= 0 and left != ONE:
            n = new[d]
            if n == ONE:
                d -= 1
                continue
            quotient = _exact(left, n)
            if quotient is None:
                return None
            result[d], step, left, d = step, step * n, quotient, d - 1
        if left != ONE:
            return None
    if any(new[i] != ONE for i in range(d + 1)):
        return None
    return tuple(result)


def channels_last_order(t: Tensor, shape: Shape) -> tuple[int, ...] | None:
    """The order of t's dimensions in memory in which `shape` is a view of them whose dimension 1 is the fastest.

        x [n, 2, c, h, w], of an image in channels-last memory, as [n, 2 * c, h, w]: n, h, w, 2, c

    None for shapes that are no images, and where t's fastest dimension does not belong to the channels.
    """
    if len(shape) < 4:
        return None
    groups = _matching(t.shape, shape)
    place = {d: i for i, d in enumerate(t.memory_order())}
    if groups is None or not any(new == [1] and t.memory_order()[-1] in old for old, new in groups):
        return None
    olds = sorted((old for old, _ in groups if old), key=lambda old: max(place[d] for d in old))
    return tuple(d for old in olds for d in old)


def _matching(a: Shape, b: Shape) -> list[tuple[list[int], list[int]]] | None:
    """The fewest dimensions of a beside as many elements of b, from the right; None where sizes do not tell."""
    groups: list[tuple[list[int], list[int]]] = []
    i, j = len(a), len(b)
    while i > 0 and j > 0:
        i, j = i - 1, j - 1
        left, right = a[i], b[j]
        old, new = [i], [j]
        while left != right:
            if i > 0 and _exact(right, left) is not None:
                i, old = i - 1, [i - 1, *old]
                left = left * a[i]
            elif j > 0 and _exact(left, right) is not None:
                j, new = j - 1, [j - 1, *new]
                right = right * b[j]
            else:
                return None
        groups.insert(0, (old, new))
    if any(n != ONE for n in (*a[:i], *b[:j])):
        return None
    return [(list(range(i)), list(range(j))), *groups]


def _merge(shape: Shape, strides: Shape) -> list[tuple[Index, Index]]:
    """Adjacent dimensions that lie in memory like one; sizes of 1 dropped."""
    groups: list[tuple[Index, Index]] = []
    for n, stride in zip(shape, strides, strict=True):
        if n == ONE:
            continue
        if groups and groups[-1][1] == stride * n:
            groups[-1] = (groups[-1][0] * n, stride)
        else:
            groups.append((n, stride))
    return groups


def _exact(a: Index, b: Index) -> Index | None:
    from ...ir.index import exact_div

    return exact_div(a, b)


def shape_of(values: Sequence[int | Index]) -> Shape:
    return tuple(as_index(v) for v in values)


def layout_of(t: Tensor) -> Layout:
    """How a tensor in memory lies there, for a kernel of the user's own."""
    assert t.strided is not None
    return Layout(t.shape, t.strided.strides, t.strided.offset)


def blocks_of(t: Tensor) -> Blocks:
    """The memory of a tensor that lies in memory, all of it."""
    assert t.strided is not None
    return Blocks(t.strided.buffer, product(t.shape))

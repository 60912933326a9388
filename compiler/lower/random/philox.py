"""Random numbers on a GPU: those of torch's CUDA generator (Philox 4x32-10; Salmon et al., "Parallel random numbers: as
easy as 1, 2, 3", 2011), converted to uniform and normal ones as cuRAND does.

torch fills a tensor with T threads, as many blocks of 256 as the device holds at a time or fewer. Thread t has a line
of blocks of four words; its block k makes the numbers of the r elements t + T (r k + u), u < r:

    block = philox(key = seed, counter = (blocks of all operators before + k, t))        element e = t + T (r k + u)

so that an element's number follows from the seed, the operators before and the device alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Expr, IndexValue, cast
from ...ir.index import (
    ONE,
    ZERO,
    Index,
    as_index,
    maximum,
    minimum,
    of,
    product,
)
from ...ir.random import BLOCKS, CALL
from ..core.builder import Builder, call, compare, number, where
from ..core.tensor import Shape, Tensor, linear_index

THREADS = 256  # of a block
#: blocks of words that torch counts for a tensor of probabilities: its ten words, rounded up
OF_PROBABILITIES = 3


@dataclass(frozen=True)
class Place:
    """Where an element's number is: the thread, the block of its line, the number of those that the block makes."""

    thread: Index
    block: Index
    slot: Index


class Draw:
    """The numbers of one operator, of `shape`, which torch draws in the memory order `order`.

    wide: they have 64 bits (float64, ranges from 2^28 on), so that a block makes two.
    """

    def __init__(
        self, builder: Builder, shape: Shape, wide: bool = False, order: Sequence[int] | None = None
    ) -> None:  # fmt: skip
        self.shape, self.order, self.wide = shape, order or range(len(shape)), wide
        self.first, self.before = builder.drawn, builder.generator
        self.count = product(shape)
        self.threads = minimum(of(BLOCKS), _ceiling(maximum(self.count, ONE), as_index(THREADS))) * THREADS
        builder.drawn = builder.drawn + self._blocks()

    def _blocks(self) -> Index:
        """Of a thread."""
        return _ceiling(self.count, self.threads * self._each)

    @property
    def _each(self) -> int:
        return 2 if self.wide else 4

    def element(self, i: Sequence[Index]) -> Index:
        """The place in memory."""
        return linear_index([i[d] for d in self.order], tuple(self.shape[d] for d in self.order))

    def place(self, i: Sequence[Index]) -> Place:
        at = self.element(i)
        turn = at // self.threads
        return Place(at % self.threads, self.first + turn // as_index(self._each), turn % as_index(self._each))

    def _call(self, op: str, dtype: str, place: Place) -> Expr:
        block: Expr = IndexValue(place.block)
        if self.before is not None:
            block = call("add", self.before.at([]), block)
        where_ = (block, IndexValue(place.thread), IndexValue(place.slot))
        return Call(op, (IndexValue(of(CALL)), *where_), dtype)

    def word(self, i: Sequence[Index]) -> Expr:
        """32 random bits, or 64, which may be below zero."""
        place = self.place(i)
        if not self.wide:
            return self._call("random_word", "i64", place)
        high, low = (
            self._call("random_word", "i64", Place(place.thread, place.block, place.slot * 2 + k)) for k in (0, 1)
        )
        return call("bit_or", call("shift_left", high, number(32, "i64")), low)

    def unit(self, i: Sequence[Index]) -> Expr:
        """In (0, 1]; float32, float64 when `wide`."""
        if self.wide:
            return self._call("random_unit", "f64", self.place(i))
        scaled = call("mul", cast(self.word(i), "f32"), number(2.0**-32, "f32"))
        return call("add", scaled, number(2.0**-33, "f32"))

    def normal(self, i: Sequence[Index]) -> Expr:
        """Of mean 0 and deviation 1."""
        op, dtype = ("random_normal_wide", "f64") if self.wide else ("random_normal", "f32")
        return self._call(op, dtype, self.place(i))


class Kept(Draw):
    """Those of dropout: a thread takes as many neighbouring elements at a time as 16 bytes hold."""

    def __init__(self, builder: Builder, shape: Shape, dtype: str, order: Sequence[int] | None) -> None:
        super().__init__(builder, shape, order=order)
        self.together = _together(self.count, 16 // DTYPES[dtype].size)

    def place(self, i: Sequence[Index]) -> Place:
        if self.together == 1:
            return super().place(i)
        at, together = self.element(i), as_index(self.together)
        group, slot = at // together, at % together
        blocks = -(-self.together // 4)  # that a group takes
        turn = group // self.threads
        four = as_index(4)
        return Place(group % self.threads, self.first + turn * blocks + slot // four, slot % four)


class OfProbabilities(Draw):
    """Those of a tensor of probabilities: a thread for each four elements."""

    def _blocks(self) -> Index:
        return as_index(OF_PROBABILITIES) * minimum(self.count, ONE)

    def place(self, i: Sequence[Index]) -> Place:
        at, four = self.element(i), as_index(4)
        return Place(at // four, self.first, at % four)


def position(builder: Builder) -> Tensor:
    """How many blocks a thread has drawn, as a number in memory, from which draws behind it count: what bodies of
    branches and loops hand on."""
    drawn, before = IndexValue(builder.drawn), builder.generator
    made = builder.map((), "i64", lambda _: drawn if before is None else call("add", before.at([]), drawn))
    builder.generator, builder.drawn = made, ZERO
    return made


def _ceiling(n: Index, divisor: Index) -> Index:
    return (n + divisor - 1) // divisor


def _together(n: Index, most: int) -> int:
    """The largest power of two up to `most` that divides n at all sizes; without one, 1."""
    while most > 1 and any(c % most for c in n.terms.values()):
        most //= 2
    return most


# distributions -------------------------------------------------------------------------------------------------------
#: an element's number
Value = Callable[["Draw", list[Index]], Expr]


def uniform(dtype: str, low: float, high: float) -> Value:
    """In [low, high): what is high once it is rounded becomes low."""

    def value(draw: Draw, i: list[Index]) -> Expr:
        u = draw.unit(i)
        start, end = (cast(number(x, dtype), u.dtype) for x in (low, high))
        drawn = u if (low, high) == (0.0, 1.0) else call("add", call("mul", u, call("sub", end, start)), start)
        rounded = cast(cast(drawn, dtype), u.dtype)
        return where(compare("eq", rounded, end), start, rounded)

    return value


def exponential(rate: float) -> Value:
    """-log(u) / rate, and above 0 for every u."""

    def value(draw: Draw, i: list[Index]) -> Expr:
        u = draw.unit(i)
        least = number(-(2.0**-53 if draw.wide else 2.0**-24), u.dtype)
        near = compare("ge", u, call("add", number(1.0, u.dtype), least))
        scale = call("div", number(-1.0, u.dtype), number(rate, u.dtype))
        return call("mul", scale, where(near, least, _log(u)))

    return value


def cauchy(median: float, sigma: float) -> Value:
    def value(draw: Draw, i: list[Index]) -> Expr:
        u = draw.unit(i)
        if not draw.wide:
            least = 2.0**-23
            u = call("maximum", call("minimum", u, number(1.0 - least, "f32")), number(least, "f32"))
        angle = call("mul", number(3.141592653589793, u.dtype), call("sub", u, number(0.5, u.dtype)))
        tangent = Call("tan" if draw.wide else "fast_tan", (angle,), u.dtype)
        return call("add", number(median, u.dtype), call("mul", number(sigma, u.dtype), tangent))

    return value


def geometric(p: float) -> Value:
    """How many trials up to the first success: ceil(log(u) / log(1 - p))."""

    def value(draw: Draw, i: list[Index]) -> Expr:
        u = draw.unit(i)
        failure = call("sub", number(1.0, u.dtype), number(p, u.dtype))
        return call("ceil", call("div", _log(u), _log(failure)))

    return value


def _log(u: Expr) -> Expr:
    return Call("log" if u.dtype == "f64" else "fast_log", (u,), u.dtype)

"""Random numbers on a CPU: torch's own, from the Mersenne Twister of the call's seed.

The generator is a tensor that each draw takes and gives back changed, so that draws follow one another in the order of
the graph, whatever the number of threads. Numbers that an element needs are drawn as words; what is made of them is
arithmetic like any other, and runs in parallel.

    g1 = seed(call)                    words, g2 = words(g1)                 u[i] = (words[i] & 0xffffff) * 2^-24
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.expr import Expr, cast
from ...ir.index import Index, as_index, of, product
from ...ir.random import CALL
from ..core.builder import Builder, call, compare, number
from ..core.routines import call_routine
from ..core.tensor import Shape, Tensor, permute, reshape

STATE = 632  # words of a generator: kMersenneState of kernels/random/mersenne.h
#: from this range on whole numbers are drawn from 64 bits
WIDE_RANGE = 1 << 28
#: a dense tensor of so many numbers is filled with normal ones in blocks
BLOCK = 16


def generator(builder: Builder) -> Tensor:
    """What the next draw takes: of the call's seed, or as the last draw left it."""
    if builder.generator is None:
        outputs: list[tuple[Shape, str]] = [((as_index(STATE),), "i32")]
        (builder.generator,) = call_routine(builder, "mersenne_seed", (), [], outputs, [of(CALL)])
    return builder.generator


def draw(builder: Builder, routine: str, n: Index, dtype: str, sizes: Sequence[Index | int]) -> Tensor:
    """n numbers of a routine, which also changes the generator."""
    outputs: list[tuple[Shape, str]] = [((n,), dtype), ((as_index(STATE),), "i32")]
    values, builder.generator = call_routine(builder, routine, (), [(generator(builder), 1)], outputs, sizes)
    return values


def words(builder: Builder, n: Index, wide: bool) -> Tensor:
    """n words of 32 bits, or of 64."""
    return draw(builder, "mersenne_words", n, "i64", [n, int(wide)])


def fraction(word: Expr, wide: bool) -> Expr:
    """A number in [0, 1) of the lowest bits of a word: 24 of them, or 53; in float64."""
    bits = 53 if wide else 24
    masked = call("bit_and", word, number((1 << bits) - 1, "i64"))
    return call("mul", cast(masked, "f64"), number(2.0**-bits, "f64"))


def below(word: Expr, limit: int, wide: bool) -> Expr:
    """A word modulo a limit, as torch takes it of an unsigned one."""
    modulus = number(limit, "i64")
    if not wide:
        return call("remainder", word, modulus)
    # 2^64 = q * limit + r: a negative word w stands for w + 2^64
    low = call("remainder", word, modulus)
    shift = number((1 << 64) % limit, "i64")
    negative = cast(compare("lt", word, number(0, "i64")), "i64")
    return call("remainder", call("add", low, call("mul", negative, shift)), modulus)


def in_memory_order(shape: Shape, order: Sequence[int], flat: Tensor) -> Tensor:
    """A line of numbers as a tensor whose elements lie in memory in `order`: torch fills memory, not indices."""
    ordered = tuple(shape[d] for d in order)
    t = reshape(flat, ordered)
    assert t is not None
    return permute(t, [list(order).index(d) for d in range(len(shape))])


def drawn(
    builder: Builder,
    shape: Shape,
    dtype: str,
    wide: bool,
    value: Callable[[list[Index], Expr], Expr],
    order: Sequence[int] | None = None,
) -> Tensor:
    """A tensor with an element of value(i, word) for a word of its own each."""
    source = in_memory_order(shape, order or range(len(shape)), words(builder, product(shape), wide))
    return builder.map(shape, dtype, lambda i: value(i, source.at(i)), order)


def normals(builder: Builder, shape: Shape, wide: bool, order: Sequence[int] | None = None) -> Tensor:
    """Normal numbers of mean 0 and deviation 1 as torch fills a dense tensor with them: float64 when `wide`."""
    n = product(shape)
    values = draw(builder, "mersenne_fill", n, "f64", [n, int(wide)])
    return in_memory_order(shape, order or range(len(shape)), values)


def normals_one_by_one(builder: Builder, shape: Shape, order: Sequence[int] | None = None) -> Tensor:
    """Normal numbers as torch draws them for single elements."""
    n = product(shape)
    return in_memory_order(shape, order or range(len(shape)), draw(builder, "mersenne_normals", n, "f64", [n]))

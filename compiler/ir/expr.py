"""Scalar expressions: what one element of a tensor is computed from.

    where(lt(h0[m*768 + n], 0.0f32), 0.0f32, h0[m*768 + n])

Frozen and hashable, so that equal expressions are found by value. Operators are rows of the table in ops.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from .buffers import Buffer
from .dtypes import DTYPES, held
from .index import Atom, Index, Indirect, Var
from .once import once


class Expr:
    """Base of the scalar expressions; every one has a `dtype` (of the element, see dtypes.py)."""

    dtype: str

    @property
    def children(self) -> tuple[Expr, ...]:
        """The expressions that it is made of."""
        return ()

    def walk(self) -> Iterator[Expr]:
        """This expression and all below it, those inside indirect indices too; each distinct one once."""
        seen: set[Expr] = set()
        stack: list[Expr] = [self]
        while stack:
            e = stack.pop()
            if e in seen:
                continue
            seen.add(e)
            yield e
            stack.extend(e.children)

    @once
    def loads(self) -> tuple[Load, ...]:
        """Every load in it, in the order of `walk`."""
        return tuple(e for e in self.walk() if isinstance(e, Load))

    def vars(self) -> set[Var]:
        """The loop variables in it, those in indices included."""
        found: set[Var] = set()
        for e in self.walk():
            found |= e.own_vars()
        return found

    def own_vars(self) -> set[Var]:
        """The loop variables of this expression without its children."""
        return set()


@dataclass(frozen=True, eq=False)
class Const(Expr):
    """A number (or bool) known at compile time."""

    value: float | int | bool
    dtype: str

    @once
    def _key(self) -> tuple:
        return (repr(self.value), self.dtype)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self._key == other._key

    def __str__(self) -> str:
        return f"{self.value}" if self.dtype in ("f32", "i64", "bool") else f"{self.value}{self.dtype}"


class _Hashed(Expr):
    """Caches the hash: expressions are deep and are looked up often."""

    @once
    def _hash(self) -> int:
        return hash((type(self).__name__, *self._key()))

    def _key(self) -> tuple:
        raise TypeError

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, _Hashed) or type(self) is not type(other):
            return False
        return self._hash == other._hash and self._key() == other._key()


class _Indexed(_Hashed):
    """At an index, which may be read from memory in its turn."""

    index: Index

    @property
    def children(self) -> tuple[Expr, ...]:
        return tuple(a.value for a in self.index.atoms() if isinstance(a, Indirect))  # type: ignore[misc]

    def own_vars(self) -> set[Var]:
        return {a for a in self.index.atoms() if isinstance(a, Var)}


@dataclass(frozen=True, eq=False)
class Load(_Indexed):
    """buffer[index]: the element at a flat index, in elements."""

    buffer: Buffer
    index: Index

    @property
    def dtype(self) -> str:  # type: ignore[override]
        """The buffer's dtype."""
        return self.buffer.dtype

    def _key(self) -> tuple:
        return (id(self.buffer), self.index)

    def __str__(self) -> str:
        return f"{self.buffer.name}[{self.index}]"


@dataclass(frozen=True, eq=False)
class IndexValue(_Indexed):
    """An index as an i64 value (arange, a size, a position)."""

    index: Index
    dtype: str = "i64"

    def _key(self) -> tuple:
        return (self.index,)

    def __str__(self) -> str:
        return f"({self.index})"


@dataclass(frozen=True, eq=False)
class Call(_Hashed):
    """An operator of the table applied to expressions. `cast` converts its operand to `dtype`."""

    op: str
    args: tuple[Expr, ...]
    dtype: str

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def _key(self) -> tuple:
        return (self.op, self.dtype, self.args)

    def __str__(self) -> str:
        name = f"to_{self.dtype}" if self.op == "cast" else self.op
        return f"{name}({', '.join(map(str, self.args))})"


@dataclass(frozen=True, eq=False)
class Acc(_Hashed):
    """The finished value of a reduction (a Reduce, a Gemm sum, ...), named within its node or nest."""

    name: str
    dtype: str

    def _key(self) -> tuple:
        return (self.name, self.dtype)

    def __str__(self) -> str:
        return self.name


def cast(e: Expr, dtype: str) -> Expr:
    """The expression converted to dtype; constants are converted at once."""
    if e.dtype == dtype:
        return e
    if isinstance(e, Const):
        kind = DTYPES[dtype].kind
        if DTYPES[e.dtype].kind == "f":
            e = Const(held(e.value, e.dtype), e.dtype)
        if kind == "b":
            return Const(bool(e.value), dtype)
        if kind == "f":
            return Const(float(e.value), dtype)
        if DTYPES[e.dtype].kind != "f":
            return Const(_wrapped(int(e.value), dtype), dtype)
    return Call("cast", (e,), dtype)


def _wrapped(value: int, dtype: str) -> int:
    """An integer as its type holds it: 300 is 44 as u8, which is what torch makes of it."""
    bits = 8 * DTYPES[dtype].size
    low = value & ((1 << bits) - 1)
    return low if dtype.startswith("u") or low < 1 << (bits - 1) else low - (1 << bits)


def fits_integer(c: Const) -> bool:
    """Whether integers of 32 bits, to which narrower types are converted by way of, hold the whole part of a number."""
    return DTYPES[c.dtype].kind != "f" or abs(float(c.value)) < 2.0**31


def replaced(e: Expr, old: Expr, new: Expr) -> Expr:
    """The expression with `new` wherever it has `old`."""
    if e == old:
        return new
    return Call(e.op, tuple(replaced(a, old, new) for a in e.args), e.dtype) if isinstance(e, Call) else e


def rewrite(e: Expr, leaf: Callable[[Expr], Expr | None], indices: Mapping[Atom, Index] | None = None) -> Expr:
    """Rebuilds the expression bottom-up.

    `leaf(e)` may return a replacement for a Load, IndexValue or Acc (seen after its index was substituted), or None to
    keep it. `indices` replaces loop variables in every index.
    """
    done: dict[Expr, Expr] = {}
    values = indices or {}

    def visit(x: Expr) -> Expr:
        if x in done:
            return done[x]
        if isinstance(x, Call):
            args = tuple([visit(a) for a in x.args])
            same = all(a is b for a, b in zip(args, x.args, strict=True))
            result: Expr = x if same else Call(x.op, args, x.dtype)
        elif isinstance(x, Load):
            place = x.index.substitute(values, visit_any)
            moved = x if place is x.index else Load(x.buffer, place)
            result = leaf(moved) or moved
        elif isinstance(x, IndexValue):
            place = x.index.substitute(values, visit_any)
            value = x if place is x.index else IndexValue(place)
            result = leaf(value) or value
        else:
            result = leaf(x) or x
        done[x] = result
        return result

    def visit_any(value: object) -> object:
        assert isinstance(value, Expr)
        return visit(value)

    return visit(e)


def substitute(e: Expr, indices: Mapping[Atom, Index]) -> Expr:
    """The expression at other loop variables."""
    return rewrite(e, lambda _: None, indices)


def uses(expressions: Iterable[Expr]) -> Counter[Expr]:
    """How often each expression is read: once for every place in `expressions`, once for every place in another
    distinct expression. What is read more than once gets a name in the generated code."""
    stack = list(expressions)
    counts = Counter(stack)
    seen: set[Expr] = set()
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        counts.update(e.children)
        stack.extend(e.children)
    return counts


def accumulators_first(e: Expr) -> Expr:
    """The same value with the operand of a sum or product that holds an accumulator in front: `r[i] + acc` is
    `acc + r[i]`, so that kernels which differ in nothing else are one."""
    if not isinstance(e, Call):
        return e
    args = tuple(accumulators_first(a) for a in e.args)
    if e.op in ("add", "mul") and _holds_acc(args[1]) and not _holds_acc(args[0]):
        args = (args[1], args[0])
    return e if args == e.args else Call(e.op, args, e.dtype)


def _holds_acc(e: Expr) -> bool:
    return any(isinstance(x, Acc) for x in e.walk())

"""Index arithmetic: integer polynomials over loop variables and size symbols, with floor division and remainder.

An `Index` is a sum of integer coefficients times products of atoms. An atom is a size symbol (`Size`), a loop variable
(`Var`), a value read from memory (`Indirect`) or one of `FloorDiv`, `Remainder`, `Minimum`, `Maximum` of indices. The
constructors simplify with the ranges of the atoms:

    (m*768 + n) // 768        -> m              when 0 <= n < 768
    (m//s)*s*768 + (m%s)*768  -> m*768

Every atom is known to be non-negative except where `Index.nonnegative()` says otherwise; loop variables run from 0 to
extent - 1. Proofs are sound and incomplete: a proof that is not found leaves the expression as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Union

from .once import once

IndexLike = Union["Index", int]
Monomial = tuple["Atom", ...]


class Atom:
    """What a polynomial is made of; atoms are compared by value."""

    key: tuple

    @once
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in fields(self)))  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Size(Atom):
    """A size symbol, such as the batch, between lo and hi (both included); found: the run finds it, and tests then
    what the program asks of it."""

    name: str
    lo: int = 0
    hi: int | None = None
    found: bool = False

    __hash__ = Atom.__hash__

    @once
    def key(self) -> tuple:
        """What atoms are ordered and compared by."""
        return (0, self.name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Var(Atom):
    """A loop variable, 0 <= value < extent; the extent counts in comparisons, as proofs are kept by value."""

    name: str
    extent: Index

    __hash__ = Atom.__hash__

    @once
    def key(self) -> tuple:
        """What atoms are ordered and compared by."""
        return (1, self.name, self.extent.key)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Indirect(Atom):
    """An integer read from memory, checked at run time: 0 <= value < extent; `wrap`: negative ones count back."""

    value: object  # an ir.expr.Expr of dtype i64
    extent: Index
    wrap: bool = False

    __hash__ = Atom.__hash__

    @once
    def key(self) -> tuple:
        """What atoms are ordered and compared by."""
        return (2, str(self.value))

    def __str__(self) -> str:
        return f"<{self.value}>"


@dataclass(frozen=True)
class Binary(Atom):
    """floor(a / b), a mod b (sign of b), min(a, b) or max(a, b)."""

    op: str  # "//", "%", "min", "max"
    a: Index
    b: Index

    __hash__ = Atom.__hash__

    @once
    def key(self) -> tuple:
        """What atoms are ordered and compared by."""
        return (3, self.op, self.a.key, self.b.key)

    def __str__(self) -> str:
        if self.op in ("min", "max"):
            return f"{self.op}({self.a}, {self.b})"
        return f"({self.a}){self.op}({self.b})"


class Index:
    """An integer polynomial: `terms` maps a sorted monomial to its coefficient (never 0). Immutable, hashable."""

    __slots__ = ("_hash", "_key", "terms")

    def __init__(self, terms: Mapping[Monomial, int]):
        self.terms: dict[Monomial, int] = dict(sorted(terms.items(), key=_place) if len(terms) > 1 else terms)
        self._hash: int | None = None
        self._key: tuple | None = None

    @property
    def key(self) -> tuple:
        """What indices are compared by: the atoms and the coefficient of each term."""
        if self._key is None:
            self._key = tuple((tuple(a.key for a in m), c) for m, c in self.terms.items())
        return self._key

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self.terms.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, int):
            return self.constant == other
        return isinstance(other, Index) and self.terms == other.terms

    # arithmetic ------------------------------------------------------------------------------------------------------
    def __add__(self, other: IndexLike) -> Index:
        if not (added := as_index(other).terms):
            return self
        terms = dict(self.terms)
        for monomial, coefficient in added.items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return _normal(terms)

    __radd__ = __add__

    def __neg__(self) -> Index:
        return Index({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: IndexLike) -> Index:
        return self + (-as_index(other))

    def __rsub__(self, other: IndexLike) -> Index:
        return as_index(other) - self

    def __mul__(self, other: IndexLike) -> Index:
        terms: dict[Monomial, int] = {}
        factors = as_index(other).terms
        for m1, c1 in self.terms.items():
            for m2, c2 in factors.items():
                m = monomial_product(m1, m2)
                terms[m] = terms.get(m, 0) + c1 * c2
        return _normal(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: IndexLike) -> Index:
        return floor_div(self, as_index(other))

    def __mod__(self, other: IndexLike) -> Index:
        return remainder(self, as_index(other))

    # questions -------------------------------------------------------------------------------------------------------
    @property
    def constant(self) -> int | None:
        """The value when it is a number, else None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and () in self.terms:
            return self.terms[()]
        return None

    def atoms(self) -> Iterable[Atom]:
        """All atoms, nested ones too."""
        for monomial in self.terms:
            for atom in monomial:
                yield atom
                if isinstance(atom, Binary):
                    yield from atom.a.atoms()
                    yield from atom.b.atoms()

    def vars(self) -> set[Var]:
        """The loop variables in it, those of indirect indices included."""
        found = {a for a in self.atoms() if isinstance(a, Var)}
        for atom in self.atoms():
            if isinstance(atom, Indirect):
                found |= atom.value.vars()  # type: ignore[attr-defined]
        return found

    def sizes(self) -> set[Size]:
        """The size symbols in it."""
        return {a for a in self.atoms() if isinstance(a, Size)}

    def coefficient(self, var: Var) -> Index | None:
        """The factor c of `c*var + rest` where neither c nor rest holds var; None when it is not of that form."""
        terms: dict[Monomial, int] = {}
        for monomial, c in self.terms.items():
            rest = tuple([a for a in monomial if a != var])
            if len(monomial) - len(rest) > 1 or any(_mentions(a, var) for a in rest if type(a) not in _PLAIN):
                return None
            if len(rest) < len(monomial):
                terms[rest] = c
        return Index(terms)

    def without(self, var: Var) -> Index:
        """The index with var = 0."""
        return self.substitute({var: ZERO})

    def substitute(self, values: Mapping[Atom, Index], rewrite: Callable[[object], object] | None = None) -> Index:
        """Replaces atoms by indices; `rewrite` is applied to the scalar expressions inside Indirect atoms."""
        kept = {m: c for m, c in self.terms.items() if all(type(a) in _PLAIN and a not in values for a in m)}
        if len(kept) == len(self.terms):
            return self
        total = Index(kept)
        for monomial, c in self.terms.items():
            if monomial in kept:
                continue
            product = Index({(): c})
            for atom in monomial:
                product = product * _substitute_atom(atom, values, rewrite)
            total = total + product
        return total

    def nonnegative(self) -> bool:
        """True when self >= 0 is proved for all values in range."""
        return _nonnegative(self)

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The number for given sizes by name; only for indices without loop variables."""
        total = 0
        for monomial, c in self.terms.items():
            for atom in monomial:
                c *= _evaluate_atom(atom, sizes)
            total += c
        return total

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        parts: list[str] = []
        for monomial, c in self.terms.items():
            factors = [str(a) for a in monomial]
            if abs(c) != 1 or not factors:
                factors.append(str(abs(c)))
            sign = "-" if c < 0 else "+"
            parts.append(("-" if c < 0 else "") + "*".join(factors) if not parts else f" {sign} " + "*".join(factors))
        return "".join(parts)

    __repr__ = __str__


def _place(term: tuple[Monomial, int]) -> tuple:
    """What terms are ordered by."""
    return tuple([a.key for a in term[0]])


_PLAIN = (Var, Size)  # atoms that hold no others
ZERO = Index({})
ONE = Index({(): 1})


def as_index(value: IndexLike) -> Index:
    """A number or an index as an Index; an Index stays the same object."""
    if isinstance(value, Index):
        return value
    return Index({(): int(value)}) if value else ZERO


def of(atom: Atom) -> Index:
    """The index that is just this atom."""
    return Index({(atom,): 1})


def product(values: Iterable[IndexLike]) -> Index:
    """The product of the values; 1 for none."""
    total = ONE
    for value in values:
        total = total * as_index(value)
    return total


def row_major(loops: Iterable[Var], outer: Index = ZERO) -> Index:
    """The place of an element where elements lie in the order of the loops; outer: the place of all of them."""
    for v in loops:
        outer = outer * v.extent + of(v)
    return outer


def minimum(a: IndexLike, b: IndexLike) -> Index:
    """min(a, b), simplified to one of them where their difference is known to have a sign."""
    a, b = as_index(a), as_index(b)
    if (b - a).nonnegative():
        return a
    if (a - b).nonnegative():
        return b
    return of(Binary("min", a, b))


def maximum(a: IndexLike, b: IndexLike) -> Index:
    """max(a, b), simplified to one of them where their difference is known to have a sign."""
    a, b = as_index(a), as_index(b)
    if (b - a).nonnegative():
        return b
    if (a - b).nonnegative():
        return a
    return of(Binary("max", a, b))


def floor_div(a: Index, b: Index) -> Index:
    """floor(a / b), simplified; b > 0."""
    quotient, rest = _divide(a, b)
    return quotient + (rest if rest is not None else ZERO)


def remainder(a: Index, b: Index) -> Index:
    """a mod b with 0 <= result < b; b > 0."""
    if b == ONE:
        return ZERO
    quotient, rest = _divide(a, b)
    left = a - quotient * b
    if rest is None:
        return left
    for factor, high, low in _splits(left, b):
        smaller = exact_div(b, factor)
        if smaller is not None:
            return of_remainder(high, smaller) * factor + low
    return of_remainder(left, b)


def of_remainder(a: Index, b: Index) -> Index:
    if a.constant is not None and b.constant is not None:
        return as_index(a.constant % b.constant)
    if a.nonnegative() and (b - a - 1).nonnegative():
        return a
    return of(Binary("%", a, b))


def exact_div(a: Index, b: Index) -> Index | None:
    """a / b as a polynomial, or None when it does not divide."""
    if not b.terms:
        return None
    if len(b.terms) == 1:
        ((divisor, coefficient),) = b.terms.items()
        terms: dict[Monomial, int] = {}
        for monomial, c in a.terms.items():
            rest = monomial_div(monomial, divisor)
            if rest is None or c % coefficient:
                return None
            terms[rest] = c // coefficient
        return Index(terms)
    return _long_division(a, b)


def _long_division(a: Index, b: Index) -> Index | None:
    lead, lead_coefficient = max(b.terms.items(), key=lambda t: (len(t[0]), tuple(x.key for x in t[0])))
    quotient, rest = ZERO, a
    for _ in range(16):
        if not rest.terms:
            return quotient
        monomial, c = max(rest.terms.items(), key=lambda t: (len(t[0]), tuple(x.key for x in t[0])))
        factor = monomial_div(monomial, lead)
        if factor is None or c % lead_coefficient:
            return None
        step = Index({factor: c // lead_coefficient})
        quotient, rest = quotient + step, rest - step * b
    return None


@lru_cache(maxsize=65536)
def _divide(a: Index, b: Index) -> tuple[Index, Index | None]:
    """(q, None) when a // b == q exactly; else (q, atom) with a // b == q + atom."""
    if b == ONE:
        return a, None
    if a.constant is not None and b.constant is not None:
        return as_index(a.constant // b.constant), None
    divisible, rest = _split_divisible(a, b)
    if rest.nonnegative() and (b - rest - 1).nonnegative():
        return divisible, None
    times = rest.terms.get((), 0) // b.constant if b.constant else 0
    if times > 0:  # 416 + w*64 + c of 384: one time, and what is left is smaller
        left = rest - b * times
        if left.nonnegative() and (b - left - 1).nonnegative():
            return divisible + times, None
    for factor, high, low in _splits(rest, b):
        smaller = exact_div(b, factor)
        if smaller is not None:
            del low
            quotient, atom = _divide(high, smaller)
            return divisible + quotient, atom
    if len(rest.terms) == 1:
        ((monomial, c),) = rest.terms.items()
        if c == 1 and len(monomial) == 1 and isinstance(monomial[0], Binary) and monomial[0].op == "//":
            inner = monomial[0]  # (x // p) // q == x // (p*q)
            return divisible, floor_div(inner.a, inner.b * b)
    return divisible, of(Binary("//", rest, b))


def _split_divisible(a: Index, b: Index) -> tuple[Index, Index]:
    """a == quotient * b + rest, with the terms that b divides taken out, one variable's terms at a time."""
    groups: dict[Monomial, dict[Monomial, int]] = {}
    for monomial, c in a.terms.items():
        loops = tuple(x for x in monomial if not isinstance(x, Size))
        groups.setdefault(loops, {})[monomial] = c
    quotient, rest = ZERO, ZERO
    for terms in groups.values():
        part = Index(terms)
        q = exact_div(part, b)
        if q is None:
            q = ZERO
            keep: dict[Monomial, int] = {}
            for monomial, c in terms.items():
                one = exact_div(Index({monomial: c}), b)
                if one is None:
                    keep[monomial] = c
                else:
                    q = q + one
            rest = rest + Index(keep)
        quotient = quotient + q
    if not rest.nonnegative() and quotient.terms:
        return _retry_negative(a, b, quotient, rest)
    return quotient, rest


def _retry_negative(a: Index, b: Index, quotient: Index, rest: Index) -> tuple[Index, Index]:
    """A rest below zero but above -b belongs to the quotient less one."""
    if (rest + b).nonnegative() and (-rest - 1).nonnegative():
        return quotient - 1, rest + b
    return quotient, rest


def _splits(a: Index, b: Index) -> Iterable[tuple[Index, Index, Index]]:
    """(g, high, low) with a == g*high + low and 0 <= low < g, for factors g of the terms of a, the largest first."""
    if not a.nonnegative():
        return
    candidates: list[Index] = []
    for monomial, c in a.terms.items():
        loops = [x for x in monomial if not isinstance(x, Size)]
        if loops:
            candidates.append(Index({tuple(x for x in monomial if isinstance(x, Size)): abs(c)}))
    seen: set[Index] = set()
    for factor in sorted(candidates, key=lambda f: (max(len(m) for m in f.terms), max(f.terms.values())), reverse=True):
        if factor == ONE or factor in seen:
            continue
        seen.add(factor)
        high, low = _split_divisible(a, factor)
        if high.terms and low.nonnegative() and (factor - low - 1).nonnegative():
            yield factor, high, low


def monomial_product(a: Monomial, b: Monomial) -> Monomial:
    """The atoms of both, in order."""
    return tuple(sorted(a + b, key=lambda x: x.key)) if a and b else a or b


def monomial_div(a: Monomial, b: Monomial) -> Monomial | None:
    """The atoms of a that are left without those of b; None: it does not hold all of them."""
    rest = list(a)
    for atom in b:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _normal(terms: dict[Monomial, int]) -> Index:
    """Drops zeros and puts k*b*(x//b) + k*(x%b) together to k*x."""
    if 0 in terms.values():
        terms = {m: c for m, c in terms.items() if c}
    for monomial, c in list(terms.items()):
        for atom in monomial:
            if type(atom) is not Binary or atom.op != "%":
                continue
            others = monomial_div(monomial, (atom,)) or ()
            quotient = floor_div(atom.a, atom.b) * atom.b * Index({others: c})
            if quotient.terms and all(terms.get(m) == k for m, k in quotient.terms.items()):
                rest = {m: k for m, k in terms.items() if m not in quotient.terms and m != monomial}
                return _normal(rest) + atom.a * Index({others: c})
    return Index(terms)


def _mentions(atom: Atom, var: Var) -> bool:
    if atom == var:
        return True
    if isinstance(atom, Binary):
        return var in atom.a.vars() or var in atom.b.vars()
    if isinstance(atom, Indirect):
        return var in atom.value.vars()  # type: ignore[attr-defined]
    return False


def _substitute_atom(atom: Atom, values: Mapping[Atom, Index], rewrite: Callable[[object], object] | None) -> Index:
    if atom in values:
        return values[atom]
    if isinstance(atom, Binary):
        a, b = atom.a.substitute(values, rewrite), atom.b.substitute(values, rewrite)
        return {"//": floor_div, "%": remainder, "min": minimum, "max": maximum}[atom.op](a, b)
    if isinstance(atom, Indirect) and rewrite is not None:
        return of(Indirect(rewrite(atom.value), atom.extent.substitute(values), atom.wrap))
    return of(atom)


def _evaluate_atom(atom: Atom, sizes: Mapping[str, int]) -> int:
    if isinstance(atom, Size):
        return sizes[atom.name]
    if isinstance(atom, Binary):
        a, b = atom.a.evaluate(sizes), atom.b.evaluate(sizes)
        return {"//": lambda: a // b, "%": lambda: a % b, "min": lambda: min(a, b), "max": lambda: max(a, b)}[atom.op]()
    raise ValueError(f"{atom} has no value outside its loop")


# proofs --------------------------------------------------------------------------------------------------------------
@lru_cache(maxsize=65536)
def _nonnegative(e: Index) -> bool:
    if all(c >= 0 for c in e.terms.values()) and all(_atom_nonnegative(a) for m in e.terms for a in m):
        return True
    low = _extreme(e)
    return low is not None and _sizes_nonnegative(low)


def _atom_nonnegative(atom: Atom) -> bool:
    if isinstance(atom, Binary):
        if atom.op == "%":
            return True
        if atom.op == "max":
            return atom.a.nonnegative() or atom.b.nonnegative()
        return atom.a.nonnegative() and atom.b.nonnegative()
    return True


def _upper(atom: Atom) -> Index | None:
    """An upper bound of the atom over sizes only, or None."""
    if isinstance(atom, (Var, Indirect)):
        return atom.extent - 1
    if isinstance(atom, Binary) and atom.op == "%":
        return atom.b - 1
    if isinstance(atom, Binary) and atom.op == "//" and atom.b.constant and atom.a.nonnegative():
        low = _extreme(-atom.a)
        return floor_div(-low, atom.b) if low is not None and low.constant is not None else None
    if isinstance(atom, Binary) and atom.op == "min":
        for side in (atom.a, atom.b):
            if not any(isinstance(a, (Var, Indirect, Binary)) for a in side.atoms()):
                return side
    return None


def _extreme(e: Index) -> Index | None:
    """A lower bound of e over sizes, or None."""
    low, stuck = lowest(e)
    return low if stuck is None else None


def lowest(e: Index) -> tuple[Index, Atom | None]:
    """A lower bound of e, with every loop variable at the end of its range that makes e small; and the atom of it that
    no bound is known of, None when only sizes are left."""
    for _ in range(32):
        target = next((a for m in e.terms for a in m if not isinstance(a, Size)), None)
        if target is None:
            return e, None
        rest = Index({m: c for m, c in e.terms.items() if target not in m})
        factors = factors_of(e, target)
        factor = factor_sign(factors)
        if factor is None or not _atom_nonnegative(target):
            return e, target
        if factor >= 0:
            e = rest
        else:
            bound = _exact_multiple(target, factors)
            if bound is None:
                top = _upper(target)
                if top is None:
                    return e, target
                bound = factors * top
            e = rest + bound
    return e, target


def factors_of(e: Index, atom: Atom) -> Index:
    """What the atom is multiplied with in e."""
    return Index({monomial_div(m, (atom,)) or (): c for m, c in e.terms.items() if atom in m})


def _exact_multiple(atom: Atom, factor: Index) -> Index | None:
    """A lower bound of factor * (a//b) without the quotient, for a factor -k*b: it is -k*a, as b*(a//b) <= a."""
    if not (isinstance(atom, Binary) and atom.op == "//"):
        return None
    times = exact_div(factor, atom.b)
    return None if times is None else times * atom.a


def factor_sign(e: Index) -> int | None:
    """1 where e >= 0, -1 where e <= 0, None where neither is known."""
    if all(c >= 0 for c in e.terms.values()):
        return 1
    if all(c <= 0 for c in e.terms.values()):
        return -1
    if not any(not isinstance(a, Size) for m in e.terms for a in m):
        if _sizes_nonnegative(e):
            return 1
        if _sizes_nonnegative(-e):
            return -1
    return None


def _sizes_nonnegative(e: Index) -> bool:
    """e >= 0 for a polynomial in sizes: write each size as lo + t, t >= 0, and look at the signs."""
    if e.constant is not None:
        return e.constant >= 0
    if any(not isinstance(a, Size) for m in e.terms for a in m):
        return False
    shifted = e
    for size in e.sizes():
        if size.lo:
            shifted = shifted.substitute({size: of(Size(size.name + "'", 0, None)) + size.lo})
    if all(c >= 0 for c in shifted.terms.values()):
        return True
    bound = 0
    for monomial, c in e.terms.items():
        value = c
        for atom in monomial:
            assert isinstance(atom, Size)
            limit = atom.lo if c >= 0 else atom.hi
            if limit is None:
                return False
            value *= limit
        bound += value
    return bound >= 0

"""From scalar expressions to C++ statements over lanes: one precedence-aware printer, shared subexpressions named.

An `Emitter` prints for one vector loop (or none). Statements that do not move with the vector go to `pre`, in front of
the loop; the others to `body`. `tail` prints the last, partial vector with `count` valid lanes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.expr import (
    Acc,
    Call,
    Const,
    Expr,
    IndexValue,
    Load,
    fits_integer,
    uses,
)
from ...ir.index import (
    ONE,
    Atom,
    Binary,
    Index,
    Indirect,
    Size,
    Var,
    as_index,
    exact_div,
    of,
    product,
)
from ...ir.lanes import depends, lane_stride, wrapping_index
from ...ir.narrowing import HALVES, stored
from ...ir.nodes import Store
from ...ir.ops import OPS, Precedence, Printed, spell
from ...schedule.loops.fma_contraction import fma_factors
from ...schedule.loops.lane_bounds import DIVISIONS, MOST_APART, Inside, inside
from .lane_limits import LaneLimit, lane_limit
from .nontemporal import is_nontemporal
from .scope import Scope
from .window_taps import PAIR, tap_of

MAX_INLINE = 72  # longer expressions get a name
ARITHMETIC = ("add", "sub", "mul", "div", "fma")


@dataclass
class Emitter:
    """Prints expressions into statements; see the module's text."""

    scope: Scope
    vector: Var | None
    tail: bool = False
    accs: dict[str, str] = field(default_factory=dict)  # accumulator -> C++ name
    vector_accs: frozenset[str] = frozenset()
    transposed: Mapping[Load, str] = field(default_factory=dict)  # loads across the lanes -> where they lie in a block
    bounded: dict[Load, str] = field(default_factory=dict)  # loads of which some lanes lie outside of a row
    chosen: set[Load] = field(default_factory=set)  # loads that not all lanes of a vector may take
    unchecked: bool = False  # indices that are read serve to fetch memory alone
    moves_bits: bool = False  # elements go from memory to memory as they are
    pre: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    _done: dict[Expr, Printed] = field(default_factory=dict)
    _uses: Counter[Expr] = field(default_factory=Counter)
    _moving: dict[Expr, bool] = field(default_factory=dict)
    _indirect: dict[Indirect, str] = field(default_factory=dict)
    _names: Counter[str] = field(default_factory=Counter)

    # entry points ----------------------------------------------------------------------------------------------------
    def count_uses(self, expressions: Iterable[Expr]) -> None:
        """Counts how often each subexpression is read, so that shared ones are named."""
        self._uses.update(uses(expressions))

    def behind(self, other: Emitter) -> Emitter:
        """This emitter, its names going on where those of another one in the same block stop."""
        self._names.update(other._names)
        return self

    def value(self, e: Expr) -> str:
        """The text of an expression, as an argument."""
        return self._print(e).text

    def lanes(self, e: Expr, needed: Precedence = Precedence.LOWEST) -> str:
        """The text of an expression as a vector, as an operand that binds as tightly as is needed."""
        printed = self._print(e)
        return printed.within(needed) if self.moves(e) or self.vector is None else f"splat({printed.text})"

    def factors(self, e: Expr) -> tuple[str, str] | None:
        """The texts of the factors when the expression is a product that nothing else reads."""
        found = fma_factors(e, self._uses)
        return None if found is None else (self.value(found[0]), self.value(found[1]))

    def store(self, s: Store) -> None:
        """Adds the statement of a store."""
        if s.buffer in self.scope.locals and s.buffer.size == ONE:
            self.body.append(f"{self.scope.locals[s.buffer]} = {self._print(s.value).text};")
            return
        value = self._print(stored(s.value, s.buffer.dtype, self._uses))
        target = self.target(s)
        stride = lane_stride(s.index, self.vector) if self.vector is not None else None
        if self.vector is None:
            self.body.append(self._scalar_store(s, value))
            return
        text = value.text if self.moves(s.value) else f"splat({value.text})"
        if stride == ONE and self.tail:
            self.body.append(f"store_tail({target}, {text}, count);")
        elif stride == ONE:
            nontemporal = ", streams" if self._streams(s) else ""
            self.body.append(f"store({target}, {text}{nontemporal});")
        elif stride is not None and stride.terms:
            step = self.index(stride)
            self.body.append(
                f"scatter_tail({target}, {step}, {text}, count);"
                if self.tail
                else f"scatter({target}, {step}, {text});"
            )
        else:
            raise ValueError(f"store to {s.buffer} at {s.index} has no vector form")

    def moved_row(self, stores: Sequence[Store], widest: int) -> str:
        """The statement that stores `count` elements of at most `widest` bytes as they lie in memory, backwards, or
        around the end of a row; "" where more is to be done."""
        (s, *others), load = stores, stores[0].value
        if others or not isinstance(load, Load) or load.buffer.dtype != s.buffer.dtype or self.vector is None:
            return ""
        step = ONE if load in self.transposed else self._stride(load.index)
        narrow = DTYPES[s.buffer.dtype].size <= widest and not {load.buffer, s.buffer} & self.scope.locals.keys()
        turn = wrapping_index(load.index, self.vector) if load not in self.transposed else None
        if not narrow or lane_stride(s.index, self.vector) != ONE or (turn is None and step not in (ONE, -ONE)):
            return ""
        target = self.target(s)
        if turn is not None:
            row, start = self._place(self._buffer(load.buffer), load.index - of(turn)), self.index(of(turn))
            return f"put_round({target}, {row}, {start}, {self.index(turn.b)}, count, {self.nontemporal(s)});"
        source = self.transposed.get(load) or self._place(self._buffer(load.buffer), load.index)
        return f"{'put_row' if step == ONE else 'put_reversed'}({target}, {source}, count, {self.nontemporal(s)});"

    def nontemporal(self, s: Store, interleaved: int = 1) -> str:
        """The template argument of a store: whether it is non-temporal, which the run finds, or never.

        interleaved: elements of each lane that lie side by side.
        """
        return "streams" if self._streams(s, interleaved) else "false"

    def store_interleaved_group(self, stores: Sequence[Store]) -> None:
        """Adds the statement of stores side by side whose lanes lie as far apart as there are stores."""
        values = ", ".join(self.lanes(s.value) for s in stores)
        target = self.target(stores[0])
        if self.tail:
            self.body.append(f"store_interleaved_tail({target}, count, {values});")
        else:
            self.body.append(f"store_interleaved({target}, {self.nontemporal(stores[0], len(stores))}, {values});")

    def _streams(self, s: Store, interleaved: int = 1) -> bool:
        """Whether the result is so large that it is written by non-temporal stores; its vectors have to be aligned.

        interleaved: elements of each lane that lie side by side.
        """
        assert self.vector is not None
        if s in self.scope.peeled:
            return True
        if s.buffer in self.scope.combined or not is_nontemporal(s, self.vector, interleaved, self.scope):
            return False
        self.scope.streamed[s.buffer] = None
        return True

    def _scalar_store(self, s: Store, value: Printed) -> str:
        if DTYPES[s.buffer.dtype].is_plain:
            name, index = self._written(s)
            return f"{name}[{self.index(index)}] = {value.text};"
        return f"store_scalar({self.target(s)}, {value.text});"

    def _temp(self, stem: str) -> str:
        """A name within this emitter; the main and the tail form of a loop name alike."""
        self._names[stem] += 1
        return f"{stem}{self._names[stem] - 1}"

    # expressions -----------------------------------------------------------------------------------------------------
    def moves(self, e: Expr) -> bool:
        """Whether the expression differs between lanes."""
        if self.vector is None:
            return False
        if e not in self._moving:
            if isinstance(e, Acc):
                self._moving[e] = e.name in self.vector_accs
            elif isinstance(e, Call):
                self._moving[e] = any(self.moves(a) for a in e.args)
            elif isinstance(e, (Load, IndexValue)):
                stride = self._stride(e.index)
                self._moving[e] = stride is None or bool(stride.terms)
            else:
                self._moving[e] = False
        return self._moving[e]

    def _print(self, e: Expr) -> Printed:
        if e in self._done:
            return self._done[e]
        printed = self._text(e)
        if self._wants_name(e, printed):
            name = self._temp("t" if self.moves(e) else "s")
            self._before(e).append(f"const auto {name} = {printed.text};")
            printed = Printed(name)
        self._done[e] = printed
        return printed

    def _before(self, e: Expr) -> list[str]:
        """Where a name for the expression belongs: in front of the loop when all of its vectors have the same value.

        x[i, v // 32] does not move within a vector, and yet differs from one vector to the next.
        """
        differs = self.vector is not None and (self.moves(e) or self.vector in e.vars())
        return self.body if differs else self.pre

    def _wants_name(self, e: Expr, printed: Printed) -> bool:
        if isinstance(e, (Const, Acc)):
            return False
        if isinstance(e, Load) and e.buffer in self.scope.locals and e.buffer.size == ONE:
            return False
        if not self.moves(e) and self.vector is not None and not isinstance(e, IndexValue):
            return True  # in front of the loop, or at least once for all lanes
        return self._uses[e] > 1 or len(printed.text) > MAX_INLINE

    def _text(self, e: Expr) -> Printed:
        match e:
            case Const():
                return literal(e)
            case Acc():
                return Printed(self.accs[e.name])
            case Load():
                return Printed(self._load(e))
            case IndexValue():
                return self._index_value(e)
            case Call():
                found = inside(e, self.vector) if e.op == "where" and self.vector is not None else None
                return self._call(e) if found is None else self._inside_row(found)
        raise TypeError(type(e).__name__)

    def _call(self, e: Call) -> Printed:
        if e.op == "cast":
            return self._cast(e)
        limit = None if self.vector is None else lane_limit(e, lambda p: self._stride(p.index) == ONE, self.moves)
        if limit is not None:
            return self._lanes_up_to(limit)
        operands = []
        moving = self.moves(e)
        if e.op == "where":
            self.chosen.update(load for arg in e.args[1:] for load in arg.loads)
        for arg in e.args:
            printed = self._print(arg)
            if moving and not self.moves(arg) and e.op not in ARITHMETIC:
                printed = Printed(f"splat({printed.text})")
            operands.append(printed)
        if e.op in DIVISIONS and DTYPES[e.dtype].kind == "i":
            self._check_divisor(e.args[1], operands[1])
        return spell(OPS[e.op], "cpp", operands)

    def _lanes_up_to(self, e: LaneLimit) -> Printed:
        text = f"{e.function}({self.index(e.place.index)}, {self._print(e.limit).text})"
        return Printed(f"~{text}", Precedence.UNARY) if e.inverted else Printed(text)

    def _inside_row(self, e: Inside) -> Printed:
        """A choice by place: lanes outside of the row are not read."""
        end = "kNoEnd" if e.limit is None else self.index(e.limit)
        if e.condition is not None:
            end = f"{self._print(e.condition).text} ? {end} : 0"
        form, count = ("_tail", ", count") if self.tail else ("", "")
        row, other = f"{self.index(e.place)}, {end}", literal(e.other).text
        added = "" if e.other.value == 0 and not other.startswith("-") else f", {other}"
        for load in e.loads:
            tap = tap_of(load, PAIR) if e.step == PAIR and not self.tail else None
            if tap is not None and not (e.place - tap).vars() & tap.vars():
                at = self.index(e.place - tap)
                text = f"load_tap_inside({self._group(load, tap)}, {at}, {self.index(tap)}, {end}"
            else:
                place = self._place(self._buffer(load.buffer), load.index)
                text = f"load_inside{form}<{e.step}>({place}, {row}"
            self.bounded[load] = f"{text}{count})"
            if load is e.value:
                return Printed(f"{text}{added}{count})")
        self.count_uses([e.value])
        value = self._print(e.value).text
        return Printed(f"where(lanes_inside<{e.step}>({row}{count}), {value}, splat({other}))")

    def _check_divisor(self, divisor: Expr, printed: Printed) -> None:
        """An integer division by zero fails the call, as it raises in torch."""
        if isinstance(divisor, Const) and divisor.value != 0:
            return
        moving = self.moves(divisor)
        place = f" in {self.scope.where}" if self.scope.where else ""
        lanes = ", count" if moving and self.tail else ""
        target = self.body if self.vector is None else self._before(divisor)
        target.append(f'check_divisor(host, {printed.text}, "integer division by zero{place}"{lanes});')

    def _cast(self, e: Call) -> Printed:
        (source,) = e.args
        inner = self._print(source)
        if isinstance(source, Const) and DTYPES[e.dtype].kind == "i" and not fits_integer(source):
            inner = Printed(f"unfolded({inner.text})")
        if e.dtype in ("f16", "bf16"):
            wide = inner if DTYPES[source.dtype].compute == "f32" else Printed(f"to_f32({inner.text})")
            return Printed(f"round_{e.dtype}({wide.text})")
        if e.dtype == DTYPES[source.dtype].compute:
            return inner
        if DTYPES[e.dtype].compute != e.dtype:
            return Printed(f"to_{e.dtype}({inner.text})")
        return Printed(f"to_{e.dtype}({inner.text})")

    def _stride(self, index: Index) -> Index | None:
        """How the index grows from lane to lane; None when that differs, as with a place that an accumulator gives."""
        if self.vector is None:
            return Index({})
        if any(isinstance(a, Indirect) and self.moves(a.value) for a in index.atoms()):  # type: ignore[arg-type]
            return None
        return lane_stride(index, self.vector)

    # memory ----------------------------------------------------------------------------------------------------------
    def _load(self, e: Load) -> str:
        if e in self.bounded:
            return self.bounded[e]
        if e in self.transposed:
            return f"load_tail({self.transposed[e]}, count)" if self.tail else f"load({self.transposed[e]})"
        name = self._buffer(e.buffer)
        if e.buffer in self.scope.locals and e.buffer.size == ONE:
            return name
        stride = self._stride(e.index)
        if stride is not None and not stride.terms:
            if DTYPES[e.buffer.dtype].is_plain:
                return f"{name}[{self.index(e.index)}]"
            return f"load_scalar({self._place(name, e.index)})"
        if stride is None:
            return self._load_around(name, e.index)
        place = self._place(name, e.index)
        if stride == ONE:
            if self.tail:
                return f"load_tail({place}, count)"
            return f"load_whole({place})" if e in self.chosen else f"load({place})"
        step = self.index(stride)
        number = stride.constant
        if number is not None and 2 <= number <= MOST_APART:
            return self._load_apart(e, number)
        if number == -1:
            return f"load_reversed_tail({place}, count)" if self.tail else f"load_reversed({place})"
        if self.tail:
            return f"gather_tail({place}, {step}, count)"
        return f"gather({place}, {step})"

    def _load_apart(self, e: Load, step: int) -> str:
        """Every step-th element; out of whole vectors where those lie inside of the buffer."""
        name = self._buffer(e.buffer)
        place = self._place(name, e.index)
        if self.tail:
            return f"load_every_tail<{step}>({place}, count)"
        tap = None if e in self.chosen else tap_of(e, step)
        if tap is not None:
            return f"load_tap<{step}>({self._group(e, tap)}, {self.index(tap)})"
        first = e.index.terms.get((), 0) % step
        rest = (c for monomial, c in e.index.terms.items() if monomial)
        if exact_div(e.buffer.root.size, as_index(step)) is None or any(c % step for c in rest):
            return f"load_every<{step}>({place})"
        return f"load_strided<{step}, {first}>({self._place(name, e.index - first)})"

    def _group(self, load: Load, tap: Index) -> str:
        """Where the groups of a tap lie."""
        return self._place(self._buffer(load.buffer), load.index - tap)

    def _load_around(self, name: str, index: Index) -> str:
        """Lanes at places that differ in their steps: neighbours around the end of a row, or anywhere."""
        turn = wrapping_index(index, self.vector) if self.vector is not None else None
        if turn is not None:
            row, first, extent = self._place(name, index - of(turn)), self.index(of(turn)), self.index(turn.b)
            return (
                f"load_round_tail({row}, {first}, {extent}, count)"
                if self.tail
                else f"load_round({row}, {first}, {extent})"
            )
        looked_up = self._plain_lookup(index)
        if looked_up is not None:
            return self._lookup(name, index, *looked_up)
        places = self._vector_index(index)
        return f"gather_at_tail({name}, {places}, count)" if self.tail else f"gather_at({name}, {places})"

    def _plain_lookup(self, index: Index) -> tuple[Indirect, Load] | None:
        """The one part of an index that moves, when it is read from neighbours in memory, and the load of it."""
        moving = [(m, c) for m, c in index.terms.items() if self._moves_with(Index({m: c}))]
        if len(moving) != 1 or moving[0][1] != 1 or len(moving[0][0]) != 1 or not isinstance(moving[0][0][0], Indirect):
            return None
        atom = moving[0][0][0]
        source = atom.value
        if not isinstance(source, Load) or source.dtype != "i64" or source.buffer in self.scope.locals:
            return None
        if atom in self._indirect or self._stride(source.index) != ONE:
            return None
        return atom, source

    def _lookup(self, name: str, index: Index, atom: Indirect, source: Load) -> str:
        """Elements at places that are read from neighbours in memory."""
        assert self.vector is not None
        form, count = ("_tail", ", count") if self.tail else ("", "")
        row, check = self._place(name, index - of(atom)), self._check(atom)
        at = self.scope.buffer(source.buffer)
        if self.scope.tables is None or source.index.vars() != {self.vector} or atom.extent.vars():
            return f"gather_checked{form}(host, {row}, {self._place(at, source.index)}, {check}{count})"
        at = self._place(at, source.index.without(self.vector))
        table = (at, self.index(self.vector.extent), self.index(atom.extent))
        known = self.scope.tables.setdefault(table, f"table{len(self.scope.tables)}")
        return f"gather_table{form}({known}, {self.scope.loop(self.vector)}, host, {row}, {at}, {check}{count})"

    def _check(self, atom: Indirect) -> str:
        """The arguments of a check: extent, whether it counts from the end, what to say."""
        place = f" in {self.scope.where}" if self.scope.where else ""
        return f'{self.index(atom.extent)}, {"true" if atom.wrap else "false"}, "index out of range{place}"'

    def _buffer(self, buffer: Buffer) -> str:
        """The name of a buffer, as integers where its elements are moved and nothing else."""
        return self._as_moved(self.scope.buffer(buffer), buffer)

    def _as_moved(self, name: str, buffer: Buffer) -> str:
        moved = self.moves_bits and buffer.dtype in HALVES and buffer not in self.scope.locals
        return f"as_bits({name})" if moved else name

    def _written(self, s: Store) -> tuple[str, Index]:
        """What a store writes to: the result, or the row of it that is combined, and the index there."""
        if s.buffer not in self.scope.combined:
            return self._buffer(s.buffer), s.index
        row, within = self.scope.combined[s.buffer]
        index = Index({m: c for m, c in s.index.terms.items() if within.issuperset(m)})
        return self._as_moved(row, s.buffer), index

    def target(self, s: Store) -> str:
        """Where a store writes."""
        return self._place(*self._written(s))

    def _place(self, name: str, index: Index) -> str:
        text = self.index(index)
        return name if text == "0" else f"{name} + {text}"

    # indices ---------------------------------------------------------------------------------------------------------
    def _index_value(self, e: IndexValue) -> Printed:
        stride = self._stride(e.index)
        if stride is None:
            return Printed(self._vector_index(e.index), Precedence.SUM)
        first = self.index(e.index)
        if not stride.terms:
            return Printed(f"(int64_t)({first})")
        if stride == ONE:
            return Printed(f"iota({first})")
        return Printed(f"{self.factor(stride)} * iota(0) + ({first})", Precedence.SUM)

    def factor(self, index: Index) -> str:
        """An index as a factor of a product."""
        text = self.index(index)
        return text if text.isidentifier() or text.isdigit() else f"({text})"

    def product(self, factors: Iterable[Index]) -> str:
        """The product of some sizes: multiplied out, except where that has more terms than the sizes (of n numbers of
        detected boxes, n * n has (n * n + n) / 2)."""
        sizes = list(factors)
        whole = product(sizes)
        if len(whole.terms) <= max(1, sum(len(s.terms) for s in sizes)):
            return self.index(whole)
        return " * ".join(self.factor(s) for s in sizes)

    def index(self, index: Index) -> str:
        """An index at lane 0 as C++ text of type int64_t."""
        return self._polynomial(index, vector=False)

    def _vector_index(self, index: Index) -> str:
        """An index as a vector of 64-bit integers."""
        return self._polynomial(index, vector=True)

    def _polynomial(self, index: Index, vector: bool) -> str:
        parts: list[str] = []
        for monomial, c in _reading_order(index):
            factors = [self._atom(a, vector) for a in monomial]
            if abs(c) != 1 or not factors:
                factors.append(str(abs(c)))
            text = " * ".join(factors)
            if not parts:
                parts.append(f"-{text}" if c < 0 else text)
            else:
                parts.append(f"{'-' if c < 0 else '+'} {text}")
        return " ".join(parts) or "0"

    def _atom(self, atom: Atom, vector: bool) -> str:
        moving = vector and self._moves_with(Index({(atom,): 1}))
        match atom:
            case Size():
                return self.scope.size(atom)
            case Var():
                name = self.scope.loop(atom)
                return f"iota({name})" if moving else name
            case Indirect():
                return self._checked(atom, moving)
            case Binary():
                return self._binary(atom, moving)
        raise TypeError(type(atom).__name__)

    def _moves_with(self, index: Index) -> bool:
        return self.vector is not None and depends(index, self.vector)

    def _binary(self, atom: Binary, moving: bool) -> str:
        a, b = self._polynomial(atom.a, moving), self._polynomial(atom.b, moving)
        if not moving and atom.op in ("//", "%") and atom.a.nonnegative():
            sign = "/" if atom.op == "//" else "%"
            return f"(({a}) {sign} ({b}))" if _compound(a, b) else f"({a} {sign} {b})"
        if moving and atom.op in ("//", "%") and not self._moves_with(atom.b):
            return f"{'place_quotient' if atom.op == '//' else 'place_remainder'}({a}, {b})"
        name = {"//": "floor_div", "%": "remainder", "min": "minimum", "max": "maximum"}[atom.op]
        sides = [self._side(text, side, moving) for text, side in ((a, atom.a), (b, atom.b))]
        return f"{name}({', '.join(sides)})"

    def _side(self, text: str, side: Index, moving: bool) -> str:
        """An operand of a function on 64-bit integers."""
        if not moving:
            return f"(int64_t)({text})"
        return text if self._moves_with(side) else f"splat((int64_t)({text}))"

    def _prefetch_indices(self, value: Expr) -> None:
        """Fetches indices ahead: lanes wait for what they pick, and the hardware fetches too little meanwhile."""
        for load in value.loads:
            wide = load.dtype == "i64" and load.buffer not in self.scope.locals
            if wide and not self.tail and self.moves(load) and self._stride(load.index) == ONE:
                at = self._place(self.scope.buffer(load.buffer), load.index)
                self._before(value).append(f"prefetch_indices({at});")

    def _checked(self, atom: Indirect, moving: bool) -> str:
        if atom not in self._indirect:
            value = atom.value
            assert isinstance(value, Expr)
            vector = self.moves(value)
            source = self.value(value)
            if self.unchecked:
                return f"(int64_t)({source})"
            self._prefetch_indices(value)
            # of their own kind: the partial form has them where the full one looks up in memory
            name, check = self._temp("places" if vector else "at"), self._check(atom)
            lanes = ", count" if vector and self.tail else ""
            self._before(value).append(f"const auto {name} = checked_index(host, {source}, {check}{lanes});")
            self._indirect[atom] = name
        name = self._indirect[atom]
        return name if not (moving and not self.moves(atom.value)) else f"splat({name})"  # type: ignore[arg-type]


def _compound(*texts: str) -> bool:
    return any(" " in t for t in texts)


def _reading_order(index: Index) -> Sequence[tuple[tuple[Atom, ...], int]]:
    """Positive terms first, constants last: `i*64 + j - 1`."""
    return sorted(index.terms.items(), key=lambda t: (not t[0], t[1] < 0))


def literal(c: Const) -> Printed:
    """A constant as a C++ literal of its type."""
    value, dtype = c.value, DTYPES[c.dtype].compute
    if dtype == "bool":
        return Printed("true" if value else "false")
    if dtype in ("i32", "i64"):
        number = int(value)
        if number == (-(2**63) if dtype == "i64" else -(2**31)):  # C++ has no literals of these
            return Printed("INT64_MIN" if dtype == "i64" else "INT32_MIN")
        text = f"(int64_t){number}" if dtype == "i64" else str(number)
        return Printed(text, Precedence.ATOM if number >= 0 else Precedence.UNARY)
    suffix = "f" if dtype == "f32" else ""
    real = float(value)
    if real != real:
        return Printed(f'__builtin_nan{suffix}("")')
    if real in (float("inf"), float("-inf")):
        text = f"__builtin_inf{suffix}()"
        return Printed(text) if real > 0 else Printed(f"-{text}", Precedence.UNARY)
    return Printed(_digits(real, dtype) + suffix, Precedence.ATOM if real >= 0 else Precedence.UNARY)


def _digits(number: float, dtype: str) -> str:
    """The shortest decimal that reads back as the same number."""
    import numpy as np

    text = repr(float(number)) if dtype == "f64" else str(np.float32(number))
    return text if any(ch in text for ch in ".en") else text + ".0"

"""From scalar expressions to lines of Triton: one precedence-aware printer over the operator table of ir/ops.py.

Loops of the IR are bound to texts, which span axes of the tile; an access takes the masks of the axes that it spans:

    scope = TritonScope.of(node, plan)
    emit = TritonEmitter(
        scope,
        places={m: Place("offs_m[:, None]", ("m",)), n: Place("offs_n[None, :]", ("n",))},
        masks={"m": "mask_m[:, None]"},          # axes without a mask need none
        accs={"acc": Value("acc", ("m", "n"))},
    )
    emit.count_uses(s.value for s in node.stores)
    for s in node.stores:
        emit.store(s)
    emit.lines -> ["t0 = acc + tl.load(w0 + offs_n[None, :]).to(tl.float32)",
                   "tl.store(y0 + offs_m[:, None] * 768 + offs_n[None, :], t0, mask=mask_m[:, None])"]

Arithmetic on f16 and bf16 is done in float32: loads widen, and a value is rounded once, when it is stored.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.expr import Acc, Call, Const, Expr, IndexValue, Load, fits_integer, uses
from ...ir.index import Atom, Binary, Index, Indirect, Size, Var, of
from ...ir.nodes import Store
from ...ir.ops import GPU_ALONE, OPS, Precedence, Printed, Spelling, spell
from ...ir.special_ops import OF_THEIR_TYPE
from ...schedule.gpu.width import fits_int32
from .facts import facts, plain
from .kernel import TL_DTYPE
from .scope import LAUNCH, STATUS, TritonScope

MAX_INLINE = 64  # longer expressions get a name
Axes = tuple[str, ...]
_ATOM = Precedence.ATOM

#: integer spellings that do not hold for floats: Triton's // and % are for integers, its -x is 0 - x and has no -0
FLOAT_FORMS = {
    "neg": Spelling("{0} * -1.0", Precedence.PRODUCT, (Precedence.PRODUCT,)),
    "floor_div": Spelling("floor_div({0}, {1})", _ATOM, (Precedence.LOWEST,) * 2),
    "remainder": Spelling("remainder({0}, {1})", _ATOM, (Precedence.LOWEST,) * 2),
    "trunc_div": Spelling("libdevice.trunc(divided({0}, {1}))", _ATOM, (Precedence.LOWEST,) * 2),
    "fmod": Spelling("libdevice.fmod({0}, {1})", _ATOM, (Precedence.LOWEST,) * 2),
}
#: what suffices where the result is rounded to 16 bits
HALF_FORMS = {"gelu_erf": "gelu_half({0})"}
#: float spellings that do not hold for integers; their operands are tensors
INTEGER_FORMS = {"pow": Spelling("integer_power({0}, {1})", _ATOM, (Precedence.LOWEST,) * 2)}
LEAST_NORMAL = 2.0**-126  # of float32
LOG2_E = 1.4426950408889634
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


@dataclass(frozen=True)
class Place:
    """The text of a loop variable: a tensor (or scalar) of integers, and the axes of the tile that it spans.

    counted: it is the variable of a range(), which the interpreter has as a number of Python's.
    """

    text: str
    axes: Axes = ()
    precedence: Precedence = _ATOM
    counted: bool = False


@dataclass(frozen=True)
class Value:
    """The text of a value at hand (an accumulator, a row kept in registers) and the axes that it spans."""

    text: str
    axes: Axes = ()


@dataclass(frozen=True)
class Aligned:
    """Accesses at `start` + column, side by side, begin at multiples of `unit` elements; place: their text."""

    start: Index
    column: Var
    unit: int
    place: str = ""

    def has(self, index: Index) -> bool:
        return index == self.start + of(self.column)


@dataclass
class TritonEmitter:
    """Prints expressions into lines; see the module's text. Lines in `lines`; names are unique within `scope`'s kernel
    when `stem` is."""

    scope: TritonScope
    places: Mapping[Var, Place]
    masks: Mapping[str, str] = field(default_factory=dict)
    accs: Mapping[str, Value] = field(default_factory=dict)
    #: (buffer, index) -> a value at hand, instead of a load
    known: Mapping[tuple[object, Index], Value] = field(default_factory=dict)
    stem: str = "t"
    aligned: Aligned | None = None
    #: (buffer, index) -> the name of the value's logarithm to base 2
    logarithms: Mapping[tuple[object, Index], str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    _done: dict[Expr, Printed] = field(default_factory=dict)
    _uses: Counter[Expr] = field(default_factory=Counter)
    _axes: dict[Expr, Axes] = field(default_factory=dict)
    _indirect: dict[Indirect, str] = field(default_factory=dict)
    _names: int = 0
    _in_64_bits: bool = False
    #: the branches of `where` around what is printed: facts, the condition's text and axes
    _within: tuple[tuple[tuple[Index, ...], str, Axes], ...] = ()

    # entry points ----------------------------------------------------------------------------------------------------
    def count_uses(self, expressions: Iterable[Expr]) -> None:
        """Counts how often each subexpression is read, so that shared ones are named."""
        self._uses.update(uses(expressions))

    def value(self, e: Expr) -> str:
        """The text of an expression; what it needs is in `lines`."""
        return self.printed(e).text

    def printed(self, e: Expr) -> Printed:
        """The same, with how tightly it binds."""
        return self._print(e)

    def operand(self, e: Expr) -> str:
        """The same, to stand in front of a method."""
        return _atom(self._print(e))

    def kept(self, e: Expr, name: str) -> Value:
        """The expression as a value to read again: what has a name already keeps it."""
        text = self.value(e)
        if not text.isidentifier():
            self.lines.append(f"{name} = {text}")
            text = name
        return Value(text, self.axes(e))

    def element(self, e: Load) -> str:
        """The text of a load of what is in memory, in its own type."""
        return self._loaded(e, e.index, ())

    def bind(self, e: Expr, name: str) -> None:
        """Has an expression be what a name holds."""
        self._done[e] = Printed(name)

    def load_early(self, e: Load) -> None:
        """Loads an element now, under a name, for the expressions to come."""
        if e not in self._done:
            self._done[e] = self._name(self._load(e))

    def store(self, s: Store) -> None:
        """Adds the statement of a store."""
        copied = _copied(s)
        if copied is not None and (copied.buffer, copied.index) not in self.known:
            self.put(s, Value(self._loaded(copied, copied.index, ()), self.index_axes(copied.index)))
            return
        self.put(s, Value(self.value(s.value), self.axes(s.value)))

    def put(self, s: Store, value: Value) -> None:
        """Adds the statement of a store whose value is at hand."""
        axes = self.index_axes(s.index)
        missing = [a for a in value.axes if a not in axes]
        if missing:
            raise ValueError(f"store to {s.buffer} at {s.index}: the value also spans {', '.join(missing)}")
        self.lines.append(f"tl.store({self._pointer(s.buffer, s.index)}, {value.text}{self._mask(axes)})")

    # expressions -----------------------------------------------------------------------------------------------------
    def axes(self, e: Expr) -> Axes:
        """The axes of the tile that an expression spans."""
        if e not in self._axes:
            found: tuple[Axes, ...]
            if isinstance(e, Acc):
                found = (self.accs[e.name].axes,)
            elif isinstance(e, Call):
                found = tuple(self.axes(a) for a in e.args)
            elif isinstance(e, Load):
                known = self.known.get((e.buffer, e.index))
                found = (known.axes if known else self.index_axes(e.index),)
            elif isinstance(e, IndexValue):
                found = (self.index_axes(e.index),)
            else:
                found = ()
            self._axes[e] = _union(found)
        return self._axes[e]

    def index_axes(self, index: Index) -> Axes:
        return _union(self._atom_axes(a) for m in index.terms for a in m)

    def _atom_axes(self, atom: Atom) -> Axes:
        if isinstance(atom, Var):
            return self.places[atom].axes
        if isinstance(atom, Binary):
            return _union((self.index_axes(atom.a), self.index_axes(atom.b)))
        if isinstance(atom, Indirect):
            assert isinstance(atom.value, Expr)
            return self.axes(atom.value)
        return ()

    def _print(self, e: Expr) -> Printed:
        if e in self._done:
            return self._done[e]
        printed = self._text(e)
        if not isinstance(e, (Const, Acc)) and (self._uses[e] > 1 or len(printed.text) > MAX_INLINE):
            printed = self._name(printed)
        self._done[e] = printed
        return printed

    def _name(self, printed: Printed) -> Printed:
        if printed.text.isidentifier():
            return printed
        name = f"{self.stem}{self._names}"
        self._names += 1
        self.lines.append(f"{name} = {printed.text}")
        return Printed(name)

    def _text(self, e: Expr) -> Printed:
        match e:
            case Const():
                return _tensor(e, literal(e)) if _needs_type(e) else literal(e)
            case Acc():
                return Printed(self.accs[e.name].text)
            case Load():
                return self._load(e)
            case IndexValue():
                return Printed(self._wide(e.index))
            case Call():
                return self._call(e)
        raise TypeError(type(e).__name__)

    def _wide(self, index: Index) -> str:
        """An index as a 64-bit value; a number or a scalar becomes one by itself in arithmetic. What 32 bits may not
        hold is computed in 64."""
        if not (self.scope.wide or index.constant is not None or _is_atom(index) or fits_int32(index)):
            self._in_64_bits = True
            printed = self._polynomial(index)
            self._in_64_bits = False
            return _atom(printed) if printed.precedence == _ATOM else f"({printed.text})"
        printed = self._polynomial(index)
        if any(isinstance(a, Var) and self.places[a].counted for a in index.atoms()) and not self.index_axes(index):
            return f"tl.full([], {printed.text}, tl.int64)"
        if index.constant is not None:
            return printed.text
        if self.scope.wide:
            return printed.text if printed.precedence == _ATOM else f"({printed.text})"
        if not self.index_axes(index) and not _has_places(index):
            return printed.text if printed.precedence == _ATOM else f"({printed.text})"
        return f"{_atom(printed)}.to(tl.int64)"

    def _call(self, e: Call) -> Printed:
        if e.op == "cast":
            return self._cast(e)
        if e.op in COMPARISONS and (narrow := self._narrow_comparison(e)) is not None:
            return narrow
        if (scaled := self._scaled_weight(e)) is not None:
            return scaled
        if self._is_of_softmax(e):
            return Printed(f"tl.exp2({_factor(self._print(e.args[0]))} * {LOG2_E})")
        if (quotient := self._by_number(e)) is not None:
            return quotient
        row = OPS[e.op]
        operands = self._branches(e) if e.op == "where" else [self._print(a) for a in e.args]
        spelling = row.triton_spelling
        if e.args and DTYPES[e.args[-1].dtype].kind == "f":
            spelling = FLOAT_FORMS.get(e.op, spelling)
        else:
            spelling = INTEGER_FORMS.get(e.op, spelling)
        if any(spelling.pattern.count(f"{{{i}}}") > 1 for i in range(row.arity)):
            operands = [self._name(p) if p.precedence < _ATOM or "(" in p.text else p for p in operands]
        if row.header:
            operands = [_tensor(a, p) for a, p in zip(e.args, operands, strict=True)]
            if e.dtype == "f32" and e.op not in OF_THEIR_TYPE and row.header != GPU_ALONE:  # computed in float64
                operands = [Printed(f"{_atom(p)}.to(tl.float64)") for p in operands]
                return Printed(f"{spell(row, 'triton', operands).text}.to(tl.float32)")
        elif e.op in INTEGER_FORMS and spelling is INTEGER_FORMS[e.op]:
            operands = [_tensor(a, p) for a, p in zip(e.args, operands, strict=True)]
        elif all(_is_number(a) for a in e.args):  # Triton's functions want a tensor
            operands[0] = _tensor(e.args[0], operands[0])
        elif (
            e.op == "where" and e.dtype == "i64" and all(self._is_scalar(a) for a in e.args[1:])
        ):  # two of them were int32
            operands[1] = Printed(f"tl.full([], {operands[1].text}, tl.int64)")
        if spelling is row.triton_spelling:
            return spell(row, "triton", operands)
        pairs = zip(operands, spelling.operands, strict=True)
        texts = [o.text if o.precedence >= needed else f"({o.text})" for o, needed in pairs]
        return Printed(spelling.pattern.format(*texts), spelling.precedence)

    def _by_number(self, e: Call) -> Printed | None:
        """A quotient of a float32 by a number (the elements of a mean): as a product in float64, which no other way of
        rounding correctly is as short as. Where the quotient is not exact, it is further from a tie than its error."""
        if e.op != "div" or e.dtype != "f32" or not isinstance(e.args[1], Const) or _is_number(e.args[0]):
            return None
        divisor = float(e.args[1].value)
        if not (math.isfinite(divisor) and divisor):
            return None
        wide = f"{_atom(self._print(e.args[0]))}.to(tl.float64)"
        return Printed(f"({wide} * {1 / divisor!r}).to(tl.float32)")

    def _is_scalar(self, e: Expr) -> bool:
        """Whether it is a number, or an index that 32 bits may hold."""
        return isinstance(e, (Const, IndexValue)) and not self.axes(e)

    def _scaled_weight(self, e: Call) -> Printed | None:
        """A weight of a softmax times a value whose logarithm is at hand: one exponential of a sum."""
        if e.op != "mul" or not (isinstance(weight := e.args[0], Call) and isinstance(scale := e.args[1], Load)):
            return None
        if (scale.buffer, scale.index) not in self.logarithms or not self._is_of_softmax(weight):
            return None
        log = self.logarithms[(scale.buffer, scale.index)]
        return Printed(f"tl.exp2(tl.fma({self._print(weight.args[0]).text}, {LOG2_E}, {log}))")

    def _is_of_softmax(self, e: Expr) -> bool:
        """Whether it is one of a softmax: of a row without its largest value. Among the others of its row one that is
        too small for a normal number may be zero."""
        if not (isinstance(e, Call) and e.op in ("exp", "exp_weight") and DTYPES[e.dtype].compute == "f32"):
            return False
        (shifted,) = e.args
        if not (isinstance(shifted, Call) and shifted.op == "sub"):
            return False
        value, top = shifted.args
        at_hand = isinstance(top, Load) and (top.buffer, top.index) in self.known
        return at_hand and set(self.axes(top)) < set(self.axes(value))

    def _branches(self, e: Call) -> list[Printed]:
        """The operands of `where`; loads that only one side wants are masked rather than clamped."""
        condition = self._print(e.args[0])
        printed = [condition]
        for arg, holds in ((e.args[1], True), (e.args[2], False)):
            known = facts(e.args[0], holds)
            if not self.axes(e.args[0]) or not any(plain(load.index, known) != load.index for load in arg.loads):
                printed.append(self._print(arg))
                continue
            condition = printed[0] = self._done[e.args[0]] = self._name(condition)
            text = condition.text if holds else f"~{condition.text}"
            before, done = self._within, dict(self._done)
            self._within = (*before, (tuple(known), text, self.axes(e.args[0])))
            printed.append(self._print(arg))
            self._within, self._done = before, done
        return printed

    def _narrow_comparison(self, e: Call) -> Printed | None:
        """Positions are compared as they are, without becoming 64-bit values."""
        if not all(isinstance(a, (IndexValue, Const)) for a in e.args) or self.scope.wide:
            return None
        if all(_is_number(a) for a in e.args) or any(
            isinstance(a, IndexValue) and not fits_int32(a.index) for a in e.args
        ):
            return None
        operands = [self._polynomial(a.index) if isinstance(a, IndexValue) else literal(a) for a in e.args]  # type: ignore[arg-type]
        return spell(OPS[e.op], "triton", operands)

    def _cast(self, e: Call) -> Printed:
        (source,) = e.args
        half = e.dtype in ("f16", "bf16") and source.dtype == "f32"
        if half and isinstance(source, Call) and source.op in HALF_FORMS:
            return Printed(HALF_FORMS[source.op].format(*(self._print(a).text for a in source.args)))
        # torch converts floats to bytes by way of int64, to other integers by way of int32
        way = "i64" if e.dtype == "i64" or (e.dtype == "u8" and DTYPES[source.dtype].kind == "f") else "i32"
        if isinstance(source, Const) and DTYPES[e.dtype].kind == "i" and not fits_integer(source):
            source = _saturated(source, way)
        inner = self._print(source)
        before, after = DTYPES[source.dtype].compute, DTYPES[e.dtype].compute
        if e.dtype in ("f16", "bf16") and before == "f32":
            return inner  # rounded once, when it is stored
        text = _atom(_tensor(source, inner))
        if e.dtype == "bool":
            return Printed(f"{text if text != inner.text else _operand(inner)} != 0", Precedence.COMPARE)
        if before == "bool" and source.dtype == "bool" and DTYPES[e.dtype].kind == "f":
            return Printed(f"{text}.to({TL_DTYPE[after]})")
        if e.dtype in ("u8", "i8", "i16"):
            narrow = {"u8": "tl.uint8", "i8": "tl.int8", "i16": "tl.int16"}[e.dtype]
            wide = f"{text}.to({TL_DTYPE[way]})" if before != "i32" else text
            return Printed(f"{wide}.to({narrow}).to(tl.int32)")
        return inner if before == after else Printed(f"{text}.to({TL_DTYPE[after]})")

    # memory ----------------------------------------------------------------------------------------------------------
    def _load(self, e: Load) -> Printed:
        known = self.known.get((e.buffer, e.index))
        if known is not None:
            return Printed(known.text)
        index, masks = e.index, []
        whole = set(self.index_axes(e.index))
        for true, condition, axes in self._within:
            moved = plain(index, true)
            if moved != index and set(axes) <= whole == set(self.index_axes(moved)):  # pointers as wide as their masks
                index = moved
                masks.append(condition)
        text = self._loaded(e, index, masks)
        compute = DTYPES[e.buffer.dtype].compute
        return Printed(text if compute == e.buffer.dtype else f"{text}.to({TL_DTYPE[compute]})")

    def _loaded(self, e: Load, index: Index, masks: Sequence[str]) -> str:
        """The load at an index, which is that of `e` where the masks hold."""
        return f"tl.load({self._pointer(e.buffer, index)}{self._mask(self.index_axes(e.index), masks)})"

    def _pointer(self, buffer: Buffer, index: Index) -> str:
        if self.aligned is not None and self.aligned.has(index):
            return _plus(self.scope.buffer(buffer), self.aligned.place)
        return _plus(self.scope.buffer(buffer), self.index(index))

    def _mask(self, axes: Axes, more: Sequence[str] = ()) -> str:
        needed = [*(self.masks[a] for a in axes if self.masks.get(a)), *more]
        return f", mask={' & '.join(needed)}" if needed else ""

    # indices ---------------------------------------------------------------------------------------------------------
    def index(self, index: Index) -> str:
        """An index as text; its type is i32 (i64 when the kernel's are)."""
        return self._polynomial(index).text

    def _polynomial(self, index: Index) -> Printed:
        parts: list[str] = []
        single = len(index.terms) == 1
        precedence = _ATOM if single else Precedence.SUM
        for monomial, c in sorted(index.terms.items(), key=lambda t: (not t[0], t[1] < 0)):
            factors = [self._factor(a) for a in monomial]
            if abs(c) != 1 or not factors:
                factors.append(str(abs(c)))
            text = " * ".join(factors)
            if single and (len(factors) > 1 or c < 0):
                precedence = Precedence.PRODUCT if c > 0 else Precedence.SUM
            elif single and monomial:
                precedence = self._atom_text(monomial[0]).precedence
            if not parts:
                parts.append(f"-{text}" if c < 0 else text)
            else:
                parts.append(f"{'-' if c < 0 else '+'} {text}")
        return Printed(" ".join(parts) or "0", precedence)

    def _factor(self, atom: Atom) -> str:
        printed = self._atom_text(atom)
        return printed.text if printed.precedence >= _ATOM else f"({printed.text})"

    def _atom_text(self, atom: Atom) -> Printed:
        match atom:
            case Size():
                return self._in_width(Printed(self.scope.size(atom)))
            case Var():
                place = self.places[atom]
                return self._in_width(Printed(place.text, place.precedence), place.counted)
            case Indirect():
                return self._in_width(Printed(self._checked(atom)))
            case Binary():
                return self._binary(atom)
        raise TypeError(type(atom).__name__)

    def _in_width(self, printed: Printed, counted: bool = False) -> Printed:
        """A part of an index, which may be computed in 64 bits."""
        if not self._in_64_bits:
            return printed
        return Printed(f"tl.full([], {printed.text}, tl.int64)" if counted else f"{_atom(printed)}.to(tl.int64)")

    def _binary(self, atom: Binary) -> Printed:
        a, b = self._polynomial(atom.a), self._polynomial(atom.b)
        if atom.op in ("//", "%"):
            if not atom.a.nonnegative():  # Triton's // and % truncate
                return spell(
                    OPS["floor_div" if atom.op == "//" else "remainder"], "triton", [self._name(a), self._name(b)]
                )
            right = b.text if b.precedence == _ATOM else f"({b.text})"
            left = (
                a.text
                if a.precedence >= Precedence.PRODUCT and " % " not in a.text and " // " not in a.text
                else f"({a.text})"
            )
            return Printed(f"{left} {atom.op} {right}", Precedence.PRODUCT)
        moving = self.index_axes(atom.a) or self.index_axes(atom.b)
        name = "minimum" if atom.op == "min" else "maximum"
        del moving
        return Printed(f"tl.{name}({a.text}, {b.text})")

    def _checked(self, atom: Indirect) -> str:
        """An index from memory, in range: a bad one is reported through the status word and read as 0."""
        if atom not in self._indirect:
            assert isinstance(atom.value, Expr)
            axes = self.axes(atom.value)
            at = self._name(self._print(atom.value)).text
            extent = self.index(atom.extent)
            name = f"at{len(self._indirect)}_{self.stem}" if self.stem != "t" else f"at{len(self._indirect)}"
            if atom.wrap:
                self.lines.append(f"{name} = tl.where({at} < 0, {at} + {extent}, {at})")
            else:
                self.lines.append(f"{name} = {at}")
            bad = f"({name} < 0) | ({name} >= {extent})"
            needed = [self.masks[a] for a in axes if self.masks.get(a)]
            mask = " & ".join([*needed, f"({bad})"]) if needed else bad
            self.scope.checks = True
            self.lines.append(f"report({STATUS}, {LAUNCH}, {mask})")
            narrow = "" if self.scope.wide else ".to(tl.int32)"
            self.lines.append(f"{name} = tl.where({bad}, 0, {name}){narrow}")
            self._indirect[atom] = name
        return self._indirect[atom]


def _copied(s: Store) -> Load | None:
    """The load whose element is stored as it is: a half type then needs no float32 in between."""
    value = s.value
    while isinstance(value, Call) and value.op == "cast" and value.dtype in (s.buffer.dtype, "f32"):
        (value,) = value.args
    same = isinstance(value, Load) and value.buffer.dtype == s.buffer.dtype
    return value if same and s.buffer.dtype in ("f16", "bf16") else None  # type: ignore[return-value]


def _plus(name: str, index: str) -> str:
    return name if index == "0" else f"{name} + {index}"


def _is_number(e: Expr) -> bool:
    return isinstance(e, Const) or (isinstance(e, IndexValue) and e.index.constant is not None)


def _is_atom(index: Index) -> bool:
    """Whether it is a size or a loop variable alone, which 32 bits hold."""
    return any(index == of(a) for a in index.atoms() if isinstance(a, (Size, Var)))


def _needs_type(c: Const) -> bool:
    """Whether a number has to say its type: Triton takes it for a float32, or for a float64 where it is subnormal."""
    compute, value = DTYPES[c.dtype].compute, abs(float(c.value))
    return compute == "f64" or (compute == "f32" and 0 < value < LEAST_NORMAL)


def _saturated(c: Const, dtype: str) -> Const:
    """A number that no integer holds, as NVIDIA's conversion has it: the nearest one that is held, 0 for NaN. The
    compiler of the kernels would take it for undefined."""
    limit, value = 2 ** (8 * DTYPES[dtype].size - 1), float(c.value)
    if math.isnan(value):
        return Const(0, dtype)
    return Const(-limit if value <= -limit else limit - 1 if value >= limit else int(value), dtype)


def _tensor(e: Expr, printed: Printed) -> Printed:
    """A number as a tensor; all else is one."""
    if not _is_number(e) or printed.text.startswith("tl.full"):
        return printed
    return Printed(f"tl.full([], {printed.text}, {TL_DTYPE[DTYPES[e.dtype].compute]})")


def _atom(printed: Printed) -> str:
    return printed.text if printed.precedence >= _ATOM else f"({printed.text})"


def _factor(printed: Printed) -> str:
    return printed.text if printed.precedence >= Precedence.PRODUCT else f"({printed.text})"


def _operand(printed: Printed) -> str:
    return printed.text if printed.precedence > Precedence.COMPARE else f"({printed.text})"


def _union(groups: Iterable[Axes]) -> Axes:
    return tuple(dict.fromkeys(a for g in groups for a in g))


def _has_places(index: Index) -> bool:
    return any(isinstance(a, (Var, Indirect)) for a in index.atoms())


def literal(c: Const) -> Printed:
    """A constant as Triton text; a number takes the type of the tensor that it meets."""
    dtype = DTYPES[c.dtype].compute
    if dtype == "bool":
        return Printed("True" if c.value else "False")
    if dtype in ("i32", "i64"):
        number = int(c.value)
        return Printed(str(number), _ATOM if number >= 0 else Precedence.UNARY)
    real = float(c.value)
    if real != real:
        return Printed('float("nan")')
    if real == 0 and math.copysign(1.0, real) < 0:  # Triton's own constants have no -0
        return Printed(f"tl.full([], 0.0, {TL_DTYPE[dtype]}) * -1.0", Precedence.PRODUCT)
    if real in (float("inf"), float("-inf")):
        return Printed('float("inf")') if real > 0 else Printed('float("-inf")')
    return Printed(_digits(real, c.dtype), _ATOM if real >= 0 else Precedence.UNARY)


def _digits(number: float, dtype: str) -> str:
    """The shortest decimal that reads back as the same number, and that Triton does not take for a float64, as it does
    with the shortest one of the largest float32."""
    import numpy as np

    if dtype == "f64":
        text = repr(number)
    else:
        rounded, largest = np.float32(number), float(np.finfo(np.float32).max)
        text = str(rounded)
        if np.isfinite(rounded) and abs(float(text)) > largest:
            text = repr(float(rounded))
    return text if any(ch in text for ch in ".en") else text + ".0"

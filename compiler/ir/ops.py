"""The scalar operators of the loop IR: one row each, the only source of their spelling, meaning and tolerance.

    OPS["lt"].cpp                      "lt({0}, {1})"
    spell(OPS["sub"], "cpp", (Printed("a", ATOM), Printed("b + c", SUM))).text      "a - (b + c)"

The C++ spellings use the functions of kernels/vec/vec.h and math.h, which take scalars and vectors alike.
The reference of a row takes torch tensors of float64, int64 or bool; torch is imported only when one is called. The
tests of the operators are made from the rows: see tests/ops/test_op_table.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal

from ...runtime.errors import CompileError
from .dtypes import DTYPES
from .philox import random_normal, random_normal_wide, random_unit, random_word
from .special_ops import SPECIAL_FUNCTIONS

if TYPE_CHECKING:
    import torch

Language = Literal["cpp", "triton"]
Domain = tuple[float, float]

INF = float("inf")
ANY: Domain = (-INF, INF)


class Precedence(IntEnum):
    """How tightly the top operator of a text binds. Python's order; C++'s is the same for the operators used in C++."""

    LOWEST = 0
    COMPARE = 1
    BIT_OR = 2
    BIT_XOR = 3
    BIT_AND = 4
    SHIFT = 5
    SUM = 6
    PRODUCT = 7
    UNARY = 8
    ATOM = 9


@dataclass(frozen=True)
class Printed:
    """A piece of code and the precedence of its top operator."""

    text: str
    precedence: Precedence = Precedence.ATOM

    def within(self, needed: Precedence) -> str:
        """The text where an operand has to bind so tightly: with parentheses if it does not."""
        return self.text if self.precedence >= needed else f"({self.text})"


@dataclass(frozen=True)
class Spelling:
    """A pattern with {0}, {1}, ..: how it binds and how tightly each operand must bind to need no parentheses.

    Triton patterns may name an operand twice: print operands that are not names to a variable first.
    """

    pattern: str
    precedence: Precedence
    operands: tuple[Precedence, ...]


@dataclass(frozen=True)
class ScalarOp:
    """One row of the table.

    accepts: kinds of operands, "f"(loat), "i"(nt), "b"(ool); all operands have one dtype, but the first of `where`
    is bool. result: "same" (the dtype of the operands; of the last one for `where`), "bool", or "cast" (see `to`).
    ulps: tolerance in units in the last place of float32 against the reference in float64; 0 is exact, that is rounded
    correctly. It holds for the C++ spelling; Triton's functions have their own.
    types: the element types of the operands, where not all of the kinds.
    domain: the interval where tests draw float operands; integers are drawn over their whole range.
    header: of kernels/, for an operator that math.h does not have; in Triton it is a function of
    templates/cuda/special.py.j2, whose operands are tensors. Its tests are in test_special.py.
    """

    name: str
    arity: int
    accepts: frozenset[str]
    result: str
    reference: Callable[..., torch.Tensor]
    cpp_spelling: Spelling
    triton_spelling: Spelling
    ulps: float = 0.0
    domain: Domain = ANY
    to: str = ""
    header: str = ""
    types: tuple[str, ...] = ()

    @property
    def cpp(self) -> str:
        return self.cpp_spelling.pattern

    @property
    def triton(self) -> str:
        return self.triton_spelling.pattern

    @property
    def precedence(self) -> Precedence:
        return self.cpp_spelling.precedence


#: operators whose functions in templates/cuda call a library's
OF_A_LIBRARY = frozenset(
    (
        *("digamma", "erfinv", "ndtri", "erfcx", "i0", "i1", "k0", "k1", "scaled_k0", "scaled_k1", "j0", "j1", "y0"),
        *("y1", "airy_ai", "zeta", "polygamma", "igamma", "igammac", "nextafter", "hermite_h", "hermite_he"),
        *("laguerre_l", "legendre_p", "random_normal", "random_normal_wide"),
        *(f"{shifted}chebyshev_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
    )
)
#: those of floats alone
FLOATS_OF_A_LIBRARY = frozenset(("floor_div", "remainder", "trunc_div", "fmod"))


def of_a_library(op: str, dtype: str) -> bool:
    """Whether an operator on operands of a type calls a function of the GPU's library; casts do not."""
    if op == "cast":
        return False
    floats = op in FLOATS_OF_A_LIBRARY and DTYPES[dtype].kind == "f"
    return op in OF_A_LIBRARY or floats or "libdevice." in OPS[op].triton


def spell(op: ScalarOp, language: Language, operands: Sequence[Printed]) -> Printed:
    """The operator applied to printed operands, with the parentheses it needs and no others."""
    spelling = op.cpp_spelling if language == "cpp" else op.triton_spelling
    if not spelling.pattern:
        raise CompileError(f"{op.name} is not supported on this target")
    if len(operands) != op.arity:
        raise ValueError(f"{op.name} takes {op.arity} operands, not {len(operands)}")
    pairs = zip(operands, spelling.operands, strict=True)
    texts = [o.within(needed) for o, needed in pairs]
    return Printed(spelling.pattern.format(*texts), spelling.precedence)


class _Table(Mapping[str, ScalarOp]):
    """The rows by name; an unknown name is a KeyError that tells the near ones."""

    def __init__(self, rows: Sequence[ScalarOp]) -> None:
        self._rows = {row.name: row for row in rows}
        if len(self._rows) != len(rows):
            raise ValueError("two operators have one name")

    def __getitem__(self, name: str) -> ScalarOp:
        try:
            return self._rows[name]
        except KeyError:
            near = difflib.get_close_matches(name, self._rows, n=4, cutoff=0.5)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise KeyError(f"no scalar operator is named {name!r}{hint}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _call(function: str, arity: int) -> Spelling:
    arguments = ", ".join(f"{{{i}}}" for i in range(arity))
    return Spelling(f"{function}({arguments})", Precedence.ATOM, (Precedence.LOWEST,) * arity)


def _infix(operator: str, precedence: Precedence) -> Spelling:
    """Left associative; comparisons do not chain."""
    tighter = Precedence(precedence + 1)
    left = tighter if precedence == Precedence.COMPARE else precedence
    return Spelling(f"{{0}} {operator} {{1}}", precedence, (left, tighter))


def _prefix(operator: str) -> Spelling:
    """The operand must be an atom: `--x` would be another operator in C++."""
    return Spelling(f"{operator}{{0}}", Precedence.UNARY, (Precedence.ATOM,))


def _text(pattern: str, arity: int) -> Spelling:
    """A pattern that keeps its operands apart by itself: each is printed as an atom."""
    return Spelling(pattern, Precedence.ATOM, (Precedence.ATOM,) * arity)


def _torch(path: str) -> Callable[..., Any]:
    """torch's function at a dotted path, looked up when it is called."""

    def reference(*operands: Any, **options: Any) -> Any:
        import torch

        function: Any = torch
        for name in path.split("."):
            function = getattr(function, name)
        return function(*operands, **options)

    return reference


def _row(
    name: str,
    accepts: str,
    result: str,
    reference: Callable[..., Any] | str,
    cpp: Spelling | str,
    triton: Spelling | str,
    *,
    arity: int = 1,
    ulps: float = 0.0,
    domain: Domain = ANY,
    to: str = "",
    header: str = "",
    types: tuple[str, ...] = (),
) -> ScalarOp:
    return ScalarOp(
        name=name,
        arity=arity,
        accepts=frozenset(accepts),
        result=result,
        reference=_torch(reference) if isinstance(reference, str) else reference,
        cpp_spelling=_call(cpp, arity) if isinstance(cpp, str) else cpp,
        triton_spelling=_call(triton, arity) if isinstance(triton, str) else triton,
        ulps=ulps,
        domain=domain,
        to=to,
        header=header,
        types=types,
    )


def _no_zero(function: str, **options: str) -> Callable[..., Any]:
    """torch's integer division, which raises on zero, as the kernels do it: 0, the kernel reports the error itself."""

    def reference(a: Any, b: Any) -> Any:
        import torch

        divide = getattr(torch, function)
        if a.is_floating_point():
            return divide(a, b, **options)
        safe = torch.where(b == 0, torch.ones_like(b), b)
        return torch.where(b == 0, torch.zeros_like(a), divide(a, safe, **options))

    return reference


def _gelu_erf(x: Any) -> Any:
    """gelu through erfc, which keeps the digits of the left tail that 1 + erf(x) cancels."""
    import torch

    return 0.5 * x * torch.special.erfc(x * -(0.5**0.5))


def _gelu_tanh(x: Any) -> Any:
    """0.5 x (1 + tanh u) as x sigmoid(2u), which keeps the digits of the left tail."""
    import torch

    return x / (1 + torch.exp(-2 * (2 / torch.pi) ** 0.5 * (x + 0.044715 * x * x * x)))


def _fma(a: Any, b: Any, c: Any) -> Any:
    """a b + c; what is rounded once on a target that can, the product of float32 numbers is exact here."""
    return a * b + c


_S, _P = Precedence.SUM, Precedence.PRODUCT
_SIGN = _text("(({0} > 0).to({0}.dtype) - ({0} < 0).to({0}.dtype))", 1)
_NAN_WINS = "propagate_nan=tl.PropagateNan.ALL"

_ARITHMETIC = (
    #    name           kinds  result  reference          C++                 Triton
    _row("add", "fi", "same", "add", _infix("+", _S), _infix("+", _S), arity=2),
    _row("sub", "fi", "same", "sub", _infix("-", _S), _infix("-", _S), arity=2),
    _row("mul", "fi", "same", "mul", _infix("*", _P), _infix("*", _P), arity=2),
    _row("mul_rn", "f", "same", "mul", _infix("*", _P), "libdevice.mul_rn", arity=2),  # is no part of an FMA on GPUs
    # of numbers that 16 bits hold
    _row("mul_words", "i", "same", "mul", "mul_words", _infix("*", _P), arity=2, types=("i32",)),
    _row("div", "f", "same", "true_divide", _infix("/", _P), "divided", arity=2),  # Triton's own is rounded otherwise
    _row(
        "floor_div",
        "fi",
        "same",
        _no_zero("floor_divide"),
        "floor_div",
        _text("(({0} // {1}) - ((({0} % {1}) != 0) & (({0} < 0) != ({1} < 0))))", 2),
        arity=2,
    ),
    _row(
        "remainder",
        "fi",
        "same",
        _no_zero("remainder"),
        "remainder",
        _text("(({0} % {1}) + {1} * ((({0} % {1}) != 0) & (({0} < 0) != ({1} < 0))))", 2),
        arity=2,
    ),
    _row("trunc_div", "fi", "same", _no_zero("div", rounding_mode="trunc"), "trunc_div", _infix("//", _P), arity=2),
    _row("fmod", "fi", "same", _no_zero("fmod"), "fmod", _infix("%", _P), arity=2),
    _row("fma", "f", "same", _fma, "fma", "tl.fma", arity=3),
    _row("neg", "fi", "same", "neg", _prefix("-"), _prefix("-")),
    _row("abs", "fi", "same", "abs", "abs", "tl.abs"),
    _row("sign", "fi", "same", "sign", "sign", _SIGN),
    _row("reciprocal", "f", "same", "reciprocal", "reciprocal", _text("(1.0 / {0})", 1)),
    _row("sqrt", "f", "same", "sqrt", "sqrt", "square_root"),
    _row("rsqrt", "f", "same", "rsqrt", "rsqrt", "tl.rsqrt", ulps=1.5),
    _row("copysign", "f", "same", "copysign", "copysign", "libdevice.copysign", arity=2),
    _row("hypot", "f", "same", "hypot", "hypot", "libdevice.hypot", arity=2, ulps=1),
    _row("floor", "f", "same", "floor", "floor", "tl.floor"),
    _row("ceil", "f", "same", "ceil", "ceil", "tl.ceil"),
    _row("round", "f", "same", "round", "round", "libdevice.rint"),
    _row("trunc", "f", "same", "trunc", "trunc", "libdevice.trunc"),
    _row(
        "maximum",
        "fib",
        "same",
        "maximum",
        "maximum",
        Spelling(f"tl.maximum({{0}}, {{1}}, {_NAN_WINS})", Precedence.ATOM, (Precedence.LOWEST,) * 2),
        arity=2,
    ),
    _row(
        "minimum",
        "fib",
        "same",
        "minimum",
        "minimum",
        Spelling(f"tl.minimum({{0}}, {{1}}, {_NAN_WINS})", Precedence.ATOM, (Precedence.LOWEST,) * 2),
        arity=2,
    ),
    _row("fmax", "f", "same", "fmax", "fmax", "tl.maximum", arity=2),
    _row("fmin", "f", "same", "fmin", "fmin", "tl.minimum", arity=2),
)

_MATHS = (
    _row("exp", "f", "same", "exp", "exp", "tl.exp", ulps=2),
    _row("exp_weight", "f", "same", "exp", "exp_weight", "tl.exp", ulps=16, domain=(-20.0, 0.0)),  # of a softmax
    _row("exp2", "f", "same", "exp2", "exp2", "tl.exp2", ulps=2),
    _row("expm1", "f", "same", "expm1", "expm1", "libdevice.expm1", ulps=2),
    _row("log", "f", "same", "log", "log", "tl.log", ulps=2),
    _row("log2", "f", "same", "log2", "log2", "tl.log2", ulps=2),
    _row("log10", "f", "same", "log10", "log10", "libdevice.log10", ulps=2),
    _row("log1p", "f", "same", "log1p", "log1p", "libdevice.log1p", ulps=2),
    _row("pow", "fi", "same", "pow", "pow", "libdevice.pow", arity=2, ulps=4),
    _row("sin", "f", "same", "sin", "sin", "tl.sin", ulps=2),
    _row("cos", "f", "same", "cos", "cos", "tl.cos", ulps=2),
    _row("tan", "f", "same", "tan", "tan", "libdevice.tan", ulps=4),
    _row("asin", "f", "same", "asin", "asin", "libdevice.asin", ulps=2),
    _row("acos", "f", "same", "acos", "acos", "libdevice.acos", ulps=2),
    _row("atan", "f", "same", "atan", "atan", "libdevice.atan", ulps=2),
    _row("atan2", "f", "same", "atan2", "atan2", "libdevice.atan2", arity=2, ulps=2),
    _row("sinh", "f", "same", "sinh", "sinh", "libdevice.sinh", ulps=2),
    _row("cosh", "f", "same", "cosh", "cosh", "libdevice.cosh", ulps=2),
    _row("tanh", "f", "same", "tanh", "tanh", "libdevice.tanh", ulps=2),
    _row("asinh", "f", "same", "asinh", "asinh", "libdevice.asinh", ulps=2),
    _row("acosh", "f", "same", "acosh", "acosh", "libdevice.acosh", ulps=2),
    _row("atanh", "f", "same", "atanh", "atanh", "libdevice.atanh", ulps=2),
    _row("erf", "f", "same", "special.erf", "erf", "libdevice.erf", ulps=2),
    _row("erfc", "f", "same", "special.erfc", "erfc", "libdevice.erfc", ulps=2),
    _row("lgamma", "f", "same", "lgamma", "lgamma", "libdevice.lgamma", ulps=4),
    _row("sigmoid", "f", "same", "sigmoid", "sigmoid", "tl.sigmoid", ulps=2),
    _row("silu", "f", "same", "nn.functional.silu", "silu", _text("({0} * tl.sigmoid({0}))", 1), ulps=2),
    _row(
        "gelu_erf",
        "f",
        "same",
        _gelu_erf,
        "gelu_erf",
        _text("(0.5 * {0} * (1.0 + libdevice.erf({0} * 0.7071067811865476)))", 1),
        ulps=2,
    ),
    _row(
        "gelu_tanh",
        "f",
        "same",
        _gelu_tanh,
        "gelu_tanh",
        _text("({0} * tl.sigmoid(1.5957691216057308 * ({0} + 0.044715 * {0} * {0} * {0})))", 1),
        ulps=2,
    ),
)

_LOGIC = (
    *(
        _row(name, "fib", "bool", name, name, _infix(operator, Precedence.COMPARE), arity=2)
        for name, operator in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))
    ),
    _row("logical_and", "fib", "bool", "logical_and", "logical_and", _text("(({0} != 0) & ({1} != 0))", 2), arity=2),
    _row("logical_or", "fib", "bool", "logical_or", "logical_or", _text("(({0} != 0) | ({1} != 0))", 2), arity=2),
    _row("logical_xor", "fib", "bool", "logical_xor", "logical_xor", _text("(({0} != 0) ^ ({1} != 0))", 2), arity=2),
    _row("logical_not", "fib", "bool", "logical_not", "logical_not", _text("({0} == 0)", 1)),
    _row("isnan", "f", "bool", "isnan", "isnan", _text("({0} != {0})", 1)),
    _row("isinf", "f", "bool", "isinf", "isinf", _text('(tl.abs({0}) == float("inf"))', 1)),
    _row("isfinite", "f", "bool", "isfinite", "isfinite", _text('(tl.abs({0}) < float("inf"))', 1)),
    _row("where", "fib", "same", "where", "where", "tl.where", arity=3),
    _row("bit_and", "ib", "same", "bitwise_and", "bit_and", _infix("&", Precedence.BIT_AND), arity=2),
    _row("bit_or", "ib", "same", "bitwise_or", "bit_or", _infix("|", Precedence.BIT_OR), arity=2),
    _row("bit_xor", "ib", "same", "bitwise_xor", "bit_xor", _infix("^", Precedence.BIT_XOR), arity=2),
    _row("bit_not", "ib", "same", "bitwise_not", "bit_not", _prefix("~")),
    _row("shift_left", "i", "same", "bitwise_left_shift", "shift_left", "shift_left", arity=2),
    _row("shift_right", "i", "same", "bitwise_right_shift", "shift_right", "shift_right", arity=2),
)


def _cast_row(dtype: str, torch_name: str, triton_name: str) -> ScalarOp:
    def reference(x: Any) -> Any:
        import torch

        return x.to(getattr(torch, torch_name))

    triton = _text(f"{{0}}.to(tl.{triton_name})", 1)
    return _row(f"to_{dtype}", "fib", "cast", reference, f"to_{dtype}", triton, to=dtype)


_CASTS = (
    _cast_row("bool", "bool", "int1"),
    _cast_row("u8", "uint8", "uint8"),
    _cast_row("i8", "int8", "int8"),
    _cast_row("i16", "int16", "int16"),
    _cast_row("i32", "int32", "int32"),
    _cast_row("i64", "int64", "int64"),
    _cast_row("f16", "float16", "float16"),
    _cast_row("bf16", "bfloat16", "bfloat16"),
    _cast_row("f32", "float32", "float32"),
    _cast_row("f64", "float64", "float64"),
)

#: the nearest integer, of two the even one, of a float that has one of 32 bits
_NEAREST = _row(
    "nearest_i32", "f", "cast", lambda x: x.round(), "nearest_i32", _text("libdevice.rint({0}).to(tl.int32)", 1),
    to="i32", types=("f32",), domain=(-2.0e9, 2.0e9),
)  # fmt: skip


def _bit_rows(dtype: str, torch_name: str, word: str) -> tuple[ScalarOp, ScalarOp]:
    """The bits of a float as an integer of type `word`, and the float that has such bits: of a narrow float it rounds
    to it first, and takes the lowest bits."""
    size = {"f64": 64, "f32": 32}.get(dtype, 16)
    wide = DTYPES[dtype].compute

    def there(x: Any) -> Any:
        import torch

        bits = x.to(getattr(torch, torch_name)).view(getattr(torch, f"int{size}"))
        return bits.to(torch.int64) & 0xFFFF if size == 16 else bits

    def back(x: Any) -> Any:
        import torch

        return x.to(getattr(torch, f"int{size}")).view(getattr(torch, torch_name))

    narrow, own = f"tl.int{size}", f"tl.{torch_name}"
    rounded = f"{{0}}.to({own}).to({narrow}, bitcast=True)" if size == 16 else f"{{0}}.to({narrow}, bitcast=True)"
    low = f"{{0}}.to({narrow}).to({own}, bitcast=True)" if size == 16 else f"{{0}}.to({own}, bitcast=True)"
    bits = _text(f"({rounded}.to(tl.int32) & 0xFFFF)" if size == 16 else rounded, 1)
    value = _text(f"{low}.to(tl.float32)" if size == 16 else low, 1)
    if dtype == "bf16":
        value = _text("({0} << 16).to(tl.float32, bitcast=True)", 1)
    return (
        _row(f"bits_of_{dtype}", "f", "cast", there, f"bits_of_{dtype}", bits, to=word, types=(wide,)),
        _row(f"{dtype}_of_bits", "i", "cast", back, f"{dtype}_of_bits", value, to=wide, types=(word,)),
    )


_BITS = (
    *_bit_rows("f64", "float64", "i64"),
    *_bit_rows("f32", "float32", "i32"),
    *_bit_rows("f16", "float16", "i32"),
    *_bit_rows("bf16", "bfloat16", "i32"),
)


def _mantissa(x: Any) -> Any:
    import torch

    return torch.frexp(x).mantissa


def _exponent(x: Any) -> Any:
    import torch

    return torch.frexp(x).exponent.to(x.dtype)


def _polygamma(order: Any, x: Any) -> Any:
    """The order is one number for all elements."""
    import torch

    return torch.polygamma(int(order.flatten()[0]), x) if order.numel() and x.numel() else x


#: special functions that torch has in another form
_NOT_OF_TENSORS: Mapping[str, Callable[..., Any]] = {
    "frexp_mantissa": _mantissa,
    "frexp_exponent": _exponent,
    "polygamma": _polygamma,
}
_SPECIAL = tuple(
    _row(name, "f", "same", made, f"special_{name}", f"special_{name}", arity=arity, ulps=8, header="math/special.h")
    for name, arity, path in SPECIAL_FUNCTIONS
    for made in [_NOT_OF_TENSORS.get(name, path)]
)

_GCD = _row("gcd", "i", "same", "gcd", "special_gcd", "special_gcd", arity=2, header="math/special.h")


#: in place of the header of an operator without a C++ spelling
GPU_ALONE = "GPUs alone"


#: on GPUs alone (lower/random/philox.py): of seed, block of words, thread and number in the block; what cuRAND and
#: torch round coarsely
_RANDOM = (
    *(
        _row(reference.__name__, "i", "same", reference, *[reference.__name__] * 2, arity=4, header=GPU_ALONE)
        for reference in (random_word, random_unit, random_normal, random_normal_wide)
    ),
    *(
        _row(f"fast_{name}", "f", "same", name, f"fast_{name}", f"libdevice.fast_{name}f", header=GPU_ALONE)
        for name in ("log", "tan")
    ),
)


def _rounding_row(dtype: str, torch_name: str) -> ScalarOp:
    """A float32 number rounded to a 16-bit type and back, on GPUs too, where a cast alone waits for the store."""

    def reference(x: Any) -> Any:
        import torch

        return x.to(getattr(torch, torch_name)).to(x.dtype)

    triton = _text(f"{{0}}.to(tl.{torch_name}).to(tl.float32)", 1)
    return _row(f"round_{dtype}", "f", "same", reference, f"to_{dtype}", triton, types=("f32",))


_ROUNDINGS = (_rounding_row("f16", "float16"), _rounding_row("bf16", "bfloat16"))

OPS: Mapping[str, ScalarOp] = _Table(
    (*_ARITHMETIC, *_MATHS, *_LOGIC, *_CASTS, _NEAREST, *_BITS, *_SPECIAL, _GCD, *_RANDOM, *_ROUNDINGS)
)


def cast_op(dtype: str) -> ScalarOp:
    """The conversion to an element type. In C++ the narrow types stay in their compute type: f16 and bf16 values are
    rounded, u8, i8 and i16 values wrapped, in vf32 and vi32."""
    return OPS[f"to_{dtype}"]

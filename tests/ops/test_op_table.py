"""The operator table: every row's C++ against its reference, as vectors, as scalars and mixed, on every ISA level.

The C++ is generated from the rows: one function per row, element type and form. float32 is drawn as random bit
patterns, numbers around 1 and around 100, and special values; the tolerance is the row's.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
from mycc.compiler.ir.ops import ANY, OPS, Precedence, Printed, ScalarOp, cast_op, spell

from ..vec.harness import LANES, builds, library, pointer, ulps, window

CPP = {"f32": "float", "f64": "double", "i32": "int32_t", "i64": "int64_t", "bool": "boolean"}
NUMPY = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "bool": np.bool_}
TYPES_OF_KIND = {"f": ("f32", "f64"), "i": ("i32", "i64"), "b": ("bool",)}
COMPUTE = {"f16": "f32", "bf16": "f32", "u8": "i32", "i8": "i32", "i16": "i32"}
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 1e-45, -1e-45, 1.2e-38, 3.4e38, -3.4e38]
COUNT = 1 << 12
# A tie of zeros: torch's own answers differ between its scalar and vector code.
#: operators whose meaning has steps that are rounded to the type of the operands
ROUNDED_STEPS = {"floor_div", "trunc_div"}
ZERO_TIES = {"maximum", "minimum", "fmax", "fmin"}

TEMPLATE = """
#include "kernels/math/math.h"
using namespace mycc;
template <class O, class F, class... A> void vectors(F f, int64_t n, O *out, const A *...in) {
  for (int64_t i = 0; i < n; i += W) store(out + i, f(load(in + i)...));
}
template <class O, class F, class... A> void scalars(F f, int64_t n, O *out, const A *...in) {
  for (int64_t i = 0; i < n; ++i) store_scalar(out + i, f(load_scalar(in + i)...));
}
template <class O, class F, class A, class B> void mixed(F f, int64_t n, O *out, const A *a, const B *b) {
  for (int64_t i = 0; i < n; i += W) {
    store(out + i, i / W % 2 ? f(load(a + i), load_scalar(b + i)) : f(load_scalar(a + i), load(b + i)));
  }
}
"""


def cases() -> list[tuple[ScalarOp, str]]:
    elsewhere = ("fma",)  # tests/vec/test_fma.py: what it rounds differs from target to target
    own = [op for op in OPS.values() if not op.header and op.name not in elsewhere]  # the others: test_special.py
    all_types = [(op, dtype) for op in own for kind in "fib" if kind in op.accepts for dtype in TYPES_OF_KIND[kind]]
    return [(op, dtype) for op, dtype in all_types if dtype in (op.types or (dtype,))]


CASES = cases()
# The baseline x86-64 takes the plain paths of machines without vector instructions of their own; tests/vec covers them.
BUILDS = [b for b in builds() if not b.endswith(":x86-64")] or builds()
SWEPT = [op.name for op in OPS.values() if op.arity == 1 and op.ulps > 0 and op.domain == ANY and not op.header]
IDS = [f"{op.name}-{dtype}" for op, dtype in CASES]


def operand_types(op: ScalarOp, dtype: str) -> list[str]:
    return ["bool", dtype, dtype] if op.name == "where" else [dtype] * op.arity


def result_type(op: ScalarOp, dtype: str) -> str:
    return {"same": dtype, "bool": "bool", "cast": COMPUTE.get(op.to, op.to)}[op.result]


def forms(op: ScalarOp) -> list[str]:
    return ["vectors", "scalars", *(["mixed"] if op.arity == 2 else [])]


def source() -> str:
    """One extern "C" function for every case and form: form_name_dtype(count, out, operands...)."""
    lines = [TEMPLATE]
    for op, dtype in CASES:
        names = "abc"[: op.arity]
        printed = spell(op, "cpp", [Printed(name) for name in names]).text
        function = f"[]({', '.join(f'auto {name}' for name in names)}) {{ return {printed}; }}"
        types, result = [CPP[t] for t in operand_types(op, dtype)], CPP[result_type(op, dtype)]
        parameters = ", ".join(f"const {t} *{name}" for t, name in zip(types, names, strict=True))
        for form in forms(op):
            head = f'extern "C" void {form}_{op.name}_{dtype}(int64_t n, {result} *out, {parameters})'
            lines.append(f"{head} {{ {form}({function}, n, out, {', '.join(names)}); }}")
    return "\n".join(lines)


SOURCE = source()


def draw_floats(op: ScalarOp, dtype: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    n = COUNT
    if dtype == "f32":
        raw = rng.integers(0, 2**32, n, dtype=np.uint32).view(np.float32)
    else:  # every exponent whose square is still a number
        raw = np.ldexp(rng.uniform(-1, 1, n), rng.integers(-500, 500, n))
    near, far = rng.standard_normal(n) * 2, rng.uniform(-120, 120, n)
    whole = rng.integers(-40, 40, n)
    with np.errstate(invalid="ignore"):
        x = np.concatenate([raw, near, far, whole, np.resize(SPECIAL, 64)]).astype(NUMPY[dtype])
    low, high = op.domain
    x = x[np.isnan(x) | ((x >= low) & (x <= high))]
    return np.resize(x, 4 * COUNT)


def draw_integers(op: ScalarOp, dtype: str, seed: int, place: int) -> np.ndarray:
    """The whole range, small numbers and the ends but the smallest: torch traps when it is divided by -1."""
    rng = np.random.default_rng(seed)
    info = np.iinfo(NUMPY[dtype])
    n = COUNT
    if op.name == "pow" and place == 1:
        return rng.integers(0, 40, 4 * n).astype(NUMPY[dtype])
    if op.name == "mul_words":
        return rng.integers(-(2**15), 2**15, 4 * n).astype(NUMPY[dtype])
    if op.name.startswith("shift") and place == 1:
        return rng.integers(-3, info.bits + 3, 4 * n).astype(NUMPY[dtype])
    raw = rng.integers(info.min, info.max, n, dtype=NUMPY[dtype], endpoint=True)
    raw = np.maximum(raw, info.min + 1)
    raw >>= rng.integers(0, info.bits, n).astype(NUMPY[dtype])
    ends = np.array([info.max, info.min + 1, 0, 1, 2, 7], NUMPY[dtype])
    return np.resize(np.concatenate([raw, rng.integers(-9, 9, n).astype(NUMPY[dtype]), ends]), 4 * n)


def draw(op: ScalarOp, dtype: str) -> list[np.ndarray]:
    """Operands; pairs of special values meet in the first elements of operators with two float operands."""
    operands = []
    for place, t in enumerate(operand_types(op, dtype)):
        seed = 10 * place + len(op.name)
        if t == "bool":
            operands.append(np.random.default_rng(seed).integers(0, 2, 4 * COUNT).astype(bool))
        elif t[0] == "f":
            operands.append(np.random.default_rng(seed).permutation(draw_floats(op, t, seed)))
        else:
            operands.append(np.random.default_rng(seed).permutation(draw_integers(op, t, seed, place)))
    if op.arity == 2 and dtype[0] == "f":
        pairs = np.array(list(itertools.product(SPECIAL, SPECIAL))).astype(NUMPY[dtype])
        operands[0][: len(pairs)], operands[1][: len(pairs)] = pairs.T
    return operands


def reference(op: ScalarOp, dtype: str, operands: list[np.ndarray]) -> np.ndarray:
    """The row's meaning, on float64, int64 or bool."""
    wide = [torch.from_numpy(o) for o in operands]
    own = (op.result == "cast" and dtype[0] == "f") or op.name in ROUNDED_STEPS  # a cast may round once only
    if not own:
        wide = [o.double() if o.is_floating_point() else o if o.dtype == torch.bool else o.long() for o in wide]
    result = op.reference(*wide)
    return (result.float() if result.dtype in (torch.float16, torch.bfloat16) else result).numpy()


def run(build: str, form: str, op: ScalarOp, dtype: str, operands: list[np.ndarray]) -> np.ndarray:
    out = np.zeros(len(operands[0]), NUMPY[result_type(op, dtype)])
    function = getattr(library(SOURCE, build), f"{form}_{op.name}_{dtype}")
    function(ctypes.c_int64(len(out)), pointer(out), *(pointer(o) for o in operands))
    return out


@functools.cache
def _drawn(name: str, dtype: str) -> tuple[list[np.ndarray], np.ndarray]:
    operands = draw(OPS[name], dtype)
    return operands, reference(OPS[name], dtype, operands)


def castable(op: ScalarOp, operands: list[np.ndarray]) -> np.ndarray:
    """Where a cast is defined: a float within the range of the integer (of int32 for the narrow ones)."""
    if op.name in ("bits_of_f16", "bits_of_bf16"):
        return ~np.isnan(operands[0])  # which NaN of 16 bits is not specified
    if not op.name.startswith("to_") or operands[0].dtype.kind != "f" or COMPUTE.get(op.to, op.to)[0] != "i":
        return np.ones(len(operands[0]), bool)
    bound = 2.0**63 if op.to == "i64" else 2.0**31
    return np.abs(operands[0]) < bound


def errors(op: ScalarOp, dtype: str, operands: list[np.ndarray], got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distances from the reference: ULP of float32, relative errors in 2^-53 of float64, else 0 or infinity."""
    if op.result == "same" and dtype == "f32":
        error = ulps(got, want)
        signs = (want == 0) & (got == 0) & (np.signbit(want) != np.signbit(got))
        return error if op.name in ZERO_TIES else np.where(signs, np.inf, error)
    if op.result == "same" and dtype == "f64":
        with np.errstate(all="ignore"):
            relative = np.abs(got - want) / np.maximum(np.abs(want), 1e-290) * 2.0**53
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        return np.where(same, 0.0, np.where(np.isnan(relative), np.inf, relative))
    with np.errstate(invalid="ignore"):
        wrapped = want.astype(got.dtype)
    equal = (wrapped == got) | ((got != got) & (wrapped != wrapped))
    return np.where(equal | ~castable(op, operands), 0.0, np.inf)


def limit(op: ScalarOp, dtype: str) -> float:
    if op.result == "same" and dtype == "f32":
        return max(op.ulps, 0.5000001)
    if op.result == "same" and dtype == "f64":
        return 4.0 if op.ulps == 0 else 4096.0  # the reference itself is off by an ulp here and there
    return 0.0


def _same_bits(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    same = left == right
    if left.dtype.kind == "f":
        same = (same & (np.signbit(left) == np.signbit(right))) | (np.isnan(left) & np.isnan(right))
    return same


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(("op", "dtype"), CASES, ids=IDS)
def test_cpp_matches_reference(op: ScalarOp, dtype: str, build: str) -> None:
    """Vectors against the reference, then scalars and vectors mixed with scalars against vectors, to the bit."""
    operands, want = _drawn(op.name, dtype)
    lanes = run(build, "vectors", op, dtype, operands)
    error = errors(op, dtype, operands, lanes, want)
    bad = int(error.argmax())
    what = f"{op.name}-{dtype}"
    assert error[bad] <= limit(op, dtype), f"error {error[bad]}\n{window(what, build, bad, operands, lanes, want)}"

    scalars = run(build, "scalars", op, dtype, operands)
    same = _same_bits(lanes, scalars) | ~castable(op, operands)
    bad = int(same.argmin())
    assert same[bad], window(f"{what}, scalar against lane", build, bad, operands, scalars, lanes)
    if "mixed" in forms(op):
        check_broadcast(op, dtype, build, operands)


def check_broadcast(op: ScalarOp, dtype: str, build: str, operands: list[np.ndarray]) -> None:
    """mixed() alternates between scalar-vector and vector-scalar, a vector's width each."""
    width = LANES.get(build.split(":")[1], 4)
    blocks = [o.reshape(-1, width).copy() for o in operands]
    blocks[0][0::2] = blocks[0][0::2, :1]
    blocks[1][1::2] = blocks[1][1::2, :1]
    spread = [b.reshape(-1) for b in blocks]
    whole, mixed = (run(build, form, op, dtype, spread) for form in ("vectors", "mixed"))
    same = _same_bits(whole, mixed)
    bad = int(same.argmin())
    assert same[bad], window(f"{op.name}-{dtype}, broadcast", build, bad, spread, mixed, whole)


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", SWEPT)
def test_float32_sweep(name: str, build: str) -> None:
    """Every 241st float32 (a prime: all low bits occur), about 18 million."""
    op = OPS[name]
    for start in range(0, 2**32, 2**28):
        x = np.arange(start, start + 2**28, 241, dtype=np.uint64).astype(np.uint32)
        x = x[: len(x) // 64 * 64].view(np.float32)
        got, want = run(build, "vectors", op, "f32", [x]), reference(op, "f32", [x])
        error = errors(op, "f32", [x], got, want)
        bad = int(error.argmax())
        assert error[bad] <= limit(op, "f32"), f"error {error[bad]}\n{window(name, build, bad, [x], got, want)}"


def test_unknown_name_tells_the_near_ones() -> None:
    with pytest.raises(KeyError, match=r"no scalar operator is named 'tahn'; did you mean .*tanh"):
        OPS["tahn"]


def test_casts_are_named_by_dtype() -> None:
    assert cast_op("bf16").to == "bf16"
    assert cast_op("bf16").cpp == "to_bf16({0})"


@pytest.mark.parametrize("language", ["cpp", "triton"])
def test_printing_keeps_the_meaning(language: str) -> None:
    a, b, c = (Printed(name) for name in "abc")
    sub, mul, neg = OPS["sub"], OPS["mul"], OPS["neg"]
    inner = spell(sub, language, [b, c])  # type: ignore[arg-type]
    assert spell(sub, language, [a, inner]).text == "a - (b - c)"  # type: ignore[arg-type]
    assert spell(sub, language, [inner, a]).text == "b - c - a"  # type: ignore[arg-type]
    assert spell(mul, language, [inner, a]).text == "(b - c) * a"  # type: ignore[arg-type]
    twice = spell(neg, language, [spell(neg, language, [a])])  # type: ignore[arg-type]
    assert twice.text == "-(-a)"
    assert twice.precedence == Precedence.UNARY


def test_triton_comparisons_do_not_chain() -> None:
    lt = OPS["lt"]
    inner = spell(lt, "triton", [Printed("a"), Printed("b")])
    assert spell(OPS["eq"], "triton", [inner, Printed("c")]).text == "(a < b) == c"
    assert spell(OPS["bit_and"], "triton", [inner, Printed("c")]).text == "(a < b) & c"


def test_wrong_number_of_operands() -> None:
    with pytest.raises(ValueError, match="where takes 3 operands, not 1"):
        spell(OPS["where"], "cpp", [Printed("a")])


def test_the_table_needs_no_torch() -> None:
    code = "import sys; import mycc.compiler.ir.ops; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

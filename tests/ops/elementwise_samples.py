"""Samples of operators that compute each element alone, of conversions and of tensors made from nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import torch
from mycc.compiler.lower.pointwise.table import BINARY

from ..helpers.samples import BATCH, I, Sample, T, W, strided, transposed

B = BATCH

#: unary operators of floats: range, ulps
UNARY: dict[str, tuple[float, float, float]] = {
    **dict.fromkeys(
        "abs neg floor ceil trunc sign square positive relu relu6 isnan isinf isfinite".split(), (-5, 5, 0)
    ),
    "round": (-5, 5, 0),
    "frac": (-5, 5, 0),
    **dict.fromkeys("exp exp2 expm1 sinh cosh".split(), (-20, 20, 4)),
    **dict.fromkeys("sin cos tan atan tanh asinh erf erfc sigmoid".split(), (-6, 6, 4)),
    **dict.fromkeys("log log2 log10 log1p sqrt rsqrt reciprocal lgamma".split(), (0.01, 30, 4)),
    **dict.fromkeys("asin acos atanh".split(), (-0.99, 0.99, 4)),
    "acosh": (1.0, 40.0, 4),
    **dict.fromkeys("silu gelu mish hardsigmoid hardswish log_sigmoid".split(), (-8, 8, 8)),
    "leaky_relu": (-5, 5, 2),
    "elu": (-5, 5, 4),
    "selu": (-5, 5, 4),
    "celu": (-5, 5, 4),
    "softplus": (-25, 25, 4),
    "hardtanh": (-5, 5, 0),
}
#: operators that take integers, and give integers, floats or bools for them
UNARY_INTEGERS = (
    "abs neg sign square relu relu6 positive bitwise_not exp sqrt sin sigmoid reciprocal isnan isinf isfinite".split()
)


def unary() -> Iterator[Sample]:
    dynamic = cycle((False, True, False))
    for name, (low, high, ulps) in UNARY.items():
        shape = (B, 37) if next(dynamic) else (3, 37)
        yield Sample(f"aten.{name}.default", (T(*shape, low=low, high=high, special=True),), ulps=ulps)
    for name in UNARY_INTEGERS:
        yield Sample(f"aten.{name}.default", (I(2, 19, low=-9 if name not in ("sqrt", "reciprocal") else 1),))
    for name in ("logical_not", "bitwise_not"):
        yield Sample(f"aten.{name}.default", (T(5, 7, dtype="bool"),))
    yield Sample("aten.logical_not.default", (T(3, 7, special=True),))
    yield Sample("aten.bitwise_not.default", (I(B, 7, dtype="u8", low=0, high=255),))
    for dtype in ("f64", "f16", "bf16"):
        for name in ("exp", "neg", "gelu", "tanh"):
            yield Sample(f"aten.{name}.default", (T(3, 21, dtype=dtype),), ulps=16 if dtype == "f64" else 4)
    yield Sample("aten.gelu.default", (T(B, 40, low=-4, high=8, special=True),), {"approximate": "tanh"}, ulps=8)
    yield Sample("aten.exp.default", (T(),), note="zero-dim")
    yield Sample("aten.tanh.default", (T(1, 1),))
    yield Sample("aten.exp.default", (T(18, 5, view=transposed),))
    yield Sample("aten.neg.default", (T(B, 4, 6, view=transposed),))
    yield Sample("aten.abs.default", (T(B, 41, view=strided),))
    yield Sample("aten.relu.default", (T(B, 3, 4, 5, view=lambda x: x.permute(0, 2, 3, 1)),))
    yield Sample("aten.celu.default", (T(40),), {"alpha": 0.5})
    yield Sample("aten.elu.default", (T(40), 0.7, 1.3, 0.9))
    yield Sample("aten.softplus.default", (T(40), 2.0, 1.0))
    yield Sample("aten.leaky_relu.default", (T(40), 0.2))
    yield Sample("aten.hardtanh.default", (T(40), -0.5, 0.75))
    yield Sample("aten.nan_to_num.default", (T(40, special=True), 1.5, 7.0, -7.0))
    yield Sample("aten.nan_to_num.default", (T(B, 40, special=True),), eager=True)
    yield Sample("aten.nan_to_num.default", (I(40),))
    yield Sample("aten.nan_to_num.default", (T(40, dtype="f16", special=True),), eager=True)
    yield Sample("aten.threshold.default", (T(B, 20, special=True), 0.5, -3.0), ulps=0)
    yield Sample("aten.prelu.default", (T(B, 5, 7), W(5)))
    yield Sample("aten.prelu.default", (T(3, 5), W(1)))
    yield Sample("aten.prelu.default", (T(), W(1)))


#: float ranges and ulps of binary operators; the others have the default
BINARY_RANGES: dict[str, tuple[float, float, float]] = {
    "pow": (0.1, 3.0, 8),
    "remainder": (0.5, 9.0, 4),
    "fmod": (0.5, 9.0, 4),
    "floor_divide": (0.5, 9.0, 0),
}
SHIFTS = ("bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__")
INTEGER_ONLY = frozenset(("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", *SHIFTS))
BOOLEAN = "bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor mul eq lt".split()
FLOAT_ONLY = frozenset("atan2 copysign hypot fmax fmin".split())


def binary() -> Iterator[Sample]:
    dynamic = cycle((True, False, False))
    for name in BINARY:
        for overload in getattr(torch.ops.aten, name).overloads():
            operator = f"aten.{name}.{overload}"
            yield from _binary(operator, name, overload, next(dynamic))


def _binary(operator: str, name: str, overload: str, dynamic: bool) -> Iterator[Sample]:
    from mycc.compiler.lower.core.registry import REGISTRY

    if REGISTRY.find(operator) is None:
        return
    low, high, ulps = BINARY_RANGES.get(name, (-3.0, 3.0, 2))
    n = B if dynamic else 4
    special = name not in ("pow", "remainder", "fmod", "floor_divide")
    first, second = (
        overload in ("Scalar_Tensor",) or operator == "aten.pow.Scalar",
        overload in ("Scalar", "Tensor_Scalar"),
    )
    second = second and not first
    shift = name in SHIFTS
    if name not in INTEGER_ONLY:
        a: Any = 2.5 if first else T(n, 1, 19, low=low, high=high, special=special)
        b: Any = 1.5 if second else T(5, 1, low=low, high=high)
        yield Sample(operator, (a, b), ulps=ulps)
        if not (first or second):
            yield Sample(
                operator, (T(9, 1, low=low, high=high, special=True), T(8, low=low, high=high, special=True)), ulps=ulps
            )
    if name not in FLOAT_ONLY:
        lo = 0 if shift or name == "pow" else -9
        a = 3 if first else I(n, 1, 19, low=lo, high=5 if name == "pow" else 9)
        b = 2 if second else I(5, 1, low=1, high=3 if shift or name == "pow" else 9)
        yield Sample(operator, (a, b), ulps=ulps)
    if name in BOOLEAN and not (first or second):
        yield Sample(operator, (T(6, 5, dtype="bool"), T(5, dtype="bool")))


def arithmetic() -> Iterator[Sample]:
    for name in ("add", "sub"):
        yield Sample(f"aten.{name}.Tensor", (T(B, 5, special=True), T(5)))
        yield Sample(f"aten.{name}.Tensor", (T(4, 5), T(B, 1, 5)), {"alpha": 2})
        yield Sample(f"aten.{name}.Tensor", (I(4, 5, dtype="i32"), I(4, 1)), {"alpha": 3})
        yield Sample(f"aten.{name}.Tensor", (T(4, 5), T()), note="zero-dim")
        yield Sample(f"aten.{name}.Scalar", (T(33), 1.25))
        yield Sample(f"aten.{name}.Scalar", (I(33), 4, 2))
        yield Sample(f"aten.{name}.Scalar", (I(33), 1.5))
    yield Sample("aten.add.Tensor", (T(3, 4, dtype="bool"), T(4, dtype="bool")))
    yield Sample("aten.add.Tensor", (T(5, 3), T(3, 5, view=transposed)))
    yield Sample("aten.add.Tensor", (T(5, 3, view=transposed), T(3, 5, view=lambda x: x.flip(0))))
    yield Sample("aten.add.Tensor", (I(4, 5, dtype="u8", low=0, high=255), I(5, dtype="u8", low=0, high=255)))
    yield Sample("aten.mul.Tensor", (I(4, 5, dtype="i8", low=-128, high=127), I(5, dtype="i8", low=-128, high=127)))
    yield Sample("aten.add.Tensor", (T(3, 20, dtype="f16"), T(20, dtype="f16")))
    yield Sample("aten.mul.Tensor", (T(3, 20, dtype="bf16"), T(3, 20)))
    yield Sample("aten.mul.Tensor", (T(3, 20, dtype="f64"), T(20)))
    yield Sample("aten.mul.Tensor", (I(3, 20), T()), note="zero-dim float")
    yield Sample("aten.add.Tensor", (T(1, 1), T(1)))
    yield Sample("aten.add.Tensor", (T(), T()))
    yield Sample("aten.rsub.Tensor", (T(B, 5), T(5)), {"alpha": 2})
    yield Sample("aten.rsub.Scalar", (T(33), 1.5))
    yield Sample("aten.rsub.Scalar", (I(33), 5, 2))
    yield Sample("aten.div.Tensor", (T(B, 7, special=True), T(7, low=0.5)))
    yield Sample("aten.div.Tensor", (I(4, 7), I(7, low=1)))
    yield Sample("aten.div.Scalar", (T(33, special=True), 3.0))
    yield Sample("aten.div.Scalar", (I(33), 4))
    for mode in (None, "floor", "trunc"):
        exact = 0 if mode else 2
        yield Sample(
            "aten.div.Tensor_mode",
            (T(B, 19, low=-30, high=30), T(19, low=0.5, high=9)),
            {"rounding_mode": mode},
            ulps=exact,
        )
        yield Sample("aten.div.Tensor_mode", (I(4, 19, low=-30, high=30), I(19, low=1)), {"rounding_mode": mode})
        yield Sample(
            "aten.div.Tensor_mode", (I(4, 19, low=-30, high=30), I(19, low=-9, high=-1)), {"rounding_mode": mode}
        )
        yield Sample("aten.div.Scalar_mode", (I(4, 19, low=-30, high=30), -4), {"rounding_mode": mode})
    yield Sample("aten.remainder.Tensor", (I(40, low=-30, high=30), I(40, low=-9, high=-1)))
    yield Sample("aten.remainder.Tensor", (I(40, low=0, high=9), I(40, low=10, high=30)))  # nothing to divide
    yield Sample("aten.remainder.Scalar", (T(40, low=-30, high=30), -4.5))
    yield Sample("aten.fmod.Tensor", (I(40, low=-30, high=30), I(40, low=-9, high=-1)))
    yield Sample("aten.pow.Tensor_Scalar", (T(40, special=True), 2))
    yield Sample("aten.pow.Tensor_Scalar", (T(40), 3))
    yield Sample("aten.pow.Tensor_Scalar", (T(40, low=0.1), 0.5))
    yield Sample("aten.pow.Tensor_Scalar", (T(40, special=True), 0.5))
    yield Sample("aten.pow.Tensor_Scalar", (T(40, low=0.1), -0.5))
    yield Sample("aten.pow.Tensor_Scalar", (T(40, low=0.1), -1))
    yield Sample("aten.pow.Tensor_Scalar", (T(40), 0))
    yield Sample("aten.eq.Tensor", (I(4, 5, low=0, high=1), T(5, dtype="bool")))
    yield Sample("aten.lt.Tensor", (I(40), T(40)))
    yield Sample("aten.gt.Scalar", (I(40), 1.5))
    yield Sample("aten.ge.Scalar", (I(40, dtype="u8", low=0, high=9), 4))


def selection() -> Iterator[Sample]:
    yield Sample("aten.clamp.default", (T(B, 40, special=True), -0.5, 0.5), ulps=0)
    yield Sample("aten.clamp.default", (T(40, special=True), None, 0.5), ulps=0)
    yield Sample("aten.clamp.default", (T(40, special=True), -0.5), ulps=0)
    yield Sample("aten.clamp.default", (I(40), -2, 3))
    yield Sample("aten.clamp.default", (I(40), -2, 3.5))
    yield Sample("aten.clamp.Tensor", (T(B, 9, special=True), T(9, high=0), T(9, low=0)), ulps=0)
    yield Sample("aten.clamp.Tensor", (T(4, 9), None, T(4, 1)), ulps=0)
    yield Sample("aten.clip.default", (T(40), -0.5, 0.5), ulps=0)
    yield Sample("aten.clip.Tensor", (T(40), T(40), T(40, low=0.0)), ulps=0)
    yield Sample("aten.clamp_min.default", (T(40, special=True), 0.25), ulps=0)
    yield Sample("aten.clamp_max.default", (T(40, special=True), 0.25), ulps=0)
    yield Sample("aten.clamp_min.Tensor", (T(B, 9), T(9)), ulps=0)
    yield Sample("aten.clamp_max.Tensor", (T(B, 9), T(9)), ulps=0)
    condition = T(4, 1, 9, dtype="bool")
    yield Sample("aten.where.self", (condition, T(5, 1), T(4, 5, 9)), ulps=0)
    yield Sample("aten.where.self", (T(B, 9, dtype="bool"), I(9), I(B, 1)))
    yield Sample("aten.where.self", (T(B, 9, dtype="bool"), I(9), T(B, 1)), ulps=0)
    yield Sample("aten.where.ScalarOther", (condition, T(5, 1), 1.5), ulps=0)
    yield Sample("aten.where.ScalarSelf", (condition, 1.5, T(5, 1)), ulps=0)
    yield Sample("aten.where.Scalar", (condition, 1.5, 2.5), ulps=0)
    yield Sample("aten.masked_fill.Scalar", (T(B, 5, 9), T(5, 9, dtype="bool"), float("-inf")), ulps=0)
    yield Sample("aten.masked_fill.Tensor", (T(4, 5, 9), T(5, 1, dtype="bool"), T()), ulps=0)
    yield Sample("aten.addcmul.default", (T(B, 9), T(9), T(B, 1)), {"value": 0.5}, sums=True)
    yield Sample("aten.addcdiv.default", (T(B, 9), T(9), T(B, 1, low=0.5)), {"value": 0.5}, sums=True)
    yield Sample("aten.lerp.Scalar", (T(B, 9), T(B, 9), 0.3), sums=True)
    yield Sample("aten.lerp.Tensor", (T(B, 9), T(B, 9), T(9, low=0, high=1)), sums=True)
    yield Sample("aten.maximum.default", (T(B, 9), T(B, 9, special=True)), ulps=0)
    yield Sample("aten.minimum.default", (I(B, 9), I(9)))


def conversions() -> Iterator[Sample]:
    dtypes = {
        "bool": torch.bool,
        "u8": torch.uint8,
        "i32": torch.int32,
        "i64": torch.int64,
        "f16": torch.float16,
        "f64": torch.float64,
    }
    for name, dtype in {**dtypes, "bf16": torch.bfloat16, "i8": torch.int8, "i16": torch.int16}.items():
        yield Sample("aten._to_copy.default", (T(3, 21, low=0, high=100),), {"dtype": dtype}, ulps=1, note=name)
        yield Sample("aten._to_copy.default", (I(3, 21, low=0, high=300),), {"dtype": dtype}, ulps=1, note=name)
    yield Sample("aten._to_copy.default", (T(B, 21, dtype="bool"),), {"dtype": torch.float32})
    yield Sample("aten._to_copy.default", (T(B, 21, dtype="f16"),), {"dtype": torch.float32}, ulps=0)
    yield Sample("aten._to_copy.default", (I(21, dtype="i8", low=-128, high=127),), {"dtype": torch.int32})
    yield Sample("aten.to.dtype", (T(B, 21, low=-50, high=50), torch.int32))
    yield Sample("aten.to.dtype_layout", (I(21),), {"dtype": torch.float32})
    yield Sample("aten.to.device", (I(21), torch.device("cpu"), torch.float32))
    yield Sample("aten.to.other", (I(21), T(2)))
    yield Sample("aten.type_as.default", (I(21), T(2)))
    yield Sample("prims.convert_element_type.default", (I(B, 21), torch.float32))


def creation() -> Iterator[Sample]:
    f32 = {"dtype": torch.float32}
    yield Sample("aten.full.default", ([3, 5], 2.5), f32)
    yield Sample("aten.full_like.default", (T(B, 5), 2.5))
    yield Sample("aten.full_like.default", (T(B, 5), 2), {"dtype": torch.int64})
    yield Sample("aten.new_full.default", (T(2), [3, 5], 2.5))
    yield Sample("aten.zeros.default", ([3, 5],), f32)
    yield Sample("aten.zeros_like.default", (T(B, 5),))
    yield Sample("aten.new_zeros.default", (T(2), [3, 5]))
    yield Sample("aten.ones.default", ([3, 5],), {"dtype": torch.bool})
    yield Sample("aten.ones_like.default", (I(B, 5),))
    yield Sample("aten.new_ones.default", (T(2), [3, 5]))
    yield Sample("aten.scalar_tensor.default", (2.5,), f32)
    yield Sample("aten.arange.default", (7,))
    yield Sample("aten.arange.default", (3.5,))
    yield Sample("aten.arange.start", (2, 9), f32)
    yield Sample("aten.arange.start_step", (9, -5, -3))
    yield Sample("aten.arange.start_step", (0.5, 3.0, 0.25))
    for name in ("tril", "triu"):
        yield Sample(f"aten.{name}.default", (T(B, 6, 5),))
        yield Sample(f"aten.{name}.default", (I(5, 6), 1))
        yield Sample(f"aten.{name}.default", (T(5, 6, special=True, view=transposed), -1))
    yield Sample("aten.eye.default", (5,), f32)
    yield Sample("aten.eye.m", (5, 3), {"dtype": torch.int64})


FAMILIES = (unary, binary, arithmetic, selection, conversions, creation)

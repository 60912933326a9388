"""At least one sample of every lowering."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import torch
from mycc.compiler.lower.pointwise.table import BINARY

from ..helpers.samples import BATCH, I, Operand, Sample, T, W
from . import ordered_samples, special_samples

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


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(-1, -2)


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """Of a tensor whose last dimension are the channels."""
    return x.permute(0, x.dim() - 1, *range(1, x.dim() - 1))


def strided(x: torch.Tensor) -> torch.Tensor:
    return x[..., 1::2]


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


def indexing() -> Iterator[Sample]:
    yield Sample("aten.embedding.default", (W(11, 8), I(B, 5, low=0, high=10)), ulps=0)
    yield Sample("aten.embedding.default", (T(11, 8), I(5, dtype="i32", low=0, high=10)), ulps=0)
    yield Sample("aten.index_select.default", (T(B, 7, 5), 1, I(4, low=0, high=6)), ulps=0)
    yield Sample("aten.index_select.default", (T(4, 7), -1, I(3, low=0, high=6, dtype="i32")), ulps=0)
    yield Sample("aten.gather.default", (T(B, 7), 1, I(B, 3, low=0, high=6)), ulps=0)
    yield Sample("aten.gather.default", (I(7, 6), 0, I(4, 5, low=0, high=6)))
    yield Sample("aten.index.Tensor", (T(7, 6, 5), [I(4, low=-7, high=6)]), ulps=0)
    yield Sample("aten.index.Tensor", (T(7, 6, 5), [None, I(4, low=-6, high=5), I(3, 1, low=0, high=4)]), ulps=0)
    yield Sample("aten.index.Tensor", (T(7, 6, 5), [I(4, low=0, high=6), None, I(4, low=0, high=4)]), ulps=0)
    yield Sample("aten.index.Tensor", (T(B, 6), [None, I(3, 2, low=-6, high=5)]), ulps=0)
    for name in ("cat", "concat"):
        yield Sample(f"aten.{name}.default", ([T(B, 3), T(B, 5), T(B, 1)], 1), ulps=0)
        yield Sample(f"aten.{name}.default", ([T(2, 3), I(4, 3)],), ulps=0)
    yield Sample("aten.cat.default", ([T(3, 4, 5, view=transposed), T(3, 5, 2)], -1), ulps=0)
    yield Sample("aten.cat.default", ([T(0), T(3, 2)],), ulps=0)
    yield Sample("aten.stack.default", ([T(B, 5), T(B, 5)], 1), ulps=0)
    yield Sample("aten.stack.default", ([T(), T(), T()],), ulps=0)
    yield Sample("aten.constant_pad_nd.default", (T(B, 3, 5), [1, 2, 0, 3], 1.5), ulps=0)
    yield Sample("aten.constant_pad_nd.default", (T(2, 3, 5), [-1, 2, 1, -1]), ulps=0)
    yield Sample("aten.constant_pad_nd.default", (I(6), [2, 0], -1))
    yield Sample("aten.constant_pad_nd.default", (T(0, 3), [1, 2, 2, 0], 1.5), ulps=0)
    yield Sample("aten.pad.default", (T(B, 3, 5), [1, 2]), ulps=0)
    yield Sample("aten.pad.default", (T(B, 3, 5), [1, 2], "constant", 2.0), ulps=0)
    yield Sample("aten.pad.default", (T(2, 3, 5, 6), [1, 2, 2, 1], "reflect"), ulps=0)
    yield Sample("aten.pad.default", (T(B, 3, 5), [4, 3], "replicate"), ulps=0)
    yield Sample("aten.pad.default", (T(B, 3, 5), [2, 4], "circular"), ulps=0)
    yield Sample("aten.roll.default", (T(B, 5, 6), [2, -1], [1, 2]), ulps=0)
    yield Sample("aten.roll.default", (T(4, 5), [7]), ulps=0)
    yield Sample("aten.roll.default", (T(4, 5), [-8], [0]), ulps=0)
    yield Sample("aten.upsample_nearest2d.vec", (T(B, 3, 4, 5), None, [2.0, 2.0]), ulps=0)
    yield Sample("aten.upsample_nearest2d.default", (T(2, 3, 4, 5), [7, 9]), ulps=0)
    yield Sample("aten.upsample_nearest1d.vec", (T(B, 3, 5), None, [3.0]), ulps=0)
    yield Sample("aten.upsample_nearest1d.vec", (T(B, 3, 5), None, [1.7]), ulps=0)
    yield Sample("aten.upsample_nearest1d.default", (T(2, 3, 5), [9]), ulps=0)
    yield Sample("aten.upsample_nearest3d.vec", (T(B, 3, 2, 4, 5), None, [2.0, 1.0, 2.5]), ulps=0)
    yield Sample("aten._upsample_nearest_exact1d.vec", (T(B, 3, 5), None, [3.0]), ulps=0)
    yield Sample("aten._upsample_nearest_exact1d.default", (T(2, 3, 5), [9]), ulps=0)
    yield Sample("aten._upsample_nearest_exact2d.vec", (T(B, 3, 4, 5), None, [1.7, 2.0]), ulps=0)
    yield Sample("aten._upsample_nearest_exact2d.default", (T(2, 3, 4, 5), [7, 9]), ulps=0)
    yield Sample("aten._upsample_nearest_exact3d.vec", (T(B, 3, 2, 4, 5), None, [2.0, 1.0, 2.5]), ulps=0)
    yield Sample("aten._upsample_nearest_exact3d.default", (T(2, 3, 2, 4, 5), [3, 4, 9]), ulps=0)
    yield Sample("aten.upsample_nearest3d.default", (T(2, 3, 2, 4, 5), [3, 4, 9]), ulps=0)


def products() -> Iterator[Sample]:
    def sums(operator: str, *args: Any, **kwargs: Any) -> Sample:
        return Sample(operator, args, kwargs, ulps=16, sums=True)

    yield sums("aten.linear.default", T(B, 5, 20), W(33, 20), W(33))
    yield sums("aten.linear.default", T(6, 20), W(16, 20))
    yield sums("aten.linear.default", T(20), W(7, 20), W(7))
    yield sums("aten.linear.default", T(5, 6), T(3, 6), T(3))
    yield sums("aten.linear.default", T(20, 6, view=transposed), W(16, 20))
    yield sums("aten.linear.default", T(4, 1), W(5, 1))
    for columns in (1, 2, 3, 4):  # up to three are summed one by one
        yield sums("aten.linear.default", T(B, 5, 300), W(columns, 300), W(columns))
        yield sums("aten.mm.default", T(B, 20), W(20, columns))
        yield sums("aten.bmm.default", T(B, 5, 20), T(B, columns, 20, view=transposed))
    yield sums("aten.linear.default", T(20, 6, view=transposed), W(2, 20), W(2))
    yield sums("aten.addmm.default", T(1), T(B, 20), T(20, 1), beta=0.5, alpha=2.0)
    yield sums("aten.mm.default", T(B, 20), W(20, 35))
    yield sums("aten.mm.default", T(B, 20), T(20, 35))
    yield sums("aten.mm.default", T(6, 9, view=transposed), T(7, 6, view=transposed))
    yield sums("aten.addmm.default", W(35), T(B, 20), W(20, 35))
    yield sums("aten.addmm.default", T(4, 1), T(4, 20), T(20, 7), beta=0.5, alpha=2.0)
    yield sums("aten.addmm.default", T(4, 7), T(4, 20), T(20, 7), beta=0)
    yield sums("aten.bmm.default", T(B, 5, 6), T(B, 6, 17))
    yield sums("aten.bmm.default", T(2, 5, 6), T(2, 17, 6, view=transposed))
    yield sums("aten.bmm.default", T(2, 6, 5, view=transposed), T(2, 17, 6, view=transposed))
    yield sums("aten.baddbmm.default", T(B, 1, 17), T(B, 5, 6), T(B, 6, 17), beta=0.5, alpha=2)
    yield sums("aten.matmul.default", T(B, 5, 6), T(6, 17))
    yield sums("aten.matmul.default", T(B, 1, 5, 6), T(3, 6, 17))
    yield sums("aten.matmul.default", T(2, 3, 2, 5, 6), T(2, 3, 2, 6, 7))
    yield sums("aten.matmul.default", T(6), T(6))
    yield sums("aten.matmul.default", T(6), T(6, 5))
    yield sums("aten.matmul.default", T(B, 4, 6), T(6))
    yield sums("aten.matmul.default", T(6), T(3, 6, 5))
    yield sums("aten.matmul.default", T(5, 6), W(6, 17))


def convolutions() -> Iterator[Sample]:
    def sums(operator: str, *args: Any) -> Sample:
        return Sample(operator, args, ulps=16, sums=True)

    yield sums("aten.conv2d.default", T(B, 3, 9, 8), W(17, 3, 3, 3), W(17), [2, 1], [1, 1])
    yield sums("aten.conv2d.default", T(2, 6, 7, 7), W(8, 3, 3, 2), None, [1, 1], [1, 0], [2, 1], 2)
    yield sums("aten.conv2d.default", T(B, 18, 7, 7), W(18, 1, 3, 3), W(18), [1, 1], [1, 1], [1, 1], 18)
    yield sums("aten.conv2d.default", T(2, 5, 7, 7), W(10, 1, 3, 3), W(10), [1, 1], [1, 1], [1, 1], 5)
    yield sums("aten.conv2d.default", T(2, 16, 5, 5), W(32, 16, 1, 1), W(32))
    yield sums("aten.conv2d.default", T(3, 7, 7), W(4, 3, 3, 3))
    yield sums("aten.conv2d.padding", T(B, 3, 9, 8), W(4, 3, 3, 5), W(4), [1, 1], "same")
    yield sums("aten.conv2d.padding", T(2, 3, 9, 8), W(4, 3, 3, 5), None, [2, 2], "valid")
    yield sums("aten.conv1d.default", T(B, 3, 19), W(8, 3, 3), W(8), [2], [1])
    yield sums("aten.conv1d.default", T(3, 19), W(8, 3, 3), None, [1], [2], [2])
    yield sums("aten.conv1d.padding", T(2, 3, 19), W(8, 3, 3), None, [1], "same")
    yield sums("aten.conv1d.padding", T(2, 4, 19), W(8, 2, 4), None, [1], "valid", [1], 2)
    rest = ([1, 1], False, [0, 0], 1)
    yield sums("aten.convolution.default", T(B, 3, 9, 8), W(7, 3, 3, 3), W(7), [1, 1], [1, 1], *rest)
    yield sums("aten.convolution.default", T(2, 3, 9), W(7, 3, 3), None, [1], [1], [1], False, [0], 1)
    deep = ([1, 2, 1], [1] * 3, [1] * 3, False, [0] * 3, 1)
    yield sums("aten.convolution.default", T(2, 3, 4, 6, 5), W(7, 3, 2, 3, 3), W(7), *deep)
    deep = ([1] * 3, [0] * 3, [2, 1, 1], False, [0] * 3, 2)
    yield sums("aten.convolution.default", T(2, 4, 4, 6, 5), W(6, 2, 2, 3, 1), None, *deep)
    yield sums("aten.conv2d.default", T(2, 32, 9, 12), W(40, 32, 3, 3), W(40), [1, 1], [1, 1])  # Winograd's
    yield sums("aten.conv2d.default", T(2, 32, 7, 7), W(32, 4, 3, 3), W(32), [1, 2], [1, 1], [1, 1], 8)
    yield sums("aten.conv2d.default", T(2, 4, 5, 7), W(16, 1, 3, 3), W(16), [1, 1], [1, 1], [1, 1], 4)
    yield sums("aten.conv1d.default", T(2, 16, 19), W(16, 8, 3), None, [2], [1], [1], 2)
    wide = (T(1, 48, B, 12), W(33, 48, 3, 3), None, [1, 1], [0, 2])
    yield Sample("aten.conv2d.default", wide, ulps=16, sums=True, least=4)
    yield sums("aten.conv2d.padding", T(B, 3, 9, 8), W(4, 3, 2, 4), W(4), [1, 1], "same")
    yield sums("aten.conv1d.padding", T(B, 3, 19), W(4, 3, 4), None, [1], "same")
    for kernel, stride, pad, dilation, more, groups in (
        ([2, 2], [2, 2], [0, 0], [1, 1], [0, 0], 1),
        ([4, 4], [2, 2], [1, 1], [1, 1], [0, 0], 1),
        ([3, 3], [2, 1], [1, 0], [1, 2], [1, 0], 2),
        ([3, 2], [3, 4], [0, 1], [2, 1], [0, 3], 1),
        ([3, 3], [2, 2], [2, 2], [1, 1], [1, 1], 6),
    ):
        rest = (stride, pad, dilation, True, more, groups)
        out = 6 // groups if groups < 6 else 1
        yield sums("aten.convolution.default", T(2, 6, 5, 4), W(6, out, *kernel), W(out * groups), *rest)
        yield sums("aten.convolution.default", T(1, 6, 5, 4), W(6, out, *kernel), None, *rest)
    yield sums("aten.convolution.default", T(2, 4, 9), W(4, 3, 4), W(3), [2], [1], [1], True, [0], 1)
    deep = ([2, 2, 1], [1, 0, 0], [1] * 3, True, [0] * 3, 1)
    yield sums("aten.convolution.default", T(1, 4, 3, 4, 5), W(4, 3, 3, 2, 2), W(3), *deep)
    yield sums("aten.conv3d.default", T(B, 3, 4, 6, 5), W(7, 3, 2, 3, 3), W(7), [1, 2, 1], [1, 1, 0])
    yield sums("aten.conv3d.padding", T(2, 3, 4, 6, 5), W(4, 3, 3, 3, 2), None, [1, 1, 1], "same")
    yield sums("aten.conv_transpose1d.default", T(B, 4, 9), W(4, 3, 4), W(3), [2], [1])
    yield sums("aten.conv_transpose2d.input", T(B, 6, 5, 4), W(6, 2, 3, 3), W(4), [2, 2], [1, 1], [1, 0], 2)
    yield sums("aten.conv_transpose3d.input", T(1, 4, 3, 4, 5), W(4, 3, 3, 2, 2), None, [2, 2, 1], [1, 0, 0])


def reductions() -> Iterator[Sample]:
    shapes: tuple[tuple[Operand, Any], ...] = (
        (T(B, 5, 21), [-1]),
        (T(4, 5, 21), [1]),
        (T(4, 5, 21), [0, 2]),
        (T(B, 37, special=True), [1]),
        (T(6, 9, view=transposed), [0]),
    )
    for x, dims in shapes:
        for name in ("sum.dim_IntList", "mean.dim", "amax.default", "amin.default"):
            yield Sample(f"aten.{name}", (x, dims), ulps=8, sums=True)
        yield Sample("aten.any.dims", (x, dims))
        yield Sample("aten.all.dims", (x, dims, True))
    for name in ("sum", "mean", "prod", "max", "min", "any", "all", "argmax", "argmin", "var", "std"):
        yield Sample(f"aten.{name}.default", (T(B, 7, 3, low=0.5),), ulps=8, sums=True)
    for name in ("_is_any_true", "_is_all_true"):
        yield Sample(f"aten.{name}.default", (T(5, 7, dtype="bool"),))
    for name in ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin"):
        yield Sample(f"aten.{name}.default", (I(5, 7, low=-3, high=3),))
    for name in ("any.dim", "all.dim", "prod.dim_int"):
        yield Sample(f"aten.{name}", (T(B, 9, low=0.5, high=1.5), -1), ulps=8)
        yield Sample(f"aten.{name}", (I(4, 3, low=0, high=1), 0, True))
    for name in ("argmax.default", "argmin.default", "max.dim", "min.dim"):
        yield Sample(f"aten.{name}", (I(B, 19, low=-3, high=3), 1))
        yield Sample(f"aten.{name}", (T(4, 19, 3, special=True), 1, True), ulps=0)
    yield Sample("aten.max.default", (T(40, special=True),), ulps=0)
    yield Sample("aten.sum.default", (T(dtype="f32"),), note="zero-dim")
    yield Sample("aten.sum.default", (T(3, 5, dtype="bool"),))
    yield Sample("aten.sum.dim_IntList", (T(3, 5), [0]), {"dtype": torch.float64})
    yield Sample("aten.sum.dim_IntList", (I(3, 5, dtype="u8", low=200, high=255), [1]))
    yield Sample("aten.mean.dim", (T(3, 50, dtype="f16"), [1]))
    yield Sample("aten.sum.dim_IntList", (T(3, 50, dtype="bf16"), [1]), sums=True)
    yield Sample("aten.amax.default", (T(3, 5, dtype="f16"), [-1]), ulps=0)
    for name in ("var", "std"):
        yield Sample(f"aten.{name}.dim", (T(B, 21), [1]), ulps=8)
        yield Sample(f"aten.{name}.dim", (T(4, 5, 21), [0, 2], False, True), ulps=8)
        yield Sample(f"aten.{name}.correction", (T(B, 21), [-1]), {"correction": 0, "keepdim": True}, ulps=8)
        yield Sample(f"aten.{name}.correction", (T(B, 21, low=1000, high=1001), [-1]), ulps=8, sums=True)
    yield Sample("aten.var_mean.correction", (T(B, 21), [1]), {"correction": 1}, ulps=8, sums=True)
    yield Sample("aten.var_mean.dim", (T(B, 21), [1], True, True), ulps=8, sums=True)
    for name in ("softmax", "log_softmax"):
        beside = 2.0 * (name == "log_softmax")  # the logarithm of a sum from 1 on is as far off as the sum
        for operator, rest in ((f"aten.{name}.int", ()), (f"aten._{name}.default", (False,))):
            yield Sample(operator, (T(B, 5, 21, low=-20, high=20), -1, *rest), ulps=16, beside=beside)
            yield Sample(operator, (T(4, 5, 21), 1, *rest), ulps=16, beside=beside)
        yield Sample(f"aten.{name}.int", (T(4, 21, special=True), 0), ulps=16)
        yield Sample(f"aten.{name}.int", (T(4, 21, special=True), 1), ulps=16)
        yield Sample(f"aten.{name}.int", (T(2, 9, dtype="f16"), 1, torch.float32), ulps=16)
        yield Sample(f"aten.{name}.int", (T(), 0), note="zero-dim")
    yield Sample("aten.softmax.int", (T(3, 2, dtype="f64"), -1), ulps=16)
    yield Sample("aten.logsumexp.default", (T(B, 5, 21), [-1]), ulps=16, sums=True)
    yield Sample("aten.logsumexp.default", (T(4, 5, special=True), [0, 1], True), ulps=16)
    yield Sample("aten.logsumexp.default", (T(4, 21, special=True), [0]), ulps=16, sums=True)


def norms() -> Iterator[Sample]:
    def near(operator: str, *args: Any, **kwargs: Any) -> Sample:
        return Sample(operator, args, kwargs, ulps=16, sums=True)

    yield near("aten.layer_norm.default", T(B, 5, 40), [40], W(40), W(40))
    yield near("aten.layer_norm.default", T(4, 5, 7), [5, 7], T(5, 7))
    yield near("aten.layer_norm.default", T(4, 40, low=99, high=101), [40])
    yield near("aten.native_layer_norm.default", T(B, 40), [40], W(40), W(40), 1e-6)
    yield near("aten.rms_norm.default", T(B, 5, 40), [40], W(40), 1e-6)
    yield near("aten.rms_norm.default", T(4, 40), [40])
    yield near("aten.group_norm.default", T(B, 6, 5, 3), 3, W(6), W(6))
    yield near("aten.group_norm.default", T(2, 6, 5), 2)
    for shape, groups in (((B, 5, 3, 48), 6), ((2, 7, 40), 4), ((1, 3, 2, 4, 6), 3)):  # in memory channels lie last
        last = T(*shape, view=channels_last)
        yield near("aten.group_norm.default", last, groups, W(shape[-1]), W(shape[-1]))
    running = (W(5), Operand((5,), "f32", 0.5, 2.0, constant=True))
    yield near("aten.batch_norm.default", T(B, 5, 4, 3), W(5), W(5), *running, False, 0.1, 1e-5, False)
    yield near("aten.batch_norm.default", T(B, 5), None, None, *running, False, 0.1, 1e-5, False)
    yield near("aten._native_batch_norm_legit_no_training.default", T(B, 5, 4), W(5), W(5), *running, 0.1, 1e-5)


def pools() -> Iterator[Sample]:
    yield Sample("aten.max_pool2d.default", (T(B, 3, 9, 8), [3, 3], [2, 2], [1, 1]), ulps=0)
    yield Sample("aten.max_pool2d.default", (T(2, 3, 9, 8, special=True), [2, 3], [1, 1], [0, 1], [2, 1]), ulps=0)
    yield Sample("aten.max_pool2d.default", (T(3, 9, 8), [2, 2]), ulps=0)
    yield Sample("aten.max_pool2d.default", (T(2, 3, 8, 8), [3, 3], [2, 2], [0, 0], [1, 1], True), ulps=0)
    yield Sample("aten.avg_pool2d.default", (T(B, 3, 9, 8), [3, 3], [2, 2], [1, 1]), ulps=8, sums=True)
    yield Sample("aten.avg_pool2d.default", (T(2, 3, 9, 8), [3, 2], [2, 2], [1, 1], False, False), ulps=8, sums=True)
    yield Sample("aten.avg_pool2d.default", (T(2, 3, 9, 8), [2, 2], [2, 2], [0, 0], True), ulps=8, sums=True)
    yield Sample("aten.avg_pool2d.default", (T(2, 3, 8, 8), [3, 3], [2, 2], [1, 1], True), ulps=8, sums=True)
    yield Sample("aten.avg_pool2d.default", (T(2, 3, 9, 8), [2, 2], [2, 2], [0, 0], False, True, 3), ulps=8, sums=True)
    yield Sample("aten.max_pool1d.default", (T(B, 3, 19), [3], [2], [1]), ulps=0)
    yield Sample("aten.max_pool1d.default", (T(3, 19), [2]), ulps=0)
    yield Sample("aten.max_pool1d.default", (T(2, 3, 20), [3], [2], [0], [2], True), ulps=0)
    yield Sample("aten.avg_pool1d.default", (T(B, 3, 19), [3], [2], [1]), ulps=8, sums=True)
    yield Sample("aten.avg_pool1d.default", (T(2, 3, 20), [3], [2], [1], True, False), ulps=8, sums=True)
    for name in ("adaptive_avg_pool2d", "_adaptive_avg_pool2d"):
        yield Sample(f"aten.{name}.default", (T(B, 3, 8, 6), [4, 2]), ulps=8, sums=True)
        yield Sample(f"aten.{name}.default", (T(2, 3, 7, 9), [3, 4]), ulps=8, sums=True)
        yield Sample(f"aten.{name}.default", (T(3, 7, 9), [1, 1]), ulps=8, sums=True)


def views() -> Iterator[Sample]:
    x = T(B, 4, 6)
    f32 = torch.float32
    calls: tuple[tuple[Any, ...], ...] = (
        ("alias.default", x),
        ("detach.default", x),
        ("clone.default", x),
        ("contiguous.default", T(3, 4, 6, view=transposed)),
        ("lift_fresh_copy.default", x),
        ("dropout.default", x, 0.5, False),
        ("expand_copy.default", T(4, 1), [3, 4, 6]),
        ("view.default", T(4, 6), [2, 12]),
        ("view.default", x, [-1, 24]),
        ("reshape.default", T(4, 6, view=transposed), [3, 8]),
        ("reshape.default", x, [-1, 4, 2, 3]),
        ("_unsafe_view.default", T(4, 6), [24]),
        ("view_copy.default", T(4, 6), [2, 3, 4]),
        ("flatten.using_ints", x, 1, -1),
        ("flatten.using_ints", T()),
        ("unflatten.int", x, 2, [2, 3]),
        ("permute.default", x, [2, 0, -2]),
        ("transpose.int", x, 0, -1),
        ("transpose.int", T(), 0, -1),
        ("t.default", T(B, 5)),
        ("t.default", T(5)),
        ("expand.default", T(4, 1), [3, -1, 6]),
        ("expand_as.default", T(4, 1), x),
        ("broadcast_to.default", T(1, 5), [3, 5]),
        ("squeeze.default", T(1, 4, 1)),
        ("squeeze.dim", T(B, 1, 4), 1),
        ("squeeze.dim", T(3, 4), 1),
        ("squeeze.dims", T(1, 4, 1), [0, 2]),
        ("unsqueeze.default", x, -1),
        ("unsqueeze.default", T(), 0),
        ("slice.Tensor", x, 1, 1, 4, 2),
        ("slice.Tensor", T(9, 4), 0, -4, -1),
        ("slice.Tensor", T(9, 4), -1, 1, 99),
        ("narrow.default", x, 1, 1, 2),
        ("narrow.default", T(9), 0, -3, 2),
        ("select.int", x, 1, -2),
        ("select.int", x, 0, 0),
        ("flip.default", x, [1, -1]),
        ("flip.default", x, [0]),
        ("repeat.default", T(2, 3), [2, 1, 3]),
        ("repeat.default", x, [1, 2, 1]),
        ("pixel_shuffle.default", T(B, 12, 2, 3), 2),
        ("pixel_shuffle.default", T(8, 2, 3), 2),
        ("split.Tensor", x, 3, 2),
        ("split.Tensor", T(7, 2), 3),
        ("split.sizes", x, [1, 5], -1),
        ("split_with_sizes.default", x, [1, 2, 1], 1),
        ("chunk.default", T(7, 4), 3),
        ("tensor_split.sections", T(7, 4), 3),
        ("tensor_split.indices", x, [1, 3], 1),
        ("unbind.int", x, 1),
    )
    del f32
    for name, *args in calls:
        yield Sample(f"aten.{name}", tuple(args), ulps=0)
    for name in ("empty.memory_format", "empty_like.default", "new_empty.default"):
        tensor = () if name.startswith("empty.") else (T(3, 5),)
        size = () if name.startswith("empty_like") else ([3, 5],)
        yield Sample(f"aten.{name}", (*tensor, *size), ulps=0, note="only shape")


def attentions() -> Iterator[Sample]:
    def near(*args: Any, **kwargs: Any) -> Sample:
        return Sample("aten.scaled_dot_product_attention.default", args, kwargs, ulps=16, sums=True)

    q = T(B, 2, 9, 16)
    yield near(q, q, q)
    yield near(T(B, 4, 9, 8), T(B, 2, 21, 8), T(B, 2, 21, 8), enable_gqa=True)
    yield near(T(2, 2, 9, 8), T(2, 2, 21, 8), T(2, 2, 21, 8), T(9, 21, dtype="bool"))
    yield near(T(B, 2, 9, 8), T(B, 2, 21, 8), T(B, 2, 21, 8), T(B, 1, 1, 21))
    yield near(q, q, q, None, 0.0, True)
    yield near(T(2, 2, 5, 8), T(2, 2, 9, 8), T(2, 2, 9, 8), None, 0.0, True)
    yield near(T(3, 9, 8), T(3, 7, 8), T(3, 7, 8), scale=0.5)
    yield near(T(2, 3, 2, 9, 8), T(2, 3, 2, 7, 8), T(2, 3, 2, 7, 8))
    yield near(T(1, 2, 50, 0), T(1, 2, 60, 0), T(1, 2, 60, 16))
    yield near(T(2, 9, 2, 8, view=lambda x: x.transpose(1, 2)), T(2, 2, 9, 8), T(2, 2, 9, 6))


def sizes_and_limits() -> Iterator[Sample]:
    """Large, empty and dynamic sizes where they are rare, and numbers at the ends of their types."""

    def near(operator: str, *args: Any, **kwargs: Any) -> Sample:
        return Sample(operator, args, kwargs, ulps=16, sums=True)

    def exact(operator: str, *args: Any, **kwargs: Any) -> Sample:
        return Sample(operator, args, kwargs, ulps=0)

    # dynamic sizes in every place; sizes of 1 that torch.export would make a case of their own are left out
    yield Sample("aten.slice.Tensor", (T(B, 4), 0, 0, -1), ulps=0, least=3)
    yield Sample("aten.slice.Tensor", (T(B, 4), 0, -3, 9223372036854775807), ulps=0, least=3)
    yield Sample("aten.slice.Tensor", (T(4, B), 1, 0, 9223372036854775807, 2), ulps=0, least=3)
    yield exact("aten.select.int", T(B, 4), 0, -1)
    yield exact("aten.cat.default", [T(B, 4), T(2, 4), T(B, 4)])
    yield exact("aten.flip.default", T(B, 4), [0])
    yield exact("aten.roll.default", T(B, 4), [2], [0])
    yield exact("aten.repeat.default", T(B, 2), [3, 2])
    yield exact("aten.tril.default", T(B, B))
    yield exact("aten.pad.default", T(2, 3, B), [1, 2])
    yield exact("aten.flatten.using_ints", T(2, B, 3), 0, 1)
    yield exact("aten.reshape.default", T(4, B, view=transposed), [-1])
    yield exact("aten.upsample_nearest2d.vec", T(2, 3, B, 5), None, [2.0, 2.0])
    yield Sample("aten.max_pool2d.default", (T(2, 3, B, 8), [3, 3], [2, 2], [1, 1]), ulps=0, least=4)
    yield exact("aten.index_select.default", T(B, 4), 0, I(3, low=0, high=0))
    yield exact("aten.argmax.default", T(4, B), None, True)
    yield exact("aten.argmax.default", T(3, 4, 5), None, True)
    yield exact("aten.stack.default", [T(B), T(B)], -1)
    yield exact("aten.expand.default", T(B, 1), [-1, 5])
    strided_conv = (W(5, 3, 3, 3), W(5), [2, 2], [1, 1])
    yield Sample("aten.conv2d.default", (T(2, 3, B, 8), *strided_conv), ulps=16, sums=True, least=4)
    yield near("aten.conv2d.default", T(2, 6, 8, B), W(6, 1, 3, 3), W(6), [1, 1], [1, 1], [1, 1], 6)
    yield Sample("aten.conv1d.default", (T(2, 3, B), W(5, 3, 3), W(5), [2], [1]), ulps=16, sums=True, least=4)
    pool = ([3, 3], [2, 2], [1, 1], False, False)
    yield Sample("aten.avg_pool2d.default", (T(2, 3, B, 8), *pool), ulps=16, sums=True, least=4)
    yield near("aten.bmm.default", T(2, 5, B), T(2, B, 7))
    yield near("aten.mm.default", T(5, B), T(B, B))
    yield near("aten.mm.default", T(B, 5, view=transposed), T(B, 7))
    yield near("aten.softmax.int", T(4, B), -1)
    yield near("aten.softmax.int", T(4, B, 3), 1)
    yield near("aten.var.correction", T(4, B), [-1], correction=0)
    yield near("aten.mean.default", T(4, B))
    yield near("aten.layer_norm.default", T(4, B, 7), [7])
    yield near(
        "aten.scaled_dot_product_attention.default", T(2, 2, B, 8), T(2, 2, B, 8), T(2, 2, B, 8), None, 0.0, True
    )
    # large: several tasks, blocks, rows longer than a cache
    yield near("aten.linear.default", T(70, 300), W(130, 300), W(130))
    yield near("aten.mm.default", T(65, 700), T(700, 129))
    yield near("aten.softmax.int", T(3, 5001), -1)
    yield near("aten.softmax.int", T(3, 50, 70), 1)
    yield near("aten.layer_norm.default", T(3, 5001), [5001], W(5001), W(5001))
    yield Sample("aten.sum.default", (T(70001, low=0.0),), ulps=16)
    yield near("aten.sum.dim_IntList", T(700, 300), [0])
    yield exact("aten.max.dim", T(40, 1001), 1)
    yield exact("aten.relu.default", T(70001))
    yield near("aten.conv2d.default", T(1, 40, 30, 30), W(70, 40, 3, 3), W(70), [1, 1], [1, 1])
    yield near("aten.conv2d.default", T(1, 40, 9, 9), W(70, 40, 1, 1), None, [2, 2])
    yield near("aten.conv2d.default", T(1, 3, 20, 20), W(4, 3, 2, 2), None, [5, 5], [2, 2])
    yield near("aten.scaled_dot_product_attention.default", T(1, 2, 150, 64), T(1, 2, 301, 64), T(1, 2, 301, 64))
    # empty
    yield exact("aten.relu.default", T(0, 4))
    yield exact("aten.sum.dim_IntList", T(0, 4), [0])
    yield exact("aten.prod.default", T(0))
    yield exact("aten.mean.dim", T(4, 0), [1])
    yield exact("aten.mm.default", T(4, 0), T(0, 5))
    yield exact("aten.linear.default", T(0, 6), W(5, 6))
    yield exact("aten.linear.default", T(4, 0), W(2, 0), W(2))
    yield exact("aten.any.default", T(0))
    yield exact("aten.all.default", T(0))
    # the ends of number types
    big = 2**62
    yield exact("aten.add.Tensor", I(20, low=-big, high=big), I(20, low=-big, high=big))
    yield exact("aten.mul.Tensor", I(20, low=-big, high=big), I(20))
    yield exact("aten.mul.Tensor", I(20, dtype="i32", low=-(2**31), high=2**31 - 1), I(20, dtype="i32"))
    yield exact("aten.sum.default", I(20, low=-big, high=big))
    yield exact("aten.floor_divide.default", I(20, low=-big, high=big), I(20, low=2))
    yield exact("aten.remainder.Scalar", I(20, low=-big, high=big), 1000003)
    yield exact("aten.lt.Tensor", I(20, low=-big, high=big), I(20, low=-big, high=big))
    yield exact("aten.amax.default", I(20, low=-big, high=-1), [0])
    yield exact("aten.neg.default", I(20, dtype="i8", low=-128, high=-120))
    yield exact("aten.abs.default", I(20, dtype="i16", low=-32768, high=32767))
    yield exact("aten.bitwise_not.default", I(20, dtype="i16", low=-32768, high=32767))
    for name in SHIFTS:
        yield exact(f"aten.{name}.Tensor", I(20, low=-big, high=big), I(20, low=0, high=63))
        yield exact(f"aten.{name}.Tensor", I(20, dtype="i32", low=-100, high=100), I(20, dtype="i32", low=0, high=31))
        yield exact(f"aten.{name}.Tensor", I(20, dtype="u8", low=0, high=255), I(20, dtype="u8", low=0, high=7))
    yield Sample("aten.exp.default", (T(20, dtype="f16", low=9, high=12),), ulps=1, eager=True)
    yield Sample(
        "aten.mul.Tensor",
        (T(20, dtype="bf16", low=1e20, high=1e25), T(20, low=1e15, high=1e16, dtype="bf16")),
        ulps=1,
        eager=True,
    )
    yield Sample("aten.exp.default", (T(20, low=-104, high=-86),), ulps=4, note="subnormal")
    yield Sample("aten.sum.dim_IntList", (T(5, dtype="bool"), [0]))
    yield Sample("aten.sum.dim_IntList", (T(4, 5), []), sums=True)
    yield Sample("aten.mean.dim", (T(4, 5), None), sums=True)
    yield Sample("aten.permute.default", (T(2, 3, 2, 3, 2), [4, 2, 0, 3, 1]))
    yield Sample("aten.reshape.default", (T(4, 1, view=lambda x: x.expand(4, 6)), [24]))
    yield Sample("aten.clone.default", (T(2, 3, 4, 5),), {"memory_format": torch.channels_last})


FAMILIES = (
    unary, binary, arithmetic, selection, conversions, creation, indexing, products, convolutions, reductions, norms,
    pools, views, attentions, sizes_and_limits, ordered_samples.scans, ordered_samples.scatters, ordered_samples.sorts,
    *special_samples.FAMILIES,
)  # fmt: skip


def samples() -> list[Sample]:
    """All samples, each name once."""
    return list({s.name: s for family in FAMILIES for s in family()}.values())

"""Samples of operators that read many elements for one: products, convolutions, reductions, norms, pools, lookups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..helpers.samples import BATCH, I, Operand, Sample, T, W, channels_last, transposed

B = BATCH


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


FAMILIES = (indexing, products, convolutions, reductions, norms, pools)

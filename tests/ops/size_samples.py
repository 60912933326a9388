"""Samples of views and attention, and of sizes and numbers where they are rare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..helpers.samples import BATCH, I, Sample, T, W, transposed
from .elementwise_samples import SHIFTS

B = BATCH


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


FAMILIES = (views, attentions, sizes_and_limits)

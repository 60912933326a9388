"""torchvision's operators of detection: non-maximum suppression and region pooling (kernels/vision/vision.h).

The names are torchvision's; mycc itself never imports it.
"""

from __future__ import annotations

from typing import Any

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, IndexValue, cast
from ...ir.index import ZERO, Index, Indirect, as_index, of
from ..core.builder import call, number
from ..core.context import Context
from ..core.registry import row
from ..core.routines import call_routine
from ..core.tensor import Tensor
from ..pointwise.create import filled
from .data_sizes import selected
from .gather import indirect
from .sort import sorted_rows


@row("torchvision.nms.default")
def nms(ctx: Context, boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Places of the boxes that stay, by falling scores: [kept], i64.

    boxes: [n, 4], x1, y1, x2, y2. A box goes when one that stays, of a higher score, overlaps it by more than the
    threshold (intersection over union).
    """
    n, dtype = boxes.shape[0], _compute(boxes)
    order = sorted_rows(ctx, scores, 0, True)[1]

    def corner(i: list[Index]) -> Expr:
        return cast(boxes.at([of(Indirect(order.at([i[1]]), n)), i[0]]), dtype)

    corners = ctx.builder.map((as_index(4), n), dtype, corner)
    limit = filled((), "f64", float(iou_threshold))
    (kept,) = call_routine(ctx.builder, "nms", (), [(corners, 2), (limit, 0)], [((n,), "bool")], [n])
    return selected(ctx, order, kept, ctx.value().shape[0])


@row("torchvision.roi_align.default")
def roi_align(
    ctx: Context, x: Tensor, rois: Tensor, scale: float, rows: Any, columns: Any, ratio: int, aligned: bool
) -> Tensor:
    """Means of bilinear samples: [regions, channels, rows, columns] from x [batch, channels, height, width]."""
    return _aligned(ctx, x, rois, scale, 0.5 if aligned else 0.0, ratio, least=not aligned, sensitive=False)


@row("torchvision.ps_roi_align.default")
def ps_roi_align(
    ctx: Context, x: Tensor, rois: Tensor, scale: float, rows: Any, columns: Any, ratio: int
) -> tuple[Tensor, Tensor]:
    """As roi_align, each bin from a channel of its own, and the numbers of those channels."""
    result = _aligned(ctx, x, rois, scale, 0.5, ratio, least=False, sensitive=True)
    _, _, rows, columns = result.shape
    bins = rows * columns
    channel = lambda i: IndexValue(i[1] * bins + i[2] * columns + i[3])  # noqa: E731
    return result, ctx.builder.map(result.shape, ctx.result_dtype(1), channel)


@row("torchvision.roi_pool.default")
def roi_pool(ctx: Context, x: Tensor, rois: Tensor, scale: float, rows: Any, columns: Any) -> tuple[Tensor, Tensor]:
    """Maxima of bins of whole pixels, and their places in the plane (-1 of an empty bin)."""
    return _pooled(ctx, x, rois, scale, sensitive=False)


@row("torchvision.ps_roi_pool.default")
def ps_roi_pool(ctx: Context, x: Tensor, rois: Tensor, scale: float, rows: Any, columns: Any) -> tuple[Tensor, Tensor]:
    """Means of bins of whole pixels, each from a channel of its own, and the numbers of those channels."""
    return _pooled(ctx, x, rois, scale, sensitive=True)


def _aligned(
    ctx: Context, x: Tensor, rois: Tensor, scale: float, offset: float, ratio: int, least: bool, sensitive: bool
) -> Tensor:
    dtype = _compute(x)

    def corner(value: Expr) -> Expr:
        return call("sub", call("mul", value, number(scale, dtype)), number(offset, dtype))

    count, *block = ctx.result_shape(0 if sensitive else None)
    sizes = _sizes(x, block)
    flags = [max(ratio, 0), int(least), int(sensitive)]
    operands = _operands(ctx, x, rois, corner)
    return call_routine(ctx.builder, "roi_align", (count,), operands, [(tuple(block), x.dtype)], [*sizes, *flags])[0]


def _pooled(ctx: Context, x: Tensor, rois: Tensor, scale: float, sensitive: bool) -> tuple[Tensor, Tensor]:
    dtype = _compute(x)

    def corner(value: Expr) -> Expr:
        """The next whole pixel; halves away from zero, as C rounds."""
        scaled = call("mul", value, number(scale, dtype))
        half = call("copysign", number(0.5, dtype), scaled)
        whole = call("trunc", scaled)
        rest = call("trunc", call("mul", call("sub", scaled, whole), number(2.0, dtype)))
        return call("add", whole, call("mul", rest, call("abs", call("mul", half, number(2.0, dtype)))))

    count, *block = ctx.result_shape(0)
    shape = tuple(block)
    operands = _operands(ctx, x, rois, corner)
    outputs = [(shape, x.dtype), (shape, "i32")]
    value, place = call_routine(
        ctx.builder, "roi_pool", (count,), operands, outputs, [*_sizes(x, block), int(sensitive)]
    )
    return value, place


def _operands(ctx: Context, x: Tensor, rois: Tensor, corner: Any) -> list[tuple[Tensor, int]]:
    """The images, the corners of each region in pixels and the number of its image, checked against the batch."""
    dtype, batch = _compute(x), x.shape[0]
    count = rois.shape[0]

    def image(i: list[Index]) -> Expr:
        return IndexValue(indirect(rois.at([i[0], ZERO]), batch, wrap=False))

    corners = ctx.builder.map((count, as_index(4)), dtype, lambda i: corner(cast(rois.at([i[0], i[1] + 1]), dtype)))
    return [(x, 4), (corners, 1), (ctx.builder.map((count,), "i64", image), 0)]


def _sizes(x: Tensor, block: list[Index]) -> list[Index]:
    """Channels of a result; channels, height and width of an image; rows and columns of bins."""
    return [block[0], *x.shape[1:], *block[1:]]


def _compute(x: Tensor) -> str:
    """What coordinates are computed in."""
    return DTYPES[x.dtype].compute

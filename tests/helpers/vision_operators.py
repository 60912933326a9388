"""torchvision's and torchaudio's operators for tests: the libraries' own where they are installed.

Elsewhere their schemas are registered with references in plain Python, which compute in the operands' own precision.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

_SCHEMAS = {
    "torchvision": {
        "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        "roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
        "int sampling_ratio, bool aligned) -> Tensor",
        "ps_roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
        "int sampling_ratio) -> (Tensor, Tensor)",
        "roi_pool": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) "
        "-> (Tensor, Tensor)",
        "ps_roi_pool": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) "
        "-> (Tensor, Tensor)",
        "deform_conv2d": "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
        "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
        "SymInt offset_groups, bool use_mask) -> Tensor",
    },
    "torchaudio": {"_lfilter_core_loop": "(Tensor x, Tensor a, Tensor(a!) y) -> ()"},
}
_libraries: list[torch.library.Library] = []  # an operator lasts as long as its library


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    kept: list[int] = []
    for i in scores.argsort(descending=True, stable=True).tolist():
        if all(_overlap(boxes[i], boxes[j]) <= iou_threshold for j in kept):
            kept.append(i)
    return torch.tensor(kept, dtype=torch.int64)


def _overlap(a: Tensor, b: Tensor) -> float:
    width = (torch.minimum(a[2], b[2]) - torch.maximum(a[0], b[0])).clamp(min=0)
    height = (torch.minimum(a[3], b[3]) - torch.maximum(a[1], b[1])).clamp(min=0)
    areas = [(t[2] - t[0]) * (t[3] - t[1]) for t in (a, b)]
    return float(width * height / (areas[0] + areas[1] - width * height))


def _kind(x: Tensor) -> Any:
    """The numbers that an operator computes with: numpy's, of the precision of its operand."""
    return np.float64 if x.dtype == torch.float64 else np.float32


def _sample(plane: Tensor, y: Any, x: Any) -> Any:
    """Bilinear, 0 farther than a pixel outside of the plane."""
    height, width = plane.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    kind = _kind(plane)
    y, x = min(max(y, kind(0)), kind(height - 1)), min(max(x, kind(0)), kind(width - 1))
    top, left = int(y), int(x)
    rows, columns = {top: 1 - (y - top)}, {left: 1 - (x - left)}
    if y > top:
        rows[top + 1] = y - top
    if x > left:
        columns[left + 1] = x - left
    return sum(kind(plane[r, c].item()) * v * u for r, v in rows.items() for c, u in columns.items())


def _aligned(
    x: Tensor, rois: Tensor, scale: float, bins: Any, ratio: int, offset: float, least: bool, own: bool
) -> Any:
    rows, columns = bins
    channels = x.shape[1] // (rows * columns) if own else x.shape[1]
    out = x.new_zeros([len(rois), channels, rows, columns])
    numbers = torch.zeros(out.shape, dtype=torch.int32)
    for k, roi in enumerate(rois.tolist()):
        kind = _kind(x)
        left, top, right, bottom = (kind(v) * kind(scale) - kind(offset) for v in roi[1:])
        size_y, size_x = bottom - top, right - left
        if least:
            size_y, size_x = max(size_y, kind(1)), max(size_x, kind(1))
        bin_y, bin_x = size_y / rows, size_x / columns
        ny, nx = (ratio if ratio > 0 else math.ceil(b) for b in (bin_y, bin_x))
        ny, nx = max(ny, 0), max(nx, 0)
        for c in range(channels):
            for ph in range(rows):
                for pw in range(columns):
                    channel = (c * rows + ph) * columns + pw if own else c
                    plane = x[int(roi[0]), channel]
                    total = sum(
                        _sample(
                            plane, top + ph * bin_y + (i + 0.5) * bin_y / ny, left + pw * bin_x + (j + 0.5) * bin_x / nx
                        )
                        for i in range(ny)
                        for j in range(nx)
                    )
                    count = ny * nx if own else max(ny * nx, 1)
                    out[k, c, ph, pw] = float(total / count) if count else math.nan
                    numbers[k, c, ph, pw] = channel
    return out, numbers


def roi_align(x: Tensor, rois: Tensor, scale: float, rows: int, columns: int, ratio: int, aligned: bool) -> Tensor:
    offset = 0.5 if aligned else 0.0
    return _aligned(x, rois, scale, (rows, columns), ratio, offset, not aligned, False)[0]


def ps_roi_align(x: Tensor, rois: Tensor, scale: float, rows: int, columns: int, ratio: int) -> tuple[Tensor, Tensor]:
    return _aligned(x, rois, scale, (rows, columns), ratio, 0.5, False, True)


def _rounded(value: float) -> int:
    return math.floor(abs(value) + 0.5) * (1 if value >= 0 else -1)


def _pooled(x: Tensor, rois: Tensor, scale: float, rows: int, columns: int, own: bool) -> tuple[Tensor, Tensor]:
    height, width = x.shape[2:]
    channels = x.shape[1] // (rows * columns) if own else x.shape[1]
    out = x.new_zeros([len(rois), channels, rows, columns])
    places = torch.full(out.shape, -1, dtype=torch.int32)
    for k, roi in enumerate(rois.tolist()):
        left, top, right, bottom = (_rounded(v * scale) for v in roi[1:])
        extra, edge = (0, 1) if own else (1, 0)
        bin_y = max(bottom - top + extra, 1) / rows
        bin_x = max(right - left + extra, 1) / columns
        for c in range(channels):
            for ph in range(rows):
                for pw in range(columns):
                    y0, y1 = (
                        min(max(v + top, 0), height - edge)
                        for v in (math.floor(ph * bin_y), math.ceil((ph + 1) * bin_y))
                    )
                    x0, x1 = (
                        min(max(v + left, 0), width - edge)
                        for v in (math.floor(pw * bin_x), math.ceil((pw + 1) * bin_x))
                    )
                    channel = (c * rows + ph) * columns + pw if own else c
                    part = x[int(roi[0]), channel, y0:y1, x0:x1]
                    places[k, c, ph, pw] = channel if own else -1
                    if part.numel() and own:
                        out[k, c, ph, pw] = part.mean()
                    elif part.numel():
                        out[k, c, ph, pw] = part.max()
                        r, q = divmod(int(part.argmax()), x1 - x0)
                        places[k, c, ph, pw] = (y0 + r) * width + x0 + q
    return out, places


def roi_pool(x: Tensor, rois: Tensor, scale: float, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    return _pooled(x, rois, scale, rows, columns, False)


def ps_roi_pool(x: Tensor, rois: Tensor, scale: float, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    return _pooled(x, rois, scale, rows, columns, True)


def deform_conv2d(
    x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, stride_h: int, stride_w: int, pad_h: int,
    pad_w: int, dilation_h: int, dilation_w: int, groups: int, offset_groups: int, use_mask: bool,
) -> Tensor:  # fmt: skip
    n, channels, _, _ = x.shape
    out_c, per_group, kernel_h, kernel_w = weight.shape
    taps, out_h, out_w = kernel_h * kernel_w, *offset.shape[-2:]
    y = bias.reshape([1, -1, 1, 1]).expand([n, out_c, out_h, out_w]).clone()
    for b in range(n):
        for i in range(out_h):
            for j in range(out_w):
                for c in range(channels):
                    g = c // (channels // offset_groups)
                    for t in range(taps):
                        at = 2 * (g * taps + t)
                        kind = _kind(x)
                        row = kind(i * stride_h - pad_h + t // kernel_w * dilation_h) + kind(offset[b, at, i, j].item())
                        column = kind(j * stride_w - pad_w + t % kernel_w * dilation_w) + kind(
                            offset[b, at + 1, i, j].item()
                        )
                        value = _inside(x[b, c], row, column) * (
                            float(mask[b, g * taps + t, i, j]) if use_mask else 1.0
                        )
                        group = c // per_group
                        outs = slice(group * (out_c // groups), (group + 1) * (out_c // groups))
                        y[b, outs, i, j] += weight[outs, c % per_group, t // kernel_w, t % kernel_w] * float(value)
    return y


def _inside(plane: Tensor, row: Any, column: Any) -> Any:
    """Bilinear with zeros around the plane."""
    kind = _kind(plane)
    top, left = math.floor(row), math.floor(column)
    total = kind(0)
    for r, v in ((top, 1 - (row - top)), (top + 1, row - top)):
        for c, u in ((left, 1 - (column - left)), (left + 1, column - left)):
            if 0 <= r < plane.shape[0] and 0 <= c < plane.shape[1]:
                total += kind(plane[r, c].item()) * v * u
    return total


def _lfilter_core_loop(x: Tensor, a: Tensor, y: Tensor) -> None:
    order = a.shape[1]
    for t in range(x.shape[2]):
        y[:, :, t + order - 1] = x[:, :, t] - (y[:, :, t : t + order] * a).sum(-1)


def _fake_shapes(name: str) -> Callable[..., Any]:
    def nms_fake(boxes: Tensor, *_: Any) -> Tensor:
        rows = torch.library.get_ctx().new_dynamic_size()
        return boxes.new_empty([rows], dtype=torch.int64)

    def region(x: Tensor, rois: Tensor, _: float, rows: int, columns: int, *rest: Any) -> Any:
        channels = x.shape[1] // (rows * columns) if name.startswith("ps_") else x.shape[1]
        out = x.new_empty([rois.shape[0], channels, rows, columns])
        return out if name == "roi_align" else (out, torch.empty(out.shape, dtype=torch.int32))

    def deform(x: Tensor, weight: Tensor, offset: Tensor, *_: Any) -> Tensor:
        return x.new_empty([x.shape[0], weight.shape[0], *offset.shape[-2:]])

    return {"nms": nms_fake, "deform_conv2d": deform, "_lfilter_core_loop": lambda *_: None}.get(name, region)


def register_library_operators() -> None:
    """Makes torch.ops.torchvision and torch.ops.torchaudio have the operators above; once a process."""
    if _libraries:
        return
    for namespace, schemas in _SCHEMAS.items():
        if importlib.util.find_spec(namespace) is not None:
            importlib.import_module(namespace)
            continue
        library = torch.library.Library(namespace, "FRAGMENT")
        _libraries.append(library)
        for name, schema in schemas.items():
            library.define(f"{name}{schema}")
            library.impl(name, globals()[name], "CPU")
            torch.library.register_fake(f"{namespace}::{name}", _fake_shapes(name), lib=library)

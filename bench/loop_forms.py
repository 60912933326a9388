"""The forms that kernels_loops.py times: arithmetic, reductions and norms; copies that change order, gathers, pools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


@dataclass(frozen=True)
class Form:
    """A function of tensors; moved: bytes read and written, where the operands do not tell."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    moved: int | None = None


def forms(megabytes: int) -> list[Form]:
    """Float32 tensors of about `megabytes` MiB in shapes of models."""
    return [*arithmetic(megabytes), *moves(megabytes), *pools(megabytes)]


def arithmetic(megabytes: int) -> list[Form]:
    n = megabytes << 18  # elements
    x = torch.randn(n // 4096, 4096)
    y = x.flip(0)
    rows = torch.randn(n // 1024, 1024)
    odd = torch.randn(n // 1021, 1021)
    hidden = torch.randn(n // 768, 768)
    image = torch.randn(n // (64 * 56 * 56), 64, 56, 56)
    last = torch.randn(n // (64 * 56 * 56), 56, 56, 64)
    cube = torch.randn(n // (256 * 256), 256, 256)
    classes = torch.randn(max(n // (21 * 512 * 512), 1), 21, 512, 512)  # of a segmentation
    bias, weight = torch.randn(4096), torch.randn(768)
    small = torch.randn(256, 1024)
    column = torch.randn(n // 4096, 1)
    return [
        Form("relu", torch.relu, (x,)),
        Form("relu 1 MB", torch.relu, (small,)),
        Form("add", torch.add, (x, y)),
        Form("bias and relu", lambda a, b: torch.relu(a + b), (x, bias)),
        Form("scale of rows", lambda a, b: a * b, (x, column)),
        Form("gelu", F.gelu, (x,)),
        Form("silu of one times another", lambda a, b: F.silu(a) * b, (x, y)),
        Form("tanh", torch.tanh, (x,)),
        Form("f32 to bf16", lambda a: a.to(torch.bfloat16), (x,)),
        Form("f32 to f16", lambda a: a.to(torch.float16), (x,)),
        Form("bf16 to f32", lambda a: a.to(torch.float32), (x.to(torch.bfloat16),)),
        Form("u8 to f32, normalised", lambda a: (a.to(torch.float32) - 127) * 0.02, (x.to(torch.uint8),)),
        Form("i64 to f32", lambda a: a.to(torch.float32), (x[: len(x) // 2].to(torch.int64),)),
        Form("compare and select", lambda a, b: torch.where(a > b, a, -b), (x, y)),
        Form("broadcast of a row", lambda a: a.expand(n // 4096, 4096).clone() + 1, (bias,)),
        Form("sum of rows", lambda a: a.sum(-1), (rows,)),
        Form("sum of long rows", lambda a: a.sum(-1), (x.reshape(64, -1),)),
        Form("sum of odd rows", lambda a: a.sum(-1), (odd,)),
        Form("sum of columns", lambda a: a.sum(0), (x,)),
        Form("sum of the middle", lambda a: a.sum(1), (cube,)),
        Form("sum of few columns", lambda a: a.sum(0), (torch.randn(n // 64, 64),)),
        Form("sum of all", lambda a: a.sum(), (x,)),
        Form("mean of maps", lambda a: a.mean((2, 3)), (image,)),
        Form("mean of maps, channels last", lambda a: a.mean((1, 2)), (last,)),
        Form("max of rows", lambda a: a.amax(-1), (rows,)),
        Form("max of columns", lambda a: a.amax(0), (x,)),
        Form("argmax of rows", lambda a: a.argmax(-1), (rows,)),
        Form("argmax of columns", lambda a: a.argmax(0), (x,)),
        Form("variance of rows", lambda a: a.var(-1), (rows,)),
        Form("norm of all", lambda a: (a * a).sum().sqrt(), (x,)),
        Form("softmax of rows", lambda a: a.softmax(-1), (rows,)),
        Form("softmax of long rows", lambda a: a.softmax(-1), (x.reshape(64, -1),)),
        Form("softmax of columns", lambda a: a.softmax(0), (x,)),
        Form("softmax of the middle", lambda a: a.softmax(1), (cube,)),
        Form("softmax of classes", lambda a: a.softmax(1), (classes,)),
        Form("log_softmax of classes", lambda a: a.log_softmax(1), (classes,)),
        Form("argmax of classes", lambda a: a.argmax(1), (classes,)),
        Form("max of classes", lambda a: a.amax(1), (classes,)),
        Form("sum of classes", lambda a: a.sum(1), (classes,)),
        Form("max of 8 planes", lambda a: a.amax(1), (torch.randn(n // (8 << 16), 8, 256, 256),)),
        Form("argmax of classes, bf16", lambda a: a.argmax(1), (classes.to(torch.bfloat16),)),
        Form("log_softmax of rows", lambda a: a.log_softmax(-1), (odd,)),
        Form("layer_norm 768", lambda a, w: F.layer_norm(a, (768,), w, w), (hidden, weight)),
        Form("rms_norm 4096", lambda a, w: F.rms_norm(a, (4096,), w), (x, bias)),
        Form("group_norm", lambda a, w: F.group_norm(a, 32, w, w), (image, weight[:64].clone())),
        Form("batch norm, maps", lambda a, w: a * w[:, None, None] + w[:, None, None], (image, weight[:64].clone())),
    ]  # fmt: skip


def moves(megabytes: int) -> list[Form]:
    """Copies that change the order of elements, lookups, joins and choices."""
    n = megabytes << 18  # elements
    x = torch.randn(n // 4096, 4096)
    y, short = x.flip(0), x.to(torch.bfloat16)
    rows = torch.randn(n // 1024, 1024)
    image = torch.randn(n // (64 * 56 * 56), 64, 56, 56)
    last = torch.randn(n // (64 * 56 * 56), 56, 56, 64)
    heads = torch.randn(n // (128 * 12 * 64), 128, 12, 64)
    cube = torch.randn(n // (256 * 256), 256, 256)
    scores = torch.randn(n // (12 * 256 * 256), 12, 256, 256)
    odd = torch.randn(n // 151, 151)
    bytes_ = x.to(torch.uint8)
    table, ids = torch.randn(30000, 768), torch.randint(0, 30000, (n // 768,))
    side = min(len(x), 4096)
    square, left = x[:side, :side].contiguous(), rows[:, :512].contiguous()
    columns, places = torch.randperm(4096), torch.randint(0, 512, left.shape)
    visible = torch.ones(256, 256, dtype=torch.bool).tril()
    kept = torch.rand(len(scores), 1, 1, 256) > 0.2
    half = 4 * n // 2
    short_rows = [
        Form(f"embedding of {w}", F.embedding, (torch.randint(0, 100000, (n // w,)), torch.randn(100000, w)), 8 * n)
        for w in (16, 32, 64)
    ]
    return [
        Form("transpose", lambda a: a.t().contiguous() + 0, (x,)),
        Form("transpose of batches", lambda a: a.transpose(1, 2).contiguous() + 0, (cube,)),
        Form("transpose, bf16", lambda a: a.t().contiguous(), (short,)),
        Form("transpose, u8", lambda a: a.t().contiguous(), (bytes_,)),
        Form("transpose, f64", lambda a: a.t().contiguous(), (x[: len(x) // 2].double(),)),
        Form("heads to the front", lambda a: a.transpose(1, 2).contiguous(), (heads,)),
        Form("keys transposed", lambda a: a.permute(0, 2, 3, 1).contiguous(), (heads,)),
        Form("to channels last", lambda a: a.permute(0, 2, 3, 1).contiguous(), (image,)),
        Form("from channels last", lambda a: a.permute(0, 3, 1, 2).contiguous(), (last,)),
        Form("dimensions reversed", lambda a: a.permute(2, 1, 0).contiguous(), (cube,)),
        Form("add of a transposed", lambda a, b: a + b.t(), (square, square)),
        Form("embedding", F.embedding, (ids, table), 2 * 4 * 768 * len(ids)),
        Form("index_select of columns", lambda a, i: a.index_select(1, i), (x, columns), 2 * half * 2),
        Form("gather along rows", lambda a, i: a.gather(1, i), (left, places)),
        Form("concatenation of rows", lambda a, b: torch.cat([a, b], -1), (left, left)),
        Form("concatenation in front", lambda a, b: torch.cat([a, b], 0), (x, y)),
        Form("stack at the end", lambda a, b: torch.stack([a, b], -1), (x, y)),
        Form("padding", lambda a: F.pad(a, (1, 1, 1, 1)), (image,)),
        Form("roll", lambda a: torch.roll(a, (3,), (1,)), (x,)),
        Form("flip of rows", lambda a: a.flip(-1), (x,)),
        Form("every second", lambda a: a[:, ::2].contiguous() + 0, (x,), half * 3),
        Form("nearest twice as large", lambda a: F.interpolate(a, scale_factor=2.0), (image[: len(image) // 4],)),
        Form("pixel shuffle", lambda a: F.pixel_shuffle(a, 2) + 0, (image,)),
        Form("pixel shuffle, copied", lambda a: F.pixel_shuffle(a, 2), (image,)),
        Form("pixel shuffle, bf16", lambda a: F.pixel_shuffle(a, 2), (image.to(torch.bfloat16),)),
        Form("pixel unshuffle", lambda a: F.pixel_unshuffle(a, 2), (image,)),
        Form("roll, bf16", lambda a: torch.roll(a, (3,), (1,)), (short,)),
        Form("roll of windows", lambda a: torch.roll(a, (-3, -3), (1, 2)), (last,)),
        Form("patches", patches, (torch.randn(n // (3 * 224 * 224), 3, 224, 224),)),
        Form("rope of pairs", rope_of_pairs, (heads, torch.randn(128, 1, 32), torch.randn(128, 1, 32))),
        Form("rope", rope, (heads, torch.randn(128, 1, 64), torch.randn(128, 1, 64))),
        Form("keys transposed, bf16", lambda a: a.permute(0, 2, 3, 1).contiguous(), (heads.to(torch.bfloat16),)),
        Form("heads to the front, bf16", lambda a: a.transpose(1, 2).contiguous(), (heads.to(torch.bfloat16),)),
        Form("to channels last, bf16", lambda a: a.permute(0, 2, 3, 1).contiguous(), (image.to(torch.bfloat16),)),
        Form("to channels last, u8", lambda a: a.permute(0, 2, 3, 1).contiguous(), (image.to(torch.uint8),)),
        Form("bytes of pixels to f32", lambda a: a.permute(0, 3, 1, 2).float() / 255, (pixels(n),)),
        Form("channel shuffle", channel_shuffle, (image,)),
        Form("pixel unshuffle, bf16", lambda a: F.pixel_unshuffle(a, 2), (image.to(torch.bfloat16),)),
        Form("merge of patches", merged_patches, (last,)),
        Form("windows", windows, (last,)),
        Form("roll of rows", lambda a: torch.roll(a, (3,), (0,)), (x,)),
        Form("roll, u8", lambda a: torch.roll(a, (3,), (1,)), (bytes_,)),
        Form("flip of rows, bf16", lambda a: a.flip(-1), (short,)),
        Form("flip of rows, u8", lambda a: a.flip(-1), (bytes_,)),
        Form("flip of images", lambda a: a.flip(-1), (image,)),
        Form("flip of columns", lambda a: a.flip(0), (x,)),
        Form("padding, bf16", lambda a: F.pad(a, (1, 1, 1, 1)), (image.to(torch.bfloat16),)),
        Form("padding of rows", lambda a: F.pad(a, (3, 5)), (rows,)),
        Form("padding, channels last", lambda a: F.pad(a, (0, 0, 1, 1, 1, 1)), (last,)),
        Form("padding, reflect", lambda a: F.pad(a, (3, 3, 3, 3), mode="reflect"), (image,)),
        Form("padding, replicate", lambda a: F.pad(a, (1, 1, 1, 1), mode="replicate"), (image,)),
        Form("cut of borders", lambda a: a[:, :, 1:-1, 1:-1].contiguous(), (image,)),
        Form("joined, odd widths", lambda a, b: torch.cat([a, b], -1), (odd, odd[:, :77].contiguous())),
        Form("joined with a column", lambda a, b: torch.cat([a, b], -1), (rows, rows[:, :1].contiguous())),
        Form("joined maps", lambda a, b: torch.cat([a, b], 1), (image, image)),
        Form("joined, channels last", lambda a, b: torch.cat([a, b], -1), (last, last[..., :48].contiguous())),
        Form("joined, bf16", lambda a, b: torch.cat([a, b], -1), (odd.to(torch.bfloat16), odd.to(torch.bfloat16))),
        Form("split of three", lambda a: [t.contiguous() for t in a.chunk(3, -1)], (rows[:, :768].contiguous(),)),
        *short_rows,
        Form("embedding, bf16", F.embedding, (ids, table.to(torch.bfloat16)), 4 * 768 * len(ids)),
        Form("index_select of columns, bf16", lambda a, i: a.index_select(1, i), (short, columns), 4 * n),
        Form("index_select of columns, u8", lambda a, i: a.index_select(1, i), (bytes_, columns), 2 * n),
        Form("index_select of rows", lambda a, i: a.index_select(0, i), (rows, torch.randperm(len(rows))), 8 * n),
        Form("gather along rows, bf16", lambda a, i: a.gather(1, i), (left.to(torch.bfloat16), places)),
        Form("gather of few", lambda a, i: a.gather(1, i), (left, places[:, :64].contiguous())),
        Form("take_along_dim", lambda a, i: torch.take_along_dim(a, i, -1), (left, places)),
        Form("gather of rows", gather_of_rows, (cube, torch.randint(0, 256, (len(cube), 256))), 8 * n),
        Form("causal mask", lambda a, m: a.masked_fill(~m, -1e9), (scores, visible)),
        Form("mask of keys", lambda a, m: a.masked_fill(~m, float("-inf")), (scores, kept)),
        Form("where with a mask", lambda m, a, b: torch.where(m, a, b), (kept, scores, scores)),
        Form("one_hot", lambda i: F.one_hot(i, 64).float(), (torch.randint(0, 64, (n // 64,)),)),
        Form("cumsum of rows", lambda a: a.cumsum(-1), (rows,)),
        Form("cumsum of columns", lambda a: a.cumsum(0), (x,)),
        Form("cumsum of the middle", lambda a: a.cumsum(1), (cube,)),
        Form("repeat of heads", repeated_heads, (scores[:, :2].contiguous(),)),
        Form("repeat_interleave", lambda a: a.repeat_interleave(2, -1), (left,)),
        Form("tiled", lambda a: a.repeat(1, 2), (left,)),
    ]  # fmt: skip


def pools(megabytes: int) -> list[Form]:
    """Windows of images: pools and resizing."""
    n = megabytes << 18
    image = torch.randn(n // (64 * 56 * 56), 64, 56, 56)
    large = torch.randn(n // (64 * 112 * 112), 64, 112, 112)
    quarter = image[: len(image) // 4]
    nhwc = image.permute(0, 2, 3, 1).contiguous()
    return [
        Form("max_pool 2x2 s2", lambda a: F.max_pool2d(a, 2), (image,)),
        Form("max_pool 3x3 s2", lambda a: F.max_pool2d(a, 3, 2, 1), (large,)),
        Form("max_pool 3x3 s1", lambda a: F.max_pool2d(a, 3, 1, 1), (image,)),
        Form("max_pool 5x5 s1", lambda a: F.max_pool2d(a, 5, 1, 2), (image[:, :, :20, :20].contiguous(),)),
        Form("max_pool 3x3 s2, channels last", of_last(lambda a: F.max_pool2d(a, 3, 2, 1)), (nhwc,)),
        Form("max_pool 2x2 s2, bf16", lambda a: F.max_pool2d(a, 2), (image.to(torch.bfloat16),)),
        Form("avg_pool 2x2 s2", lambda a: F.avg_pool2d(a, 2), (image,)),
        Form("avg_pool 3x3 s2", lambda a: F.avg_pool2d(a, 3, 2, 1), (large,)),
        Form("avg_pool 3x3 s1", lambda a: F.avg_pool2d(a, 3, 1, 1), (image,)),
        Form("avg_pool 3x3 s1, channels last", of_last(lambda a: F.avg_pool2d(a, 3, 1, 1)), (nhwc,)),
        Form("adaptive_avg_pool 1", lambda a: F.adaptive_avg_pool2d(a, 1), (image,)),
        Form("adaptive_avg_pool 7", lambda a: F.adaptive_avg_pool2d(a, 7), (image,)),
        Form("adaptive_avg_pool 6 of 56", lambda a: F.adaptive_avg_pool2d(a, 6), (image,)),
        Form("adaptive_max_pool 7", lambda a: F.adaptive_max_pool2d(a, 7), (image,)),
        Form("nearest to 80", lambda a: F.interpolate(a, size=(80, 80)), (quarter,)),
        Form("bilinear, channels last", of_last(twice_smooth), (nhwc[: len(nhwc) // 4],)),
        Form("nearest, channels last", of_last(twice), (nhwc[: len(nhwc) // 4],)),
        Form("bilinear twice as large", lambda a: F.interpolate(a, scale_factor=2.0, mode="bilinear"), (quarter,)),
        Form("bilinear to 80", lambda a: F.interpolate(a, (80, 80), mode="bilinear", align_corners=True), (quarter,)),
        Form("bilinear of half", lambda a: F.interpolate(a, scale_factor=0.5, mode="bilinear"), (image,)),
        Form("bicubic twice as large", lambda a: F.interpolate(a, scale_factor=2.0, mode="bicubic"), (quarter,)),
    ]  # fmt: skip


def of_last(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of images whose channels are last."""
    return lambda a: function(a.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def twice(images: torch.Tensor) -> torch.Tensor:
    return F.interpolate(images, scale_factor=2.0)


def twice_smooth(images: torch.Tensor) -> torch.Tensor:
    return F.interpolate(images, scale_factor=2.0, mode="bilinear")


def pixels(n: int) -> torch.Tensor:
    return torch.randint(0, 256, (n // (3 * 224 * 224), 224, 224, 3), dtype=torch.uint8)


def channel_shuffle(images: torch.Tensor) -> torch.Tensor:
    return F.channel_shuffle(images, 2)


def merged_patches(maps: torch.Tensor) -> torch.Tensor:
    """Of a Swin transformer: four neighbours become one place."""
    return torch.cat([maps[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)


def windows(maps: torch.Tensor) -> torch.Tensor:
    """Windows of 7 x 7 places, each of its own sequence."""
    b, h, w, c = maps.shape
    return maps.reshape(b, h // 7, 7, w // 7, 7, c).transpose(2, 3).reshape(-1, 49, c)


def repeated_heads(keys: torch.Tensor) -> torch.Tensor:
    b, h, s, d = keys.shape
    return keys[:, :, None].expand(b, h, 4, s, d).reshape(b, 4 * h, s, d)


def gather_of_rows(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x.gather(1, i[..., None].expand(-1, -1, x.shape[-1]))


def patches(images: torch.Tensor) -> torch.Tensor:
    return images.reshape(-1, 3, 14, 16, 14, 16).permute(0, 2, 4, 3, 5, 1).reshape(-1, 196, 768)


def rope_of_pairs(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = q[..., ::2], q[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def rope(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = q.shape[-1] // 2
    turned = torch.cat([-q[..., half:], q[..., :half]], -1)
    return q * cos + turned * sin

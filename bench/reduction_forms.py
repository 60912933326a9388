"""More forms that kernels_loops.py times: reductions, scans and norms as models of other kinds have them."""

from __future__ import annotations

import torch
from loop_forms import Form, of_last
from torch.nn import functional as F


def reductions(megabytes: int) -> list[Form]:
    """Reductions over any dimensions, scans and norms; float32 tensors of about `megabytes` MiB."""
    n = megabytes << 18  # elements
    x = torch.randn(n // 4096, 4096)
    rows = torch.randn(n // 1024, 1024)
    heads = torch.randn(n // (12 * 197 * 197), 12, 197, 197)
    image = torch.randn(n // (64 * 56 * 56), 64, 56, 56)
    nhwc = image.permute(0, 2, 3, 1).contiguous()
    cube = torch.randn(n // (256 * 256), 256, 256)
    three = torch.randn(n // (3 * 512 * 512), 3, 512, 512)
    swin = torch.randn(n // 96, 96)
    hidden, weight = torch.randn(n // 768, 768), torch.randn(768)
    few = torch.randn(n // 64, 64)
    flags = rows > 0
    return [
        *scans(x, rows, cube),
        *(form for width in (10, 24, 49) for form in of_short_rows(torch.randn(n // width, width))),
        Form("logsumexp of the middle", lambda a: a.logsumexp(1), (x.reshape(4, -1, 4096),)),
        Form("log_softmax of columns", lambda a: a.log_softmax(0), (x,)),
        Form("mean of channels", lambda a: a.mean((0, 2, 3)), (image,)),
        Form("variance of channels", lambda a: a.var((0, 2, 3)), (image,)),
        Form("variance of maps", lambda a: a.var((2, 3)), (image,)),
        Form("variance of columns", lambda a: a.var(0), (x,)),
        Form("variance of the middle", lambda a: a.var(1), (cube,)),
        Form("std of rows", lambda a: a.std(-1), (rows,)),
        Form("variance and mean of rows", lambda a: torch.var_mean(a, -1), (rows,)),
        Form("amax of the middle", lambda a: a.amax(1), (cube,)),
        Form("max of rows, with places", lambda a: a.max(-1), (rows,)),
        Form("max of columns, with places", lambda a: a.max(0), (x,)),
        Form("argmax of rows, bf16", lambda a: a.argmax(-1), (rows.to(torch.bfloat16),)),
        Form("argmax of long rows, bf16", lambda a: a.argmax(-1), (torch.randn(n // 50257, 50257).to(torch.bfloat16),)),
        Form("argmax of the middle", lambda a: a.argmax(1), (cube,)),
        Form("prod of rows", lambda a: a.prod(-1), (rows,)),
        Form("any of rows", lambda a: a.any(-1), (flags,)),
        Form("all of columns", lambda a: a.all(0), (flags,)),
        Form("count of rows", lambda a: a.sum(-1), (flags,)),
        Form("sum of short rows", lambda a: a.sum(-1), (few,)),
        Form("sum of rows of 3", lambda a: a.sum(-1), (torch.randn(n // 3, 3),)),
        Form("sum of rows, bf16", lambda a: a.sum(-1), (rows.to(torch.bfloat16),)),
        Form("sum of rows, i64", lambda a: a.sum(-1), (rows[: len(rows) // 2].to(torch.int64),)),
        Form("logsumexp of rows", lambda a: a.logsumexp(-1), (rows,)),
        Form("logsumexp of columns", lambda a: a.logsumexp(0), (x,)),
        Form("log_softmax of the middle", lambda a: a.log_softmax(1), (cube,)),
        Form("log_softmax of long rows", lambda a: a.log_softmax(-1), (torch.randn(n // 50257, 50257),)),
        Form("softmax of 197", lambda a: a.softmax(-1), (heads,)),
        Form("softmax of short rows", lambda a: a.softmax(-1), (few,)),
        Form("softmax of rows of 3", lambda a: a.softmax(-1), (torch.randn(n // 3, 3),)),
        Form("softmax of windows of 49", lambda a: a.softmax(-1), (torch.randn(n // 49, 49),)),
        Form("log_softmax of 10 classes", lambda a: a.log_softmax(-1), (torch.randn(n // 10, 10),)),
        Form("layer_norm of 3", lambda a: F.layer_norm(a, (3,)), (torch.randn(n // 3, 3),)),
        Form("argmax of 3 classes", lambda a: a.argmax(1), (three,)),
        Form("argmin of rows", lambda a: a.argmin(-1), (rows,)),
        Form("count above a limit", lambda a: (a > 0.5).sum(-1), (rows,)),
        Form("count_nonzero of columns", lambda a: a.count_nonzero(0), (x,)),
        Form("sum of bytes", lambda a: a.sum(-1), ((rows > 0).to(torch.uint8),)),
        Form("mean of columns, bf16", lambda a: a.mean(0), (x.to(torch.bfloat16),)),
        Form("softmax of columns, bf16", lambda a: a.softmax(0), (x.to(torch.bfloat16),)),
        Form("layer_norm, f16", lambda a: F.layer_norm(a, (768,)), (hidden.half(),)),
        Form("rms_norm, bf16", lambda a, w: F.rms_norm(a, (768,), w), (hidden.bfloat16(), weight.bfloat16())),
        Form("logarithm", torch.log, (x.abs(),)),
        Form("softmax of rows, bf16", lambda a: a.softmax(-1), (rows.to(torch.bfloat16),)),
        Form("softmax of 3 classes", lambda a: a.softmax(1), (three,)),
        Form("log_softmax of 3 classes", lambda a: a.log_softmax(1), (three,)),
        Form("cross entropy", F.cross_entropy, (rows, torch.randint(0, 1024, (len(rows),)))),
        Form("normalize of rows", lambda a: F.normalize(a, dim=-1), (hidden,)),
        Form("normalize of channels", lambda a: F.normalize(a, dim=1), (image,)),
        Form("norm of rows", lambda a: a.norm(dim=-1), (rows,)),
        Form("norm of columns", lambda a: a.norm(dim=0), (x,)),
        Form("cosine similarity", lambda a, b: F.cosine_similarity(a, b, -1), (hidden, hidden.flip(0))),
        Form("layer_norm 96", lambda a, w: F.layer_norm(a, (96,), w, w), (swin, weight[:96].clone())),
        Form("layer_norm of channels", norm_of_channels, (image, weight[:64].clone())),
        Form("layer_norm, bf16", lambda a, w: F.layer_norm(a, (768,), w, w), (hidden.bfloat16(), weight.bfloat16())),
        Form("rms_norm of heads", lambda a, w: F.rms_norm(a, (64,), w), (few, weight[:64].clone())),
        Form("instance_norm", F.instance_norm, (image,)),
        Form("group_norm, channels last", group_norm_of_last, (nhwc, weight[:64].clone())),
        Form("global response norm", response_norm, (nhwc,)),
        Form("topk of rows", lambda a: a.topk(8, -1), (rows,)),
        Form("topk of experts", lambda a: a.topk(2, -1), (few,)),
        Form("sort of rows", lambda a: a.sort(-1), (rows[: len(rows) // 8],)),
        Form("squeeze and excitation", lambda a: a * a.mean((2, 3), keepdim=True).sigmoid(), (image,)),
    ]  # fmt: skip


def of_short_rows(x: torch.Tensor) -> list[Form]:
    """What is reduced, searched and written of rows that fill few vectors."""
    width = x.shape[-1]
    return [
        Form(f"largest of {width}", lambda a: a.amax(-1), (x,)),
        Form(f"argmax of {width}", lambda a: a.argmax(-1), (x,)),
        Form(f"variance of {width}", lambda a: a.var(-1), (x,)),
        Form(f"logsumexp of {width}", lambda a: a.logsumexp(-1), (x,)),
        Form(f"softmax of {width}", lambda a: a.softmax(-1), (x,)),
        Form(f"log_softmax of {width}", lambda a: a.log_softmax(-1), (x,)),
        Form(f"layer_norm of {width}", lambda a: F.layer_norm(a, (width,)), (x,)),
    ]


def scans(x: torch.Tensor, rows: torch.Tensor, cube: torch.Tensor) -> list[Form]:
    """Steps in order, along and across memory."""
    short = rows[: len(rows) // 8]
    return [
        Form("cumsum of rows, bf16", lambda a: a.cumsum(-1), (rows.to(torch.bfloat16),)),
        Form("cumsum of rows, i64", lambda a: a.cumsum(-1), ((rows > 0).to(torch.int64),)),
        Form("cumsum of short rows", lambda a: a.cumsum(-1), (x.reshape(-1, 64),)),
        Form("cumsum of odd rows", lambda a: a.cumsum(-1), (torch.randn(x.numel() // 197, 197),)),
        Form("cumsum of one row", lambda a: a.cumsum(0), (x.reshape(-1),)),
        Form("cumprod of rows", lambda a: a.cumprod(-1), (rows,)),
        Form("cummax of rows", lambda a: a.cummax(-1), (rows,)),
        Form("cummax of the middle", lambda a: a.cummax(1), (cube,)),
        Form("logcumsumexp of rows", lambda a: a.logcumsumexp(-1), (short,)),
    ]


def norm_of_channels(images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Layer norm over the channels of images, as ConvNeXt spells it."""
    return F.layer_norm(images.permute(0, 2, 3, 1), (images.shape[1],), weight, weight).permute(0, 3, 1, 2)


def group_norm_of_last(images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return of_last(lambda a: F.group_norm(a, 32, weight, weight))(images)


def response_norm(x: torch.Tensor) -> torch.Tensor:
    """Of ConvNeXt V2: maps by their length, beside the mean of all channels."""
    length = x.norm(p=2, dim=(1, 2), keepdim=True)
    return x * (length / (length.mean(-1, keepdim=True) + 1e-6)) + x

"""Blocks of networks of images, volumes and points."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from block import Block, block, feed_forward, heads, joined
from torch import Tensor, nn


def _conv(inner: int, outer: int, size: int = 1, step: int = 1, groups: int = 1) -> nn.Module:
    """A convolution, and the batch norm behind it."""
    return nn.Sequential(
        nn.Conv2d(inner, outer, size, step, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outer)
    )


def unet_level() -> Block:
    """Stable diffusion at 64 x 64: norm, SiLU and convolution twice, then attention over all places."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = x + m.second(F.silu(m.norm2(m.first(F.silu(m.norm1(x))))))
        y = m.norm3(x).flatten(2).transpose(1, 2)
        q, k, v = (heads(t, 4) for t in m.qkv(y).chunk(3, -1))
        y = m.out(joined(F.scaled_dot_product_attention(q, k, v)))
        return x + y.transpose(1, 2).reshape(x.shape)

    norms = {f"norm{i}": nn.GroupNorm(32, 64) for i in (1, 2, 3)}
    convs = {n: nn.Conv2d(64, 64, 3, padding=1) for n in ("first", "second")}
    return block(
        forward, (torch.randn(1, 64, 64, 64),), **norms, **convs, qkv=nn.Linear(64, 192), out=nn.Linear(64, 64)
    )


def unet_up() -> Block:
    """U-Net's way up: a transposed convolution, what came from the way down beside it, two convolutions."""

    def forward(m: Any, x: Tensor, skipped: Tensor) -> Tensor:
        y = torch.cat((skipped, m.up(x)), 1)
        return F.relu(m.second(F.relu(m.first(y))))

    convs = {"first": _conv(128, 64, 3), "second": _conv(64, 64, 3), "up": nn.ConvTranspose2d(128, 64, 2, 2)}
    return block(forward, (torch.randn(1, 128, 32, 32), torch.randn(1, 64, 64, 64)), **convs)


def convnext() -> Block:
    """Depthwise 7 x 7, a norm over the channels, a feed forward with a scale; channels last, twice."""

    def forward(m: Any, x: Tensor) -> Tensor:
        for p in m.blocks:
            y = p["rest"](p["depth"](x).permute(0, 2, 3, 1)) * p["scale"].weight[0]
            x = x + y.permute(0, 3, 1, 2)
        return x

    def one() -> nn.ModuleDict:
        depth = nn.Conv2d(96, 96, 7, padding=3, groups=96)
        return nn.ModuleDict({"depth": depth, "rest": feed_forward(96), "scale": nn.Embedding(1, 96)})

    return block(forward, (torch.randn(1, 96, 56, 56),), blocks=nn.ModuleList(one() for _ in range(2)))


def patch_merging() -> Block:
    """Swin: 2 x 2 patches become one, a norm over them, half as many channels."""

    def forward(m: Any, x: Tensor) -> Tensor:
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return m.less(m.norm(torch.cat(parts, -1)))

    parts = {"norm": nn.LayerNorm(384), "less": nn.Linear(384, 192, bias=False)}
    return block(forward, (torch.randn(1, 56, 56, 96),), **parts)


def mbconv() -> Block:
    """EfficientNet: wide, depthwise, squeeze and excite, narrow; SiLU, twice."""

    def forward(m: Any, x: Tensor) -> Tensor:
        for p in m.blocks:
            y = F.silu(p["depth"](F.silu(p["wide"](x))))
            weight = torch.sigmoid(p["excite"](F.silu(p["squeeze"](y.mean((2, 3), keepdim=True)))))
            x = x + p["narrow"](y * weight)
        return x

    def one() -> nn.ModuleDict:
        parts = {"wide": _conv(40, 240), "depth": _conv(240, 240, 5, groups=240), "narrow": _conv(240, 40)}
        return nn.ModuleDict({**parts, "squeeze": nn.Conv2d(240, 10, 1), "excite": nn.Conv2d(10, 240, 1)})

    return block(forward, (torch.randn(1, 40, 28, 28),), blocks=nn.ModuleList(one() for _ in range(2)))


def pyramid_pools() -> Block:
    """YOLO: three 5 x 5 pools one after the other, all four beside each other, then convolutions with SiLU."""

    def forward(m: Any, x: Tensor) -> Tensor:
        maps = [F.silu(m.less(x))]
        for _ in range(3):
            maps.append(F.max_pool2d(maps[-1], 5, 1, 2))
        y = F.silu(m.joined(torch.cat(maps, 1)))
        a, b = F.silu(m.split(y)).chunk(2, 1)
        return torch.cat((a, b, b + F.silu(m.second(F.silu(m.first(b))))), 1)

    convs = {"less": _conv(256, 128), "joined": _conv(512, 256), "split": _conv(256, 256)}
    return block(forward, (torch.randn(1, 256, 20, 20),), **convs, first=_conv(128, 128, 3), second=_conv(128, 128, 3))


def video() -> Block:
    """R(2+1)D and a plain one: convolutions over places, over time, and over both."""

    def forward(m: Any, x: Tensor) -> Tensor:
        for layer in m.layers:
            x = F.relu(layer(x))
        return x.mean((2, 3, 4))

    sizes = (((3, 45), (1, 7, 7), (1, 2, 2)), ((45, 64), (3, 1, 1), (1, 1, 1)), ((64, 64), (3, 3, 3), (1, 1, 1)))
    layers = nn.ModuleList(nn.Conv3d(*n, k, s, tuple(i // 2 for i in k)) for n, k, s in sizes)
    return block(forward, (torch.randn(1, 3, 8, 56, 56),), layers=layers)


def points() -> Block:
    """PointNet++: the 32 nearest of 1024 points around each of 256, a network on what differs, the largest."""

    def forward(m: Any, x: Tensor, features: Tensor) -> Tensor:
        centres = x[:, ::4]
        near = torch.cdist(centres, x).topk(32, largest=False).indices
        flat = near.flatten(1)[..., None]
        places = x.gather(1, flat.expand(-1, -1, 3)).unflatten(1, (256, 32)) - centres[:, :, None]
        known = features.gather(1, flat.expand(-1, -1, 61)).unflatten(1, (256, 32))
        return m.network(torch.cat((places, known), -1)).amax(2)

    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU())
    return block(forward, (torch.randn(1, 1024, 3), torch.randn(1, 1024, 61)), network=network)


def warp() -> Block:
    """Optical flow: a map read where the flow points, beside the other one, and what differs."""

    def forward(m: Any, one: Tensor, two: Tensor, flow: Tensor) -> Tensor:
        _, _, h, w = one.shape
        y, x = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
        grid = torch.stack((x, y), -1) + flow.permute(0, 2, 3, 1) / torch.tensor([(w - 1) / 2, (h - 1) / 2])
        found = F.grid_sample(two, grid, padding_mode="border", align_corners=True)
        return F.leaky_relu(m.out(torch.cat((one, found, (one - found).abs()), 1)), 0.1)

    inputs = (torch.randn(1, 32, 64, 64), torch.randn(1, 32, 64, 64), torch.randn(1, 2, 64, 64))
    return block(forward, inputs, out=nn.Conv2d(96, 32, 3, padding=1))

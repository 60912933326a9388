"""Tiles of the gradients of convolutions' weights: few results, each a sum over the pixels of all samples, which many
programs share."""

from __future__ import annotations

import math

from ...ir.dtypes import DTYPES
from ...ir.index import product
from ...ir.plans.gpu import ProductPlan
from ...ir.plans.tiles import GemmTile
from ...ir.structured import Conv, Gemm
from ...machine.gpu import Device
from .blocks import power_of_two
from .tiles import typical


def pixels_tile(node: Conv, device: Device) -> GemmTile:
    """Channels of the output by those of the input at one tap, or, of few, by channels and taps together; and so many
    programs for each tile that the device is full."""
    facts = device.pixels
    b, *taps, a = (typical(v.extent) for v in node.dims)
    pixels = math.prod(node.window.kernel) * typical(node.in_shape[-1])
    m = _side(a, device)
    n = next((side for side in _sides(device) if b % side == 0), 0) or _side(b * math.prod(taps), device)
    step = facts.step if DTYPES[node.w.dtype].size == 2 else facts.least
    large = m * n >= facts.large
    tiles = -(-a // m) * -(-b * math.prod(taps) // n)
    full = device.sms * (1 if large else facts.together)
    most = max(1, min(facts.most_parts, -(-pixels // step) // facts.least_steps))
    split = max(1, min(most, full // tiles))
    return GemmTile(m, n, step, facts.large_warps if large else facts.few_warps, facts.stages, split)


def pixels_form(node: Conv, tile: GemmTile) -> str:
    """See ProductPlan: a tile lies within a tap, or goes over several."""
    channels = node.dims[0].extent.constant
    one = product(v.extent for v in node.dims[1:-1]).constant == 1
    return "pixels" if one or (channels is not None and channels % tile.n == 0) else "pixels flat"


def pixels_summed(node: Gemm | Conv, plan: ProductPlan, device: Device) -> tuple[int, int]:
    """Rows and warps of the programs of a kernel that sums the parts of tiles; no rows where there are few parts: the
    last program of a tile sums them then, and the others idle for as long."""
    facts, tile = device.pixels, plan.cut
    if not isinstance(node, Conv) or node.algorithm != "pixels" or tile.split < facts.apart:
        return 0, 0
    b, *taps, a = (typical(v.extent) for v in node.dims)
    each = -(-a * b * math.prod(taps) // (device.sms * facts.together))
    rows = min(power_of_two(max(each // tile.n, 1)), facts.summed, tile.m)
    return rows, max(1, min(rows * tile.n // facts.of_warp, facts.few_warps))


def _sides(device: Device) -> tuple[int, ...]:
    """Channels of a tile that lies within a tap, the most first."""
    return (device.pixels.side, device.pixels.side // 2)


def _side(count: int, device: Device) -> int:
    return max(device.pixels.least, min(device.pixels.side, power_of_two(count)))

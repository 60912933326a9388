"""Chains of convolutions: the maps between a depthwise convolution and the 1x1 ones around it stay in the cache.

t1 = conv 1x1(x)
t2 = depthwise(t1)        ->      chain y = conv 1x1(depthwise(conv 1x1(x))), in bands of rows
y  = conv 1x1(t2)

The expanded map of an inverted residual block is its largest tensor. Without the chain, it is written to memory and
read again. The first convolution may also be one of an image, with a window and few channels.
"""

from __future__ import annotations

from itertools import pairwise

from ...ir.buffers import Buffer
from ...ir.index import ZERO, Index, of
from ...ir.nodes import Origin
from ...ir.structured import Conv, ConvChain
from ...machine.cpu_loops import FUSIONS
from ..graph import NodeGraph, label, loads_of
from ..remarks import Remarks


def fuse_chains(graph: NodeGraph, remarks: Remarks) -> None:
    """Makes chains of all depthwise convolutions with such a one in front or behind, where the map between is large."""
    for node in list(graph.nodes):
        if isinstance(node, Conv) and node.depthwise and node.algorithm == "direct":
            _consider(graph, node, remarks)


def _consider(graph: NodeGraph, depthwise: Conv, remarks: Remarks) -> None:
    before = _before(graph, depthwise)
    behind = _behind(graph, depthwise)
    links = tuple(link for link in (before, depthwise, behind) if link is not None)
    if len(links) == 1:
        return
    reason = _refusal(graph, depthwise, links)
    for producer, consumer in pairwise(links):
        if reason:
            remarks.refused(label(producer), label(consumer), reason)
        else:
            remarks.fused(label(producer), label(consumer), "one after the other, in bands of rows")
    if reason:
        return
    last = links[-1]
    origin = sum((link.origin for link in links), Origin())
    made = tuple(link.stores[0].buffer for link in links[:-1])
    graph.replace(last, ConvChain(last.dims, last.stores, origin, links, made))
    for link in links[:-1]:
        graph.remove(link)


def _before(graph: NodeGraph, depthwise: Conv) -> Conv | None:
    """The 1x1, or the convolution of few channels, that makes what the depthwise one alone reads."""
    node = graph.producer(depthwise.x.buffer)
    if not isinstance(node, Conv) or not (_few_channels(node) or (_pointwise(node) and _rows_follow(node))):
        return None
    return node if _hands_on(graph, node, depthwise) else None


def _behind(graph: NodeGraph, depthwise: Conv) -> Conv | None:
    """The 1x1 that alone reads what the depthwise one makes."""
    readers = graph.readers(depthwise.stores[0].buffer)
    if len(readers) != 1 or not isinstance(readers[0], Conv) or not _pointwise(readers[0]):
        return None
    return readers[0] if _hands_on(graph, depthwise, readers[0]) else None


def _pointwise(node: Conv) -> bool:
    win = node.window
    same = tuple(v.extent for v in node.dims[:-1]) == node.in_shape[:-1]
    plain = win.kernel == win.stride == (1, 1) and win.pad == (0, 0) and win.groups == 1
    return plain and same and node.algorithm == "direct" and node.x.buffer.dtype == "f32"


def _few_channels(node: Conv) -> bool:
    """Whether the node has a window whose rows of pixels are short enough to be copied."""
    win, channels = node.window, node.in_shape[-1].constant
    small = channels is not None and channels < FUSIONS.image_channels and win.groups == 1
    plain = len(win.kernel) == 2 and win.kernel != (1, 1) and win.dilation[1] == 1
    return small and plain and node.algorithm == "direct" and node.x.buffer.dtype == "f32"


def _rows_follow(node: Conv) -> bool:
    """Whether the pixels of an image lie one after the other in what the node reads."""
    _, _, width, channels = node.in_shape
    return len(node.x.strides) == 3 and node.x.strides[1:] == (width * channels, channels)


def _hands_on(graph: NodeGraph, maker: Conv, reader: Conv) -> bool:
    """Whether all that `maker` makes is a dense map that `reader` alone convolves."""
    if len(maker.stores) != 1:
        return False
    buffer, index = maker.stores[0].buffer, maker.stores[0].index
    n, h, w, c = maker.dims
    strides = _dense(maker)
    place = of(n) * strides[0] + of(h) * strides[1] + of(w) * strides[2] + of(c)
    return (
        buffer.kind == "temp" and buffer.of is None and buffer.dtype == "f32" and index == place
        and graph.producer(buffer) is maker and graph.readers(buffer) == [reader] and not loads_of(reader, buffer)
        and reader.x.buffer is buffer and reader.x.offset == ZERO and reader.x.strides == strides
    )  # fmt: skip


def _dense(node: Conv) -> tuple[Index, ...]:
    _, h, w, c = (v.extent for v in node.dims)
    return (h * w * c, w * c, c)


def _refusal(graph: NodeGraph, depthwise: Conv, links: tuple[Conv, ...]) -> str:
    maps = [link.dims for link in links[:-1]]
    sizes = [_bytes(dims[1].extent * dims[2].extent * dims[3].extent) for dims in maps]
    if None in sizes:
        return "the size of the map between them is not known"
    if max(size or 0 for size in sizes) < FUSIONS.map_bytes:
        return "the map between them stays in the cache"
    if (depthwise.in_shape[1].constant or 0) < FUSIONS.band_rows:
        return "too few rows to share them out"
    weights = sum(_bytes(link.w.size) or 0 for link in links if link is not depthwise)
    if weights > FUSIONS.weight_bytes:
        return "the weights do not stay in the cache"
    read: list[Buffer] = [b for link in links[:-1] for b in link.reads()]
    if any(graph.crosses(read, link, links[-1]) for link in links[:-1]):
        return "what it reads is written over in between"
    return ""


def _bytes(elements: Index) -> int | None:
    count = elements.constant
    return None if count is None else 4 * count

"""Matrix nodes of the loop IR as launches of Triton kernels."""

from __future__ import annotations

from ...ir.structured import Attention, Conv, Gemm
from ...machine.gpu import Device
from ...schedule.gpu.axes import as_gemm
from ...schedule.gpu.tiles import (
    AttentionTile,
    GemmTile,
    Tile,
    attention_tile,
    conv_tile,
    gemm_tile,
)
from .attention import attention_launch
from .conv import conv_launch
from .gemm import gemm_launch
from .kernel import Launch


def launches_of(
    node: Gemm | Conv | Attention, device: Device, name: str, tile: Tile | None = None
) -> tuple[Launch, ...]:
    """The launches that compute a node, in order; `tile` overrules the choice of tiles.py.

    Raises:
        ValueError: the tile does not fit the node.
    """
    chosen = tile or chosen_tile(node, device)
    if isinstance(node, Attention):
        assert isinstance(chosen, AttentionTile)
        return (attention_launch(name, node, device, chosen),)
    assert isinstance(chosen, GemmTile)
    product = as_gemm(node) if isinstance(node, Conv) else node
    if product is not None:
        return (gemm_launch(name, product, device, chosen),)
    assert isinstance(node, Conv)
    return (conv_launch(name, node, device, chosen),)


def chosen_tile(node: Gemm | Conv | Attention, device: Device) -> Tile:
    """The tile of tiles.py for a node."""
    if isinstance(node, Attention):
        return attention_tile(node, device)
    product = as_gemm(node) if isinstance(node, Conv) else node
    if product is not None:
        return gemm_tile(product, device)
    assert isinstance(node, Conv)
    return conv_tile(node, device)

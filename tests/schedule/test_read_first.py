"""Reductions in the order of what they read, and those whose results lie between others'."""

from __future__ import annotations

import torch
from mycc.compiler.ir.index import as_index
from mycc.compiler.ir.nodes import Map, Nest, Reduce
from torch import nn

from ..helpers.programs import scheduled


def kinds(conv: nn.Module, *shape: int) -> list[type]:
    """What is left of a convolution of maps whose channels lie last, its results in planes."""
    nodes = scheduled(lambda m, x: m(x.movedim(-1, 1)).contiguous(), torch.randn(*shape), parts=[conv]).program.nodes
    return [type(n) for n in nodes]


def test_weights_along_the_lanes() -> None:
    nodes = scheduled(
        lambda m, x: m(x.movedim(-1, 1)), torch.randn(1, 6, 12, 12, 32), parts=[nn.Conv3d(32, 32, 3, 2, 1, groups=32)]
    ).program.nodes
    reductions = [n for n in nodes if isinstance(n, Reduce)]
    assert len(reductions) == 1
    assert reductions[0].dims[-1].extent.constant == 32
    assert isinstance(nodes[-1], Map)  # puts the results, few beside what was read, in their planes


def test_as_many_results_are_not_put_twice() -> None:
    assert kinds(nn.Conv3d(32, 32, 3, 1, 1, groups=32), 1, 6, 12, 12, 32).count(Reduce) == 1


def test_phases_of_a_transposed_convolution_reduce_side_by_side() -> None:
    conv = nn.ConvTranspose2d(3, 3, 4, 2, 1, groups=3)
    nodes = scheduled(lambda m, x: m(x), torch.randn(1, 3, 16, 24), parts=[conv]).program.nodes
    assert len(nodes) == 4
    for node in nodes:
        assert isinstance(node, Nest)
        reduction, put = node.stages
        assert isinstance(reduction, Reduce)
        assert isinstance(put, Map)
        assert [s.index.coefficient(reduction.dims[-1]) for s in reduction.stores] == [as_index(1)]
        assert [s.index.coefficient(put.dims[-1]) for s in put.stores] == [as_index(2)]

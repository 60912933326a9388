"""The graph verifier finds what it is there for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from mycc.compiler.capture import ModelGraph
from mycc.compiler.graph.check import GraphError, check_graph

from .support import graph_of


@pytest.fixture
def graph() -> ModelGraph:
    return graph_of(lambda m, x: torch.relu(x @ m.w), torch.randn(2, 3), w=torch.randn(3, 4))


def test_accepts_a_captured_graph(graph: ModelGraph) -> None:
    check_graph(graph)


def test_wrong_shape(graph: ModelGraph) -> None:
    node = next(n for n in graph.module.graph.nodes if "relu" in str(n.target))
    node.meta["val"] = torch.empty(2, 5)
    with pytest.raises(GraphError, match=r"relu: meta says float32\[2, 5\], its operands give float32\[2, 4\]"):
        check_graph(graph)


def test_names_the_pass_and_shows_the_neighbourhood(graph: ModelGraph) -> None:
    node = next(n for n in graph.module.graph.nodes if "relu" in str(n.target))
    del node.meta["val"]
    with pytest.raises(GraphError) as error:
        check_graph(graph, after="simplify")
    assert str(error.value).startswith("after simplify: relu: it has no value in meta")
    assert "> %relu" in str(error.value)
    assert "  %matmul" in str(error.value)


def test_constant_that_is_missing(graph: ModelGraph) -> None:
    with pytest.raises(GraphError, match="there is no constant w"):
        check_graph(replace(graph, constants={}))


def test_constant_that_nothing_reads(graph: ModelGraph) -> None:
    with pytest.raises(GraphError, match="nothing reads the constant other"):
        check_graph(replace(graph, constants={**graph.constants, "other": torch.zeros(1)}))


def test_output_that_is_not_the_signatures(graph: ModelGraph) -> None:
    spec = replace(graph.outputs[0], shape=(2, 9))
    with pytest.raises(GraphError, match="the signature says"):
        check_graph(replace(graph, outputs=(spec,)))

"""Searches in sorted edges: the counted form, which GPUs run for any number of edges."""

from __future__ import annotations

import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.lower import lower
from mycc.compiler.model.operators.kept import kept_for
from torch.export import Dim

from ..helpers.evaluation import answer, given_to
from ..helpers.programs import Call1

NAN = float("nan")
VALUES = torch.tensor([-1.0, 0.0, 1.5, 9.0, NAN])


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_any_number_of_edges(dtype: torch.dtype, right: bool) -> None:
    """The places are eager's with no edges, one, equal ones, and ones that end in NaN."""
    values = VALUES.nan_to_num(4.0).to(dtype) if dtype == torch.int64 else VALUES
    model = Call1(lambda edges, v: torch.searchsorted(edges, v, right=right)).eval()
    shapes = (({0: Dim("edges", min=0, max=99)}, None),)
    graph = capture(model, (torch.arange(3).to(dtype), values), None, shapes)
    result = lower(run_graph_passes(graph, kept=kept_for(("cuda",))), family="cuda")
    for row in ([], [1.5], [0.0, 0.0, 2.0], [-2.0, 1.0, NAN]):
        edges = torch.tensor([x for x in row if x == x or dtype == torch.float32]).to(dtype)
        found = answer(result.program, given_to(result, (edges, values)), {"edges": len(edges)}, "cuda")
        assert isinstance(found, list), found
        assert found[0].reshape(-1).tolist() == model(edges, values).tolist()

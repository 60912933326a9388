"""torch finds the backend by its name."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
import torch
from mycc.compiler.backend.backend import backend

GROUP = "torch_dynamo_backends"


def test_the_entry_point_names_the_backend() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"][GROUP]["mycc"]
    assert EntryPoint("mycc", declared, GROUP).load() is backend


def test_torch_lists_it() -> None:
    if "mycc" not in {point.name for point in entry_points(group=GROUP)}:
        pytest.skip("this mycc was installed before it had a backend: install the checkout again")
    assert "mycc" in torch.compiler.list_backends()

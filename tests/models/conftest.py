"""Packages that several tests use, compiled once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mycc
import pytest
from torch.export import Dim

from ..helpers.fixtures import server, zoo  # noqa: F401
from ..helpers.triton_interpreter import TritonInterpreter
from . import feature_models


@pytest.fixture(scope="session")
def interpreter() -> Iterator[TritonInterpreter]:
    process = TritonInterpreter()
    yield process
    process.close()


@pytest.fixture(scope="session")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The feature models as entry points `structures`, `integers`, `tied`, `encode` and `decode`."""
    tied, ids = feature_models.tied_example()
    assert isinstance(tied, feature_models.Tied)
    dims = ({0: Dim("batch", min=1, max=8), 1: Dim("seq", min=1, max=30)},)
    hidden = feature_models.Encode(tied)(*ids).detach()
    entries = {
        "structures": feature_models.structures_example(),
        "integers": feature_models.integers_example(),
        "tied": (tied, ids, None, dims),
        "encode": (feature_models.Encode(tied), ids, None, dims),
        "decode": (feature_models.Decode(tied), (hidden,), None, ({0: Dim("batch", min=1, max=8)},)),
    }
    return mycc.compile(entries, out=tmp_path_factory.mktemp("features") / "features.pkg")

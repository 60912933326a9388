from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import mycc
import pytest

from ..helpers.builds import QUICK
from .folders import make_folder, make_network, train_tokenizer


class Made(NamedTuple):
    """A folder, its network and tokenizer, and a package of it."""

    folder: Path
    network: Any
    tokenizer: Any
    package: Path


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A small Llama of three shards, compiled for texts of 96 tokens, three at once, prompts in pieces of 16. The cache
    holds 160 tokens, fewer than three texts may have."""
    path = tmp_path_factory.mktemp("llama")
    network = make_folder(path / "model", "llama", shard="200KB")
    package = mycc.compile_generation(
        path / "model",
        out=path / "text.pkg",
        max_length=96,
        max_batch=3,
        cache_tokens=160,
        chunk=16,
        options={"codegen.sources": False, "build.flags": QUICK},
    )
    return Made(path / "model", network, train_tokenizer(), package)


@pytest.fixture(scope="session")
def checking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package that checks five tokens of a draft at once."""
    return mycc.compile_generation(
        make_network("llama"), out=tmp_path_factory.mktemp("drafts") / "text.pkg", max_batch=2, chunk=16,
        draft_tokens=5, verify=False, options={"build.flags": QUICK},
    )  # fmt: skip


@pytest.fixture
def checked(checking: Path) -> Any:
    return mycc.load(checking)


@pytest.fixture
def model(made: Made) -> Any:
    return mycc.load(made.package)

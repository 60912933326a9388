from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import mycc
import pytest

from ..helpers.builds import QUICK
from ..helpers.workers import once
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

    def make(folder: Path) -> None:
        make_folder(folder / "model", "llama", shard="200KB")
        mycc.compile_generation(
            folder / "model",
            out=folder / "text.pkg",
            max_length=96,
            max_batch=3,
            cache_tokens=160,
            chunk=16,
            options={"codegen.sources": False, "build.flags": QUICK},
        )

    folder = once(tmp_path_factory, "llama", make)
    return Made(folder / "model", make_network("llama"), train_tokenizer(), folder / "text.pkg")


@pytest.fixture
def model(made: Made) -> Any:
    return mycc.load(made.package)

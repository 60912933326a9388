"""What the refusals need: commands in processes of their own, and one compiled package."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc.compiler.package.archive import PAGE, ArchiveWriter
from mycc.runtime.archive import Archive
from torch import nn
from torch.export import Dim

from ..helpers.fixtures import server  # noqa: F401


class Tagger(nn.Module):
    """ids i64[batch, seq] of 11 tokens, weight f32[seq, 8] -> f32[batch, seq, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.layer = nn.Linear(8, 8)

    def forward(self, ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self.layer(self.embed(ids) * weight)  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def tagger() -> Tagger:
    torch.manual_seed(0)
    return Tagger().eval()


@pytest.fixture(scope="session")
def package(tagger: Tagger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tagger with batch in 1..16 and seq in 1..32."""
    seq = Dim("seq", min=1, max=32)
    return mycc.compile(
        tagger,
        (torch.zeros(2, 5, dtype=torch.int64), torch.ones(5, 8)),
        dynamic_shapes={"ids": {0: Dim("batch", min=1, max=16), 1: seq}, "weight": {0: seq}},
        out=tmp_path_factory.mktemp("package") / "tagger.pkg",
    )


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, name: str = "model.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write


def rewritten(package: Path, out: Path, change: Callable[[dict[str, Any]], None], version: int = 1) -> Path:
    """A copy of a package with another manifest, and hashes that fit it."""
    archive = Archive(package)
    manifest = json.loads(bytes(archive.read("manifest.json")))
    change(manifest)
    with open(out, "wb") as file:
        writer = ArchiveWriter(file)
        for name, member in archive.members.items():
            if name != "manifest.json":
                writer.add(name, member.size, [archive.read(name)], PAGE)
        if "directory" in manifest:
            manifest["directory"] = sha256(writer.listing()).hexdigest()
        text = json.dumps(manifest).encode()
        writer.add("manifest.json", len(text), [text])
        writer.close(f"mycc:{version}:{sha256(text).hexdigest()}".encode())
    return out

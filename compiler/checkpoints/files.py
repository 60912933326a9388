"""The safetensors of a folder, read when they are asked for."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ...runtime.errors import CompileError

__all__ = ["Tensors", "open_tensors"]


class Tensors:
    """The tensors of a checkpoint by their names; `taken` are those that were asked for."""

    def __init__(self, sources: Mapping[str, Any], path: Path) -> None:
        self._sources, self._path = sources, path
        self.taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._sources

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __getitem__(self, name: str) -> Tensor:
        """Raises KeyError where there is no such tensor, CompileError where it cannot be read."""
        source = self._sources[name]
        self.taken.add(name)
        try:
            found: Tensor = source.get_tensor(name)
        except Exception as error:  # safetensors has an exception of its own that it does not name
            raise CompileError(f"cannot read '{name}' in '{self._path}': {error}") from None
        return found

    def get(self, name: str) -> Tensor | None:
        """None where there is no such tensor."""
        return self[name] if name in self._sources else None

    @property
    def left(self) -> list[str]:
        """Those that nobody asked for."""
        return sorted(set(self._sources) - self.taken)


@contextlib.contextmanager
def open_tensors(folder: Path) -> Iterator[Tensors]:
    """The tensors of model.safetensors, or of the files that its index names. Raises CompileError."""
    from safetensors import SafetensorError, safe_open

    index = folder / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if not (folder / names[0]).is_file():
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    with contextlib.ExitStack() as stack:
        sources: dict[str, Any] = {}
        for name in names:
            try:
                file = stack.enter_context(safe_open(folder / name, framework="pt"))
            except (OSError, SafetensorError) as error:
                raise CompileError(f"cannot read '{folder / name}': {error}") from None
            sources.update(dict.fromkeys(file.keys(), file))
        yield Tensors(sources, folder)

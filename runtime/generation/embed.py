"""`Model.embed`: one vector for each text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError, LoadError
from .tokenizer import Tokenizer

__all__ = ["Embedder", "embedder_of"]


class Embedder:
    """Texts to vectors by a package that was compiled for it; for any number of threads."""

    def __init__(self, model: Any, task: Mapping[str, Any], tokenizer: Tokenizer) -> None:
        self._model, self.tokenizer = model, tokenizer
        self.length, self.texts = int(task["length"]), int(task["texts"])
        self.pad, self.size = int(task["pad"]), int(task["size"])

    def tokens(self, text: str | Sequence[int]) -> list[int]:
        """The numbers of a text's tokens, cut to what the package takes."""
        if isinstance(text, str):
            return self.tokenizer.encode(text, most=self.length)
        return [int(token) for token in text][: self.length]

    def embed(self, texts: Sequence[str | Sequence[int]]) -> Any:
        """f32[texts, size]. Texts of like lengths share calls."""
        if isinstance(texts, str):
            raise InputError("embed takes several texts: a list")
        rows = [self.tokens(text) for text in texts]
        if not all(rows):
            raise InputError("a text has no tokens")
        found = np.empty((len(rows), self.size), np.float32)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        for first in range(0, len(order), self.texts):
            places = order[first : first + self.texts]
            tokens = np.full((len(places), len(rows[places[-1]])), self.pad, np.int64)
            mask = np.zeros_like(tokens)
            for row, place in enumerate(places):
                tokens[row, : len(rows[place])] = rows[place]
                mask[row, : len(rows[place])] = 1
            found[places] = np.asarray(self._model(tokens, mask))
        return found


def embedder_of(model: Any, task: Mapping[str, Any] | None, read: Callable[[str], bytes | None]) -> Embedder:
    """Raises InputError for a package that was not compiled for it, LoadError for one whose row is not whole."""
    if not task or task.get("name") != "embedding":
        raise InputError(
            "the package does not embed texts",
            hint="Compile an encoder's folder: mycc compile DIR --task embedding --out vectors.pkg",
        )
    data = read("tokenizer.json")
    if data is None:
        raise LoadError("the package has no tokenizer")
    try:
        return Embedder(model, task, Tokenizer(data, None, {}))
    except (KeyError, TypeError, ValueError) as error:
        raise LoadError(f"what the package says of its embedding is not whole: {error!r}") from None

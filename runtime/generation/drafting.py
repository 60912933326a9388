"""Speculative decoding: guesses of the tokens that follow, which the model checks several at a time.

A guess costs little and changes nothing of the result: every token is chosen from the model's own logits, and a guess
is kept where it is the token that was chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..errors import InputError

__all__ = ["Drafter", "Lookup", "PackageDraft", "make_drafter"]

#: lengths of the runs of tokens that Lookup looks for, the longest first
_RUNS = (4, 3, 2, 1)


class Drafter(Protocol):
    """Guesses what follows the tokens of one text."""

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        """At most `count` tokens. tokens: all of the text, which grows from call to call."""


class Lookup:
    """Guesses that a text goes on as where its last tokens stood before: for answers that repeat their prompt."""

    def __init__(self) -> None:
        self._behind: list[dict[tuple[int, ...], int]] = [{} for _ in _RUNS]  # run -> place behind its last occurrence
        self._known = 0  # places whose runs are known

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        for place in range(self._known + 1, len(tokens)):  # the run that ends the text is what is looked for
            for size, found in zip(_RUNS, self._behind, strict=True):
                if place >= size:
                    found[tuple(tokens[place - size : place])] = place
        self._known = max(len(tokens) - 1, 0)
        for size, found in zip(_RUNS, self._behind, strict=True):
            behind = found.get(tuple(tokens[len(tokens) - size :])) if len(tokens) >= size else None
            if behind is not None:
                return list(tokens[behind : behind + count])
        return []


class PackageDraft:
    """Guesses by a smaller model's package, which takes its likeliest tokens.

    model: a loaded package for text generation, with a cache that can go back.
    """

    def __init__(self, model: Any) -> None:
        task = model.manifest.get("task") or {}
        if task.get("name") != "text-generation" or task.get("recurrent"):
            raise InputError(
                "a draft is a package for text generation whose cache can go back",
                hint="Models with states of recurrences (Mamba) are no drafts.",
            )
        self._length, self._chunk, self._vocabulary = (int(task[name]) for name in ("length", "chunk", "vocabulary"))
        self._rows = int(task["texts"])
        self._back = int(task.get("back", self._length))
        self._prefill, self._decode = model.entry("prefill"), model.entry("decode")
        self._state = model.new_state()
        self._held: list[int] = []  # tokens that its cache holds

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        count = min(count, self._length - len(tokens))
        if count < 1 or any(token >= self._vocabulary for token in tokens[len(self._held) :]):
            return []
        most = min(len(self._held), len(tokens) - 1)
        same = next((i for i in range(most) if self._held[i] != tokens[i]), most)
        if len(self._held) - same > self._back:
            same = 0  # what its windows would see is overwritten
        del self._held[same:]
        guessed: list[int] = []
        logits = self._read(tokens[same:])
        while True:
            guessed.append(int(logits.argmax()))
            if len(guessed) == count:
                return guessed
            logits = self._read(guessed[-1:])

    def _read(self, tokens: Sequence[int]) -> Any:
        """The logits of what follows these tokens, which follow those that are held."""
        logits = None
        for first in range(0, len(tokens), self._chunk):
            piece = list(tokens[first : first + self._chunk])
            start = np.array([len(self._held)], np.int64)
            if len(piece) == 1:
                logits = self._decode(np.array([piece], np.int64), start, state=self._state)
            else:
                row = [np.zeros(1, np.int64)] if self._rows > 1 else []
                logits = self._prefill(np.array([piece], np.int64), start, *row, state=self._state)
            self._held += piece
        return np.asarray(logits)[0]


def make_drafter(draft: Any) -> Drafter | None:
    """A drafter for one text: by "lookup", or a loaded package; None for None. Raises InputError for anything else."""
    if draft is None:
        return None
    if isinstance(draft, str):
        if draft != "lookup":
            raise InputError(f'draft is "lookup" or a loaded package, not {draft!r}', hint="mycc.load gives one.")
        return Lookup()
    if not hasattr(draft, "manifest"):
        raise InputError(f'draft is "lookup" or a loaded package, not a {type(draft).__name__}')
    return PackageDraft(draft)

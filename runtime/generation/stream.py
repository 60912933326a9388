"""Pieces of text from tokens as they come: whole characters only, and nothing that may be the start of a stop text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Detokenizer", "StopTexts"]

#: tokens of the prompt that are decoded with the first new ones, so that spaces between tokens come out right
_CONTEXT = 6
#: what stands for bytes that are no character yet
_UNFINISHED = "\ufffd"


class Detokenizer:
    """The text of a text's new tokens, piece by piece; the pieces joined are the text."""

    def __init__(self, tokenizer: Any, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._tokens = list(prompt[-_CONTEXT:])
        self._start, self._given = 0, len(self._tokens)  # the decoded run begins at _start; up to _given it was given

    def add(self, token: int) -> str:
        """What this token makes known; "" while it ends within a character."""
        self._tokens.append(token)
        return self._piece(final=False)

    def end(self) -> str:
        """What is left: an unfinished character as U+FFFD."""
        return self._piece(final=True)

    def _piece(self, final: bool) -> str:
        before = self._tokenizer.decode(self._tokens[self._start : self._given])
        text = self._tokenizer.decode(self._tokens[self._start :])
        if not final and (len(text) <= len(before) or text.endswith(_UNFINISHED)):
            return ""
        self._start, self._given = self._given, len(self._tokens)
        return str(text[len(before) :])


class StopTexts:
    """Cuts a stream at the first of some texts, and holds back what may be the start of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops, self._held = tuple(stops), ""
        self.found = False

    def add(self, piece: str) -> str:
        """What may be given on. After a stop text was found: nothing."""
        if self.found:
            return ""
        if not self._stops:
            return piece
        text = self._held + piece
        places = [place for place in (text.find(stop) for stop in self._stops) if place >= 0]
        if places:
            self.found, self._held = True, ""
            return text[: min(places)]
        kept = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def end(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text are the start of `stop`."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)

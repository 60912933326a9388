"""Answers to sources, by encoder-decoders: a source is read once into its row, then the answer grows as any text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from .engine import Engine, Text
from .options import Options
from .texts import Generator

__all__ = ["SourceEngine", "SourceGenerator"]


class SourceEngine(Engine):
    """An engine whose texts have a source each, numbers of tokens or features of sound."""

    def __init__(self, model: Any, task: Mapping[str, Any], reuse: bool = False) -> None:
        super().__init__(model, task)  # what a row holds belongs to its source
        about = task["source"]
        self.encode = model.entry("encode")
        self.most, self.all_positions = int(about["length"]), bool(about["fixed"])
        self.kind = str(about["kind"])
        self._held: list[Any] = [None] * len(self.rows)  # the source of each row
        self._positions = [1] * len(self.rows)

    def check(self, text: Text) -> None:
        super().check(text)
        source = text.source
        if self.kind != "text":
            return
        if not len(source):
            raise InputError("the text is empty")
        if len(source) > self.most:
            raise InputError(
                f"the text has {len(source)} tokens; the package reads {self.most}",
                hint="Shorten it, or compile with a larger max_source_length.",
            )
        self.check_tokens(source)

    def logits(self, text: Text) -> Any:
        """f32[vocabulary], of what follows a text's prompt. No text may be in the first row."""
        self._enter(0, text)
        zero = np.zeros(1, np.int64)
        rows = [zero] if len(self.rows) > 1 else []
        tokens = np.array([text.prompt], np.int64)
        return np.asarray(self.prefill(tokens, zero, *rows, *self._more([0]), state=self.state))[0]

    def _enter(self, row: int, text: Text) -> None:
        """Reads the text's source, unless the row holds it."""
        if self._held[row] is text.source:
            return
        self._held[row] = None
        given = text.source if self.kind != "text" else np.array(text.source, np.int64)
        rows = [np.array([row], np.int64)] if len(self.rows) > 1 else []
        self.encode(np.asarray(given)[None], *rows, state=self.state)
        self._held[row] = text.source
        self._positions[row] = self.most if self.all_positions else len(text.source)

    def _more(self, rows: Sequence[int], piece: tuple[int, int] | None = None) -> list[Any]:
        return [] if self.all_positions else [np.array([self._positions[row] for row in rows], np.int64)]


class SourceGenerator(Generator):
    """Answers texts with texts."""

    engine_class = SourceEngine

    def __init__(self, model: Any, task: Mapping[str, Any], read: Any) -> None:
        super().__init__(model, task, read)
        self._beginning: Mapping[str, Any] = task["beginning"]

    @property
    def most_read(self) -> int:
        return int(self._task["source"]["length"])

    def text(self, prompt: Sequence[int], options: Options) -> Text:
        """The answer to the tokens of a text."""
        begin = [int(self._beginning["decoder_start_token_id"])]
        if "forced_bos_token_id" in self._beginning:
            begin.append(int(self._beginning["forced_bos_token_id"]))
        return self.answer(list(prompt), begin, options)

    def answer(self, source: Any, begin: Sequence[int], options: Options) -> Text:
        """An answer to a source, which begins with some tokens."""
        return self.made(begin, options, source)

    def chat(self, messages: Sequence[Mapping[str, Any]], given: Mapping[str, Any], draft: Any = None) -> Any:
        raise InputError("the package answers texts, not conversations", hint="Use generate with a text.")

"""Texts of a given form, a JSON schema's, a grammar's or a regular expression's, by the library llguidance."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from .options import Options

__all__ = ["Constraint", "Constraints"]

#: what a JSON schema leaves open: at most so much space between two tokens of JSON, where a model could go on for ever
_JSON = {"whitespace_pattern": r"[ \t\n]{0,16}"}


class Constraint:
    """Which tokens may follow, of one text.

    Attributes:
        ended: whether the text is whole and nothing may follow.
    """

    def __init__(self, matcher: Any, vocabulary: int, ends: frozenset[int]) -> None:
        self._matcher, self._vocabulary, self._ends = matcher, vocabulary, ends
        self._bits = np.full((1, (vocabulary + 31) // 32), -1, np.int32)
        self.ended = False

    def allowed(self) -> Any:
        """bool[vocabulary]; at least one is true unless the text has ended."""
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        self._check()
        bits = np.unpackbits(self._bits.view(np.uint8)[0], bitorder="little")
        return bits[: self._vocabulary].astype(bool)

    def take(self, token: int) -> bool:
        """Goes on by a token that was allowed; whether it belongs to the text, as an end token does not."""
        self._matcher.consume_token(token)
        self._check()
        self.ended = bool(self._matcher.is_stopped())
        return token not in self._ends

    def _check(self) -> None:
        if self._matcher.is_error():
            raise InputError(f"the text cannot follow its form: {_first_line(self._matcher.get_error())}")


class Constraints:
    """Makes constraints for the texts of a package.

    tokenizer: tokenizer.json. vocabulary: of the logits. ends: tokens that end a text.
    """

    def __init__(self, tokenizer: bytes, vocabulary: int, ends: Sequence[int]) -> None:
        self._tokenizer, self._vocabulary, self._given = tokenizer, vocabulary, list(ends)
        self._made: Any = None
        self._lock = threading.Lock()

    def of(self, options: Options) -> Constraint | None:
        """The constraint that a text's options ask for.

        Raises:
            InputError: llguidance is not installed, the form is no valid one, or two are asked for.
        """
        asked = [name for name in ("json_schema", "grammar", "regex") if getattr(options, name) is not None]
        if not asked:
            return None
        if len(asked) > 1:
            raise InputError(f"a text has one form: {' and '.join(asked)} do not go together")
        library = _library()
        given = getattr(options, asked[0])
        try:
            if asked[0] == "json_schema":
                form = library.LLMatcher.grammar_from_json_schema(given, defaults=_JSON)
            elif asked[0] == "regex":
                form = library.LLMatcher.grammar_from_regex(given)
            else:
                form = library.LLMatcher.grammar_from_lark(given)
            tokenizer = self._known(library)
            matcher = library.LLMatcher(tokenizer, form, log_level=0)
        except (ValueError, TypeError, RuntimeError) as error:
            raise InputError(f"{asked[0]} cannot be followed: {_first_line(error)}") from None
        if matcher.is_error():
            raise InputError(f"{asked[0]} cannot be followed: {_first_line(matcher.get_error())}")
        return Constraint(matcher, self._vocabulary, frozenset(tokenizer.eos_tokens))

    def _known(self, library: Any) -> Any:
        """The tokenizer as the library knows it, which takes it a second to learn."""
        with self._lock:
            if self._made is None:
                ends = self._given or None
                self._made = library.LLTokenizer(self._tokenizer.decode(), n_vocab=self._vocabulary, eos_token=ends)
            return self._made


def _library() -> Any:
    try:
        import llguidance
    except ImportError:
        raise InputError(
            "json_schema, grammar and regex need the llguidance library, which is not installed",
            hint="pip install llguidance",
        ) from None
    return llguidance


def _first_line(error: Any) -> str:
    return (str(error).strip().splitlines() or ["unknown"])[0]

"""What clients get: OpenAI's objects."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from ..generation.sampling import Chosen

__all__ = ["Answer", "error_body", "usage"]


class Answer:
    """Spells one answer: whole, or in pieces. chat: of /v1/chat/completions."""

    def __init__(self, model: str, chat: bool, words: Callable[[int], str]) -> None:
        self._chat, self._words = chat, words
        kind = "chat.completion" if chat else "text_completion"
        self._head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid4().hex}", "object": kind, "created": int(time.time()),
            "model": model,
        }  # fmt: skip

    def whole(self, choices: Sequence[dict[str, Any]], counts: dict[str, int]) -> dict[str, Any]:
        return {**self._head, "choices": list(choices), "usage": counts}

    def choice(self, index: int, text: str, finish: str | None, chosen: Sequence[Chosen] | None) -> dict[str, Any]:
        """One text of a whole answer. chosen: its tokens where log-probabilities were asked for."""
        said = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        return {"index": index, **said, "logprobs": self._logprobs(chosen), "finish_reason": finish}

    def piece(
        self, index: int, text: str, finish: str | None, chosen: Sequence[Chosen] | None, first: bool
    ) -> dict[str, Any]:
        """One piece of a stream."""
        head = {**self._head, "object": "chat.completion.chunk"} if self._chat else self._head
        delta = {**({"role": "assistant"} if first else {}), **({"content": text} if text or first else {})}
        said: dict[str, Any] = {"delta": delta} if self._chat else {"text": text}
        logprobs = self._logprobs(chosen)
        return {**head, "choices": [{"index": index, **said, "logprobs": logprobs, "finish_reason": finish}]}

    def last(self, counts: dict[str, int]) -> dict[str, Any]:
        """What ends a stream whose client asked for the numbers of tokens."""
        head = {**self._head, "object": "chat.completion.chunk"} if self._chat else self._head
        return {**head, "choices": [], "usage": counts}

    def _logprobs(self, chosen: Sequence[Chosen] | None) -> dict[str, Any] | None:
        if chosen is None:
            return None
        if self._chat:
            return {"content": [self._described(c) for c in chosen]}
        return {
            "tokens": [self._words(c.token) for c in chosen],
            "token_logprobs": [c.logprob for c in chosen],
            "top_logprobs": [{self._words(token): p for token, p in c.top} for c in chosen],
        }

    def _described(self, chosen: Chosen) -> dict[str, Any]:
        def row(token: int, logprob: float | None) -> dict[str, Any]:
            text = self._words(token)
            return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

        top = [row(token, p) for token, p in chosen.top]
        return {**row(chosen.token, chosen.logprob), "top_logprobs": top}


def usage(prompt: int, generated: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}


def error_body(message: str, kind: str = "invalid_request_error", code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}

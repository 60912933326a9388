"""What a client asks for: OpenAI's fields as prompts and options of generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError
from ..generation.texts import template_values

__all__ = ["Asked", "chat_request", "completion_request", "texts_or_tokens"]

#: OpenAI's name -> ours; beside them fields that other servers have too
_OPTIONS = {
    "temperature": "temperature", "top_p": "top_p", "seed": "seed", "stop": "stop", "logit_bias": "logit_bias",
    "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty", "top_k": "top_k",
    "min_p": "min_p", "repetition_penalty": "repetition_penalty", "ignore_eos": "ignore_eos",
    "stop_token_ids": "stop_tokens", "json_schema": "json_schema", "grammar": "grammar", "regex": "regex",
}  # fmt: skip
_READ = {"model", "n", "stream", "stream_options", "logprobs", "response_format"}
#: what says nothing of the text
_IGNORED = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "verbosity"}
#: what would change the text, and the values at which it does not
_PLAIN: dict[str, tuple[Any, ...]] = {
    "best_of": (1,), "suffix": ("",), "echo": (False,), "tools": ([],), "tool_choice": ("none", "auto"),
    "functions": ([],), "modalities": (["text"],), "audio": (),
    "parallel_tool_calls": (True, False), "reasoning_effort": (), "prediction": (),
}  # fmt: skip
#: the interface's own default for completions
_COMPLETION_TOKENS = 16


@dataclass(frozen=True)
class Asked:
    """A request.

    Attributes:
        prompts: texts or numbers of tokens; None of a chat.
        messages: of a chat.
        options: of generation.
        count: answers to each prompt.
        stream: whether pieces are sent as they come.
        usage: whether a stream ends with a count of its tokens.
        template: what a chat's template gets beside the messages.
        logprobs: as options["logprobs"].
    """

    prompts: tuple[str | Sequence[int], ...]
    messages: Sequence[Mapping[str, Any]] | None
    options: dict[str, Any]
    count: int
    stream: bool
    usage: bool
    template: Mapping[str, Any] = field(default_factory=dict)

    @property
    def logprobs(self) -> int | None:
        value: int | None = self.options.get("logprobs")
        return value


def completion_request(body: Mapping[str, Any]) -> Asked:
    """/v1/completions. Raises InputError for a field that is wrong or not taken."""
    options = _options(body, {"prompt", "max_tokens"})
    options["max_new_tokens"] = _most(body, "max_tokens") if body.get("max_tokens") is not None else _COMPLETION_TOKENS
    if body.get("logprobs") is not None:
        options["logprobs"] = body["logprobs"]
    return Asked(texts_or_tokens("prompt", body.get("prompt")), None, options, *_form(body))


def chat_request(body: Mapping[str, Any]) -> Asked:
    """/v1/chat/completions. Raises InputError for a field that is wrong or not taken."""
    options = _options(
        body, {"messages", "max_tokens", "max_completion_tokens", "top_logprobs", "chat_template_kwargs"}
    )
    for name in ("max_tokens", "max_completion_tokens"):
        if body.get(name) is not None:
            options["max_new_tokens"] = _most(body, name)
    asked, most = body.get("logprobs") or False, body.get("top_logprobs")
    if not isinstance(asked, bool):
        raise InputError(f"logprobs of a chat has to be true or false, not {asked!r}")
    if most is not None and not asked:
        raise InputError("top_logprobs needs logprobs to be true")
    if asked:
        options["logprobs"] = 0 if most is None else most
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InputError("messages has to be a list of messages")
    values, _ = template_values(body)
    return Asked((), [_message(message) for message in messages], options, *_form(body), values)


def _most(body: Mapping[str, Any], name: str) -> int:
    """How many tokens an answer may have, by the client's name for it."""
    most = body[name]
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise InputError(f"{name} has to be a whole number from 1, not {most!r}")
    return most


def _options(body: Mapping[str, Any], own: set[str]) -> dict[str, Any]:
    for name, value in body.items():
        if value is None or name in _OPTIONS or name in _READ or name in _IGNORED or name in own:
            continue
        if name not in _PLAIN:
            raise InputError(f"there is no parameter '{name}'")
        if value not in _PLAIN[name]:
            raise InputError(f"{name} is not supported by this server")
    options = {ours: body[name] for name, ours in _OPTIONS.items() if body.get(name) is not None}
    options.setdefault("temperature", 1.0)
    if body.get("response_format") is not None:
        options |= _response_format(body["response_format"])
    return options


def _response_format(asked: Any) -> dict[str, Any]:
    """The option of generation that OpenAI's response_format asks for."""
    kind = asked.get("type") if isinstance(asked, dict) else None
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"json_schema": {"type": "object"}}
    if kind == "json_schema":
        row = asked.get("json_schema")
        if not isinstance(row, dict) or not isinstance(row.get("schema"), dict):
            raise InputError('response_format needs "json_schema": {"name": ..., "schema": {...}}')
        return {"json_schema": row["schema"]}
    raise InputError('response_format has to be of the type "text", "json_object" or "json_schema"')


def _form(body: Mapping[str, Any]) -> tuple[int, bool, bool]:
    count, stream = 1 if body.get("n") is None else body["n"], body.get("stream") or False
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 128:
        raise InputError("n has to be a whole number from 1 to 128")
    if not isinstance(stream, bool):
        raise InputError("stream has to be true or false")
    more = body.get("stream_options") or {}
    if not isinstance(more, dict):
        raise InputError("stream_options has to be an object")
    return count, stream, bool(more.get("include_usage"))


def texts_or_tokens(name: str, prompt: Any) -> tuple[str | Sequence[int], ...]:
    """A text, numbers of tokens, or several of either. Raises InputError for anything else."""
    if isinstance(prompt, str):
        return (prompt,)
    if isinstance(prompt, list) and prompt:
        if all(_is_token(token) for token in prompt):
            return (prompt,)
        if all(isinstance(p, str) or (isinstance(p, list) and p and all(map(_is_token, p))) for p in prompt):
            return tuple(prompt)
    raise InputError(f"{name} has to be a text, a list of texts, or numbers of tokens")


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _message(message: Any) -> Mapping[str, Any]:
    """A message whose content is one text; parts of other kinds are refused."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise InputError('a message is an object with "role" and "content"')
    content = message.get("content")
    if isinstance(content, list):
        for part in content:
            if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
                raise InputError("the content of a message may hold texts only")
        return {**message, "content": "".join(part["text"] for part in content)}
    if content is not None and not isinstance(content, str):
        raise InputError("the content of a message has to be a text")
    return message

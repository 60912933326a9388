"""How a text is generated: the settings of a call over those of the package."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..errors import InputError

__all__ = ["Options", "read_options"]


@dataclass(frozen=True)
class Options:
    """What a call may ask for.

    Attributes:
        max_new_tokens: at most so many; None: until the model stops or the cache is full.
        temperature: divides the logits; 0: always the likeliest token (greedy).
        top_k: only the k likeliest tokens; 0: all.
        top_p: the fewest tokens whose probabilities add up to at least p; 1: all.
        min_p: only tokens at least p times as probable as the likeliest; 0: all.
        repetition_penalty: logits of tokens that the text holds are divided by it (negative ones multiplied); 1: none.
        presence_penalty: taken from the logits of tokens that were generated.
        frequency_penalty: so, once for each time that they were.
        logit_bias: number of a token -> what is added to its logit.
        begin_suppress_tokens: numbers of tokens that a text does not begin with.
        seed: of what is drawn; None: another one each time.
        stop: texts that end the generation; they are not part of it.
        stop_tokens: numbers of tokens that do, beside the package's own.
        ignore_eos: whether the package's own end tokens do not end a text.
        json_schema: the text is JSON by this schema; a dict, a text of JSON, or a class of pydantic.
        grammar: the text is one of this grammar, in the form of Lark, whose rule `start` it is.
        regex: the whole text matches this regular expression.
        logprobs: None, or how many of the likeliest tokens to give with their log-probabilities for each token; 0: that
            of the token itself.
    """

    max_new_tokens: int | None = None
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    begin_suppress_tokens: tuple[int, ...] = ()
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()
    ignore_eos: bool = False
    json_schema: Any = None
    grammar: str | None = None
    regex: str | None = None
    logprobs: int | None = None


#: name -> least and most value; None: no bound
_RANGES: dict[str, tuple[float | None, float | None]] = {
    "temperature": (0, None), "top_p": (0, 1), "min_p": (0, 1), "repetition_penalty": (0, None),
    "presence_penalty": (None, None), "frequency_penalty": (None, None),
}  # fmt: skip
#: options that are numbers of tokens
_TOKENS = ("stop_tokens", "begin_suppress_tokens")
#: name -> least value
_COUNTS = {"max_new_tokens": 1, "top_k": 0, "logprobs": 0, "seed": 0}


def read_options(settings: Mapping[str, Any], given: Mapping[str, Any], vocabulary: int) -> Options:
    """The options of a call.

    settings: those of the package. given: the call's own; None takes the package's.

    Raises:
        InputError: an unknown option, or a value out of its range.
    """
    known = {field.name for field in fields(Options)}
    for name in given:
        if name not in known:
            raise InputError(f"generation has no option '{name}'", hint=f"Options: {', '.join(sorted(known))}.")
    package = _of_package(settings)
    values = package | {name: value for name, value in given.items() if value is not None}
    for name, (least, most) in _RANGES.items():
        if name in values:
            values[name] = _number(name, values[name], least, most)
    for name, least in _COUNTS.items():
        if name in values:
            values[name] = _whole(name, values[name], least)
    if values.get("repetition_penalty", 1.0) == 0:
        raise InputError("repetition_penalty has to be above 0")
    for name in ("stop", *_TOKENS):
        if name in values:
            values[name] = _several(values[name])
    if any(not isinstance(text, str) or not text for text in values.get("stop", ())):
        raise InputError("stop has to be a text, or several, none of them empty")
    for name in _TOKENS:
        _check_tokens(name, values.get(name, ()), vocabulary)
    if "json_schema" in values:
        values["json_schema"] = _schema(values["json_schema"])
    if not isinstance(values.get("ignore_eos", False), bool):
        raise InputError(f"ignore_eos has to be True or False, not {values['ignore_eos']!r}")
    for name in ("grammar", "regex"):
        if name in values and not isinstance(values[name], str):
            raise InputError(f"{name} has to be a text, not a {type(values[name]).__name__}")
    bias = values.get("logit_bias")
    if bias is not None:
        if not isinstance(bias, Mapping):
            raise InputError(f"logit_bias has to be a dict, of tokens to what is added to their logits, not {bias!r}")
        bias = {**package.get("logit_bias", {}), **bias}
        values["logit_bias"] = {_token(token): _bias(value) for token, value in bias.items()}
        _check_tokens("logit_bias", values["logit_bias"], vocabulary)
    return Options(**values)


def _of_package(settings: Mapping[str, Any]) -> dict[str, Any]:
    """generation_config.json's settings as options: greedy unless it says do_sample, as transformers' generate."""
    values = {name: settings[name] for name in ("max_new_tokens", "repetition_penalty") if name in settings}
    if settings.get("do_sample"):
        values["temperature"] = settings.get("temperature", 1.0)
        values |= {name: settings[name] for name in ("top_k", "top_p", "min_p") if name in settings}
    if settings.get("begin_suppress_tokens"):
        values["begin_suppress_tokens"] = settings["begin_suppress_tokens"]
    if settings.get("suppress_tokens"):
        values["logit_bias"] = dict.fromkeys(settings["suppress_tokens"], float("-inf"))
    return values


def _schema(value: Any) -> Any:
    """A JSON schema as a dict; from a text of JSON, or a class with model_json_schema() as pydantic's have."""
    if hasattr(value, "model_json_schema"):
        value = value.model_json_schema()
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise InputError(f"json_schema is no JSON: {error}") from None
    if not isinstance(value, dict | bool):
        raise InputError(f"json_schema has to be a JSON schema, a dict, not a {type(value).__name__}")
    return value


def _several(value: Any) -> tuple[Any, ...]:
    single = isinstance(value, str | int) or not isinstance(value, Iterable)
    return (value,) if single else tuple(value)


def _number(name: str, value: Any, least: float | None, most: float | None) -> float:
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or (least is not None and number < least) or (most is not None and number > most):
        bounds = "" if least is None else f" from {least:g}" if most is None else f" from {least:g} to {most:g}"
        raise InputError(f"{name} has to be a number{bounds}, not {value!r}")
    return number


def _bias(value: Any) -> float:
    """What is added to a logit: -inf leaves a token out."""
    return value if value == -math.inf else _number("logit_bias", value, None, None)


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < least:
        raise InputError(f"{name} has to be a whole number from {least}, not {value!r}")
    return int(value)


def _token(token: Any) -> int:
    try:
        return int(token)
    except (TypeError, ValueError):
        raise InputError(f"logit_bias: {token!r} is no number of a token") from None


def _check_tokens(name: str, tokens: Sequence[Any] | Mapping[int, float], vocabulary: int) -> None:
    for token in tokens:
        if not hasattr(token, "__index__") or not 0 <= int(token) < vocabulary:
            raise InputError(f"{name}: {token!r} is no token; they are numbered from 0 to {vocabulary - 1}")

"""The native scheduler of libmycc.so (mycc/generate.h) for texts: many of them share one model and one cache.

It has the methods of Engine (engine.py), which does the same in Python for packages whose texts have a row each.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from ctypes import POINTER, byref, c_double, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np

from ..errors import Error, InputError, LoadError, RunError
from ..native import library_path
from .engine import Text
from .options import Options
from .sampling import Chosen

__all__ = ["Counts", "Scheduler", "is_native"]

_ERRORS: dict[int, type[Error]] = {1: LoadError, 2: InputError, 3: RunError}
_FINISH = (None, "stop", "length", "cancelled", "error")
#: options that the native sampler knows, or that others look after
_NATIVE = {
    "max_new_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "logit_bias", "seed", "stop", "stop_tokens", "ignore_eos", "logprobs",
}  # fmt: skip
_LEAST = 5e-324  # above 0, which stands for no bound
_MOST = 2**62  # of counts: more than there can be


class _Options(ctypes.Structure):
    """mycc_generator_options."""

    _fields_ = [("struct_size", c_uint32), ("forget", c_int32)]


class _Sampling(ctypes.Structure):
    """mycc_sampling."""

    _fields_ = [
        ("struct_size", c_uint32), ("has_seed", c_int32), ("seed", c_uint64), ("temperature", c_double),
        ("top_k", c_int64), ("top_p", c_double), ("min_p", c_double), ("repetition_penalty", c_double),
        ("presence_penalty", c_double), ("frequency_penalty", c_double), ("bias_tokens", c_void_p), ("bias", c_void_p),
        ("n_bias", c_int64),
    ]  # fmt: skip


class _Request(ctypes.Structure):
    """mycc_request."""

    _fields_ = [
        ("struct_size", c_uint32), ("priority", c_int32), ("prompt", c_void_p), ("prompt_length", c_int64),
        ("max_new_tokens", c_int64), ("stop_tokens", c_void_p), ("n_stop_tokens", c_int64), ("sampling", _Sampling),
        ("chosen_by_caller", c_int32),
    ]  # fmt: skip


class _Token(ctypes.Structure):
    """mycc_token."""

    _fields_ = [
        ("request", c_int64), ("token", c_int64), ("finish", c_int32), ("reused", c_int32), ("logits", c_void_p)
    ]  # fmt: skip


class Counts(ctypes.Structure):
    """mycc_generator_counts: what a scheduler has done, and what its cache holds."""

    _fields_ = [
        ("struct_size", c_uint32), ("running", c_int32), ("waiting", c_int32), ("blocks", c_int32),
        ("free_blocks", c_int32), ("block_tokens", c_int32), ("preempted", c_int64), ("read_tokens", c_int64),
        ("reused_tokens", c_int64), ("copied_blocks", c_int64),
        ("calls", c_int64),
    ]  # fmt: skip


_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "new": (c_int32, [c_void_p, POINTER(_Options), POINTER(c_void_p)]),
    "free": (None, [c_void_p]),
    "check": (c_int32, [c_void_p, POINTER(_Request)]),
    "submit": (c_int32, [c_void_p, POINTER(_Request), POINTER(c_int64)]),
    "cancel": (c_int32, [c_void_p, c_int64]),
    "choose": (c_int32, [c_void_p, c_int64, c_int64, c_int32, POINTER(c_int32)]),
    "step": (c_int32, [c_void_p, POINTER(POINTER(_Token)), POINTER(c_int32)]),
    "busy": (c_int32, [c_void_p]),
    "count": (c_int32, [c_void_p, POINTER(Counts)]),
}


#: an older library gives the logits with every token
_SHOW_LOGITS = ("show_logits", (c_int32, [c_void_p, c_int64, c_int32]))


@cache
def _library() -> Any:
    """libmycc.so; None where this process has an older one, without the scheduler."""
    found = ctypes.CDLL(library_path())
    known = [*_FUNCTIONS.items()]
    if hasattr(found, "mycc_generator_show_logits"):
        known.append(_SHOW_LOGITS)
    try:
        for name, (result, arguments) in known:
            function = getattr(found, f"mycc_generator_{name}")
            function.restype, function.argtypes = result, arguments
    except AttributeError:
        return None
    found.mycc_last_error.restype = ctypes.c_char_p
    return found


def is_native(model: Any, task: Mapping[str, Any]) -> bool:
    """Whether the texts of a package are for the native scheduler. model: what mycc.load gave.

    Raises:
        LoadError: they are, and this process has none.
    """
    if task["name"] != "text-generation" or "draft_tokens" in task:
        return False  # the engine in Python checks guesses
    if not task.get("recurrent") and ("back" in task or ("blocks" not in task and int(task["texts"]) > 1)):
        return False  # it knows how far a ring can go back, and rows that it does not name
    if hasattr(model._native, "handle") and _library() is not None:
        return True
    if "blocks" in task:
        raise LoadError(
            "this process has loaded a libmycc.so that is older than the package and cannot schedule its texts",
            hint="Load this package first, or install the mycc that made it.",
        )
    return False


class Scheduler:
    """Runs texts on one state of a package: see mycc/generate.h. Not for several threads at once.

    Attributes:
        length: tokens of a text, prompt and answer together. vocabulary: how many tokens there are.
        places: texts that run at once at most.
        reuse: whether a text takes over what the cache holds of its beginning.
    """

    def __init__(self, model: Any, task: Mapping[str, Any], reuse: bool = True) -> None:
        self.length, self.vocabulary, self.places = (int(task[name]) for name in ("length", "vocabulary", "texts"))
        self.reuse = reuse
        self._model = model  # which the native one works with
        self._c = _library()
        self._handle = c_void_p()
        options = _Options(ctypes.sizeof(_Options), int(not reuse))
        self._check(self._c.mycc_generator_new(model._native.handle, byref(options), byref(self._handle)))
        self._texts: dict[int, Text] = {}

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._c.mycc_generator_free(self._handle)

    def check(self, text: Text) -> None:
        """Raises InputError for a text that cannot be generated."""
        if text.drafter is not None:
            raise InputError(
                "the package has no function that checks guesses",
                hint="Compile it with --draft-tokens 8 (draft_tokens=8 in Python).",
            )
        request = _Request(ctypes.sizeof(_Request))
        kept = _fill(request, text)
        self._check(self._c.mycc_generator_check(self._handle, byref(request)))
        del kept

    def add(self, text: Text) -> None:
        """Raises InputError when the prompt is empty or too long."""
        self.check(text)
        request, number = _Request(ctypes.sizeof(_Request)), c_int64()
        kept = _fill(request, text)  # what it points to
        self._check(self._c.mycc_generator_submit(self._handle, byref(request), byref(number)))
        del kept
        self._texts[number.value] = text
        if text.options.logprobs is None and hasattr(self._c, "mycc_generator_show_logits"):
            self._check(self._c.mycc_generator_show_logits(self._handle, number, 0))

    def cancel(self, text: Text) -> None:
        """Ends a text; its place is free afterwards."""
        if text.finish is None:
            text.finish = "cancelled"
        for number in [number for number, own in self._texts.items() if own is text]:
            del self._texts[number]
            self._check(self._c.mycc_generator_cancel(self._handle, number))

    def cancel_all(self) -> None:
        for text in list(self._texts.values()):
            self.cancel(text)

    @property
    def busy(self) -> bool:
        return bool(self._c.mycc_generator_busy(self._handle))

    def step(self) -> Iterator[tuple[Text, Chosen | None]]:
        """One round: gives the texts that went on with their tokens, None for a text that ended without one.

        Raises:
            RunError: a call of the model failed. The texts of that call have ended; the others go on.
        """
        found, count = POINTER(_Token)(), c_int32()
        status = self._c.mycc_generator_step(self._handle, byref(found), byref(count))
        failure = self._failure(status) if status else None
        results = [self._result(found[i]) for i in range(count.value)]
        yield from results
        if failure is not None:
            raise failure

    def counts(self) -> Counts:
        """What it has done, and what the cache holds."""
        made = Counts(ctypes.sizeof(Counts))
        if self._c.mycc_generator_count(self._handle, byref(made)):
            made.struct_size = Counts.calls.offset  # an older library
            self._check(self._c.mycc_generator_count(self._handle, byref(made)))
        return made

    def _result(self, found: _Token) -> tuple[Text, Chosen | None]:
        number, text = found.request, self._texts[found.request]
        logits = None
        if found.logits:
            logits = np.ctypeslib.as_array((c_float * self.vocabulary).from_address(found.logits))
        if found.token < 0 and found.finish == 0:
            chosen = self._choose(number, text, logits)
        else:
            text.finish = _FINISH[found.finish]
            chosen = None if found.token < 0 else text.sampler.described(found.token, logits)
            if chosen is not None:
                text.chosen.append(chosen)
        if text.finish is not None:
            del self._texts[number]
        return text, chosen

    def _choose(self, number: int, text: Text, logits: Any) -> Chosen | None:
        """The next token of a text whose options only Python knows."""
        chosen = text.take(logits, self.length)
        finish = _FINISH.index("stop") if text.finish == "stop" else 0
        token = -1 if chosen is None else chosen.token
        self._check(self._c.mycc_generator_choose(self._handle, number, token, finish, None))
        return chosen

    def _check(self, status: int) -> None:
        if status:
            raise self._failure(status)

    def _failure(self, status: int) -> Error:
        text = self._c.mycc_last_error().decode("utf-8", "replace")
        message, _, hint = text.partition("\n  ")
        return _ERRORS.get(status, RunError)(message, hint=hint or None)


def _is_chosen_here(options: Options) -> bool:
    """Whether a text's tokens are chosen in Python: it has options that the native sampler does not know."""
    others = [field for field in fields(options) if field.name not in _NATIVE]
    if any(getattr(options, field.name) != field.default for field in others):
        return True
    return options.seed is not None and options.seed >= 2**64


def _fill(request: _Request, text: Text) -> list[Any]:
    """Fills a request in; gives the arrays that it points to."""
    options, by_caller = text.options, _is_chosen_here(text.options)
    try:
        prompt, stops = np.array(text.prompt, np.int64), np.array(sorted(text.ends), np.int64)
    except OverflowError:
        raise InputError("a number of the prompt is no token, as it has more than 63 bits") from None
    request.prompt, request.prompt_length = prompt.ctypes.data, len(prompt)
    request.stop_tokens, request.n_stop_tokens = stops.ctypes.data, len(stops)
    request.max_new_tokens = min(options.max_new_tokens or 0, _MOST)
    request.chosen_by_caller = int(by_caller)
    if by_caller:
        return [prompt, stops]
    bias = options.logit_bias or {}
    tokens, added = np.array(list(bias), np.int64), np.array(list(bias.values()), np.float32)
    sampling = request.sampling
    sampling.struct_size = ctypes.sizeof(_Sampling)
    sampling.has_seed, sampling.seed = int(options.seed is not None), options.seed or 0
    sampling.temperature, sampling.top_k = options.temperature, min(options.top_k, _MOST)
    sampling.top_p, sampling.min_p = max(options.top_p, _LEAST), options.min_p
    for name in ("repetition_penalty", "presence_penalty", "frequency_penalty"):
        setattr(sampling, name, getattr(options, name))
    sampling.bias_tokens, sampling.bias, sampling.n_bias = tokens.ctypes.data, added.ctypes.data, len(tokens)
    return [prompt, stops, tokens, added]

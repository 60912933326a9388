"""Functions that take the arguments of a record (arguments.py): their signatures, docstrings and errors name each."""

from __future__ import annotations

import difflib
import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ..arguments import Argument, arguments_of

__all__ = ["takes"]

P = ParamSpec("P")
R = TypeVar("R")
#: the line of a docstring that the arguments' own lines stand in for
_PLACE = "**options:"


def takes(record: type) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Spells out `**options: Unpack[record]` of a function.

        @takes(CommonArguments)
        def f(model, *, out, **options: Unpack[CommonArguments]): ...  # (model, *, out, target="cpu", dtype=None, ...)

    `inspect.signature` and `help` show every argument with its default; the docstring's line `**options: ...` becomes a
    line for each. A keyword that is none raises TypeError, as of any function. What was not given stays out of options.
    """
    arguments = arguments_of(record)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        keywords = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=argument.default, annotation=kind)
            for name, (kind, argument) in arguments.items()
        ]
        known = {p.name for p in (*own, *keywords)}

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs.keys() - known:
                near = difflib.get_close_matches(name, known, 1)
                instead = f"; did you mean '{near[0]}'?" if near else ""
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument '{name}'{instead}")
            return function(*args, **kwargs)

        call.__signature__ = signature.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
        call.__doc__ = _documented(function.__doc__, {name: a for name, (_, a) in arguments.items()})
        return call

    return decorate


def _documented(text: str | None, arguments: dict[str, Argument]) -> str | None:
    """A docstring with a line for each argument in place of the one for all."""
    lines = []
    for line in (text or "").split("\n"):
        if not line.strip().startswith(_PLACE):
            lines.append(line)
            continue
        before = line[: len(line) - len(line.lstrip())]
        for name, argument in arguments.items():
            lines += textwrap.wrap(
                f"{name}: {argument.doc}", 120, initial_indent=before, subsequent_indent=before + " " * 4
            )
    return None if text is None else "\n".join(lines)

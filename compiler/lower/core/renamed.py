"""Arguments of the builder that had another name: functions of custom operators may still give the old one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def renamed_argument(old: str, new: str) -> Callable[[F], F]:
    """A decorator: the keyword `old` is taken as `new`, with a warning."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if old in kwargs:
                text = f"the argument {old!r} of {function.__name__} is now called {new!r}"
                warnings.warn(text, DeprecationWarning, stacklevel=2)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate

"""What the functions that compile a folder for a task share: the options of mycc.compile, and a checked size."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ...runtime.errors import CompileError
from ..options import CompileOptions

__all__ = ["CommonOptions", "checked_options", "positive"]


class CommonOptions(TypedDict, total=False):
    """Arguments of every task's function, as they are in mycc.compile."""

    dtype: Any
    quantize: str | None
    quantize_skip: str | Sequence[str]
    max_error: float | None
    target: str | Sequence[str]
    verify: bool
    strict: bool
    threads: int | None
    options: Mapping[str, object] | Sequence[str] | None
    cache_dir: str | os.PathLike[str] | None
    jobs: int | None
    dump: str | os.PathLike[str] | None


def checked_options(given: CommonOptions, specialize: str | tuple[str, ...] = ()) -> CompileOptions:
    """Raises CompileError for a value that is wrong."""
    return CompileOptions.of(specialize=specialize, **given)


def positive(name: str, value: object) -> int:
    """A whole number from 1. Raises CompileError for anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CompileError(f"{name} has to be a whole number from 1, not {value!r}")
    return value

"""`mycc compile DIR --task NAME`: which tasks there are, and what each takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...runtime.errors import CompileError
from .compile import compile_generation
from .embedding import compile_embedding

__all__ = ["compile_task"]

_TASKS: dict[str, Callable[..., Path]] = {"embedding": compile_embedding, "text-generation": compile_generation}


def compile_task(
    task: str,
    folder: str,
    *,
    out: Path | None,
    max_batch: int | None,
    tokenizer: Path | None,
    unused: Mapping[str, Any],
    **options: Any,
) -> Path:
    """Compiles a model's folder, or a GGUF file, for a task; the path of the package.

    unused: options of the command that tasks have no use for, with what was given for them.

    Raises:
        CompileError: there is no such task, an option does not go with it, or what the task itself raises.
    """
    if task not in _TASKS:
        raise CompileError(f"there is no task '{task}'", hint=f"Tasks: {', '.join(sorted(_TASKS))}.")
    for word, value in unused.items():
        if value:
            raise CompileError(f"{word} does not go with --task", hint="What a task's functions take is known.")
    if tokenizer is not None and task != "text-generation":
        raise CompileError("--tokenizer goes with --task text-generation")
    path = out or Path(f"{Path(folder).resolve().name.removesuffix('.gguf')}.pkg")
    given = {"max_batch": max_batch, "tokenizer": tokenizer}
    own = {name: value for name, value in given.items() if value is not None}
    return _TASKS[task](folder, out=path, **own, **options)

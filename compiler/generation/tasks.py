"""`mycc compile DIR --task NAME`: which tasks there are, and what each takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...runtime.errors import CompileError
from .compile import compile_generation
from .embedding import compile_embedding
from .seen import compile_image_text
from .sources import compile_speech, compile_text2text

__all__ = ["compile_task"]

_TASKS: dict[str, Callable[..., Path]] = {
    "automatic-speech-recognition": compile_speech,
    "embedding": compile_embedding,
    "image-text-to-text": compile_image_text,
    "text-generation": compile_generation,
    "text2text-generation": compile_text2text,
}
#: options that not all tasks have -> those that do
_OWN: dict[str, tuple[str, ...]] = {
    "cache_tokens": ("text-generation",),
    "cache_dtype": ("text-generation",),
    "draft_tokens": ("text-generation",),
    "image_size": ("image-text-to-text",),
    "tokenizer": ("image-text-to-text", "text-generation", "text2text-generation", "automatic-speech-recognition"),
    "max_source_length": ("text2text-generation",),
}


def compile_task(
    task: str,
    folder: str,
    *,
    out: Path | None,
    own: Mapping[str, Any],
    unused: Mapping[str, Any],
    **options: Any,
) -> Path:
    """Compiles a model's folder, or a GGUF file, for a task; the path of the package.

    own: options that some tasks have, None where they were not given. unused: options of the command that tasks have no
    use for, with what was given for them.

    Raises:
        CompileError: there is no such task, an option does not go with it, or what the task itself raises.
    """
    if task not in _TASKS:
        raise CompileError(f"there is no task '{task}'", hint=f"Tasks: {', '.join(sorted(_TASKS))}.")
    for word, value in unused.items():
        if value:
            raise CompileError(f"{word} does not go with --task", hint="What a task's functions take is known.")
    given = {name: value for name, value in own.items() if value is not None}
    for name in given:
        if task not in _OWN.get(name, _TASKS):
            raise CompileError(f"--{name.replace('_', '-')} does not go with --task {task}")
    taken = inspect.signature(_TASKS[task]).parameters
    for name in [name for name in options if name not in taken]:
        if options.pop(name):
            raise CompileError(f"--{name.replace('_', '-')} does not go with --task {task}")
    path = out or Path(f"{Path(folder).resolve().name.removesuffix('.gguf')}.pkg")
    return _TASKS[task](folder, out=path, **given, **options)

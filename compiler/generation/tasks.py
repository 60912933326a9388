"""`mycc compile DIR --task NAME`: which tasks there are, and what each takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...arguments import CompileArguments, StepArguments, TaskArguments, arguments_of
from ...runtime.errors import CompileError
from ..observe import Observer
from .compile import compile_generation
from .embedding import compile_embedding
from .forward import FORWARD_TASKS, compile_transformer
from .seen import compile_image_text
from .sources import compile_speech, compile_text2text

__all__ = ["TASKS", "compile_task"]

TASKS: dict[str, Callable[..., Path]] = {
    "automatic-speech-recognition": compile_speech,
    "embedding": compile_embedding,
    "image-text-to-text": compile_image_text,
    "text-generation": compile_generation,
    "text2text-generation": compile_text2text,
    **{name: partial(compile_transformer, task=name) for name in FORWARD_TASKS},
}


def compile_task(
    task: str,
    folder: str,
    out: Path | None,
    name: str | None,
    given: Mapping[str, Any],
    others: Mapping[str, Any],
    observers: Sequence[Observer],
) -> Path:
    """Compiles a model's folder, or a GGUF file, for a task; the path of the package.

    task: one of TASKS, see check_task. given: arguments of arguments.py that are not their defaults, which go to the
    task's function. others: options of the command that no task has, with what was given for them.

    Raises:
        CompileError: an option does not go with the task, or what the task itself raises.
    """
    taken = inspect.signature(TASKS[task]).parameters
    options = {
        key: argument.option[0]
        for record in (CompileArguments, StepArguments, TaskArguments)
        for key, (_, argument) in arguments_of(record).items()
        if argument.option
    }
    wrong = [word for word, value in others.items() if value] + [options[key] for key in given if key not in taken]
    if wrong:
        raise CompileError(f"{wrong[0]} does not go with --task {task}")
    path = out or Path(f"{Path(folder).resolve().name.removesuffix('.gguf')}.pkg")
    return TASKS[task](folder, out=path, name=name, observers=observers, **given)

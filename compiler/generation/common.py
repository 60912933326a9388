"""What the functions that compile a folder for a task share: loading the model, the last steps, and a checked size."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...runtime.errors import CompileError
from ..api import compile_entries, compile_request
from ..ir.dtypes import to_torch
from ..observe import Observer, running_stage, warn_all
from ..options import CompileOptions
from ..request import CompileRequest, Task
from .folder import Folder, read_folder
from .network import load_network

__all__ = ["load_model", "positive", "task_request"]


def load_model(
    model: Any, loader: str, options: CompileOptions, observers: Sequence[Observer], tokenizer: bool = True
) -> tuple[Any, Folder | None]:
    """The network of a folder or file, or of what read_folder gave, in the dtype of the options, with the folder; or a
    network that is given, and None.

    loader: the class of transformers that builds it. tokenizer: as of read_folder.

    Raises:
        CompileError: the folder is not whole, or a dtype is asked for of a network that is given.
    """
    in_dtype = None if options.dtype is None else to_torch(options.dtype)
    with running_stage(observers, "load") as stage:
        folder = model if isinstance(model, Folder) else None
        if isinstance(model, str | os.PathLike):
            folder = read_folder(model, tokenizer)
        network = model if folder is None else load_network(folder, loader, in_dtype)
        stage.summary = f"{type(network).__name__}, {_amount(network)}"
    if folder is None and in_dtype is not None:
        raise CompileError("dtype is for folders; give the model in the dtype that it shall compute in")
    return network, folder


def _amount(network: Any) -> str:
    """How its weights are quantised, or how many parameters there are."""
    parameters = sum({id(p): p.numel() for p in network.parameters()}.values())
    return getattr(network, "quantised", None) or f"{parameters / 1e6:.1f} M parameters"


def task_request(
    entries: Any,
    options: CompileOptions,
    out: str | os.PathLike[str],
    name: str | None,
    task: tuple[Task, Sequence[str]],
    observers: Sequence[Observer],
) -> CompileRequest:
    """The request for a task's package. task: with the warnings of task_of, which are told here.

    Raises:
        CompileError: there is a warning and the options are strict, or what compile_request raises.
    """
    warn_all(observers, task[1], options.strict)
    return compile_request(compile_entries(entries), replace(options, dtype=None), out, name, task[0])


def positive(name: str, value: object) -> int:
    """A whole number from 1. Raises CompileError for anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CompileError(f"{name} has to be a whole number from 1, not {value!r}")
    return value

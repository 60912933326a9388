"""What the functions that compile a folder for a task share: loading the model, sizes, examples, the last steps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...runtime.errors import CompileError
from ...runtime.text import parameters_text
from ..api import compile_entries, compile_request
from ..ir.dtypes import to_torch
from ..observe import Observer, running_stage, warn_all
from ..options import CompileOptions
from ..request import CompileRequest, Task
from .folder import Folder, read_folder
from .network import load_network

__all__ = ["example_texts", "load_model", "positive", "task_request", "text_length"]

#: tokens of a text, where neither the user nor the folder says how many
LENGTH = 512


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
    return getattr(network, "quantised", None) or parameters_text(parameters)


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


def text_length(network: Any, asked: int | None, known: int | None = None) -> int:
    """How many tokens a text may have that a network reads in one call.

    asked: by the user; None: `known`, which the folder says, at most 512.

    Raises:
        CompileError: the network has fewer positions.
    """
    config = network.config.get_text_config()
    most = getattr(config, "max_position_embeddings", None)
    if most is not None and config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        most -= (config.pad_token_id or 0) + 1  # positions begin behind the padding's
    if asked is None:
        return min(n for n in (known, most, LENGTH) if n)
    if positive("max_length", asked) < 2 or (most is not None and asked > most):
        raise CompileError(f"max_length has to be from 2 to {most or 'as many as memory holds'}, not {asked!r}")
    return asked


def example_texts(network: Any, texts: int, length: int) -> tuple[Any, Any]:
    """Tokens and their mask, i64[batch, count] each, of at most two texts; the last one ends in padding."""
    import torch

    sample = torch.Generator().manual_seed(0)
    vocabulary = network.config.get_text_config().vocab_size
    tokens = torch.randint(0, vocabulary, (min(2, texts), min(8, length)), generator=sample)
    mask = torch.ones_like(tokens)
    mask[-1, tokens.shape[1] // 2 + 1 :] = 0
    return tokens, mask

"""Inputs for calibration: from a file, from a function, or given as they are."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...runtime.errors import CompileError
from ..model.graph import ModelGraph, TensorSpec, dtype_name

__all__ = ["calibration_samples"]

_HINT = (
    "It is an .npz with an array for each input (of one sample, or of several along a dimension in front), or "
    "module:function, whose result is a list of samples: a tensor, a tuple of the inputs, or a dict of them by name."
)


def calibration_samples(graph: ModelGraph, source: Any) -> list[list[Tensor]]:
    """The inputs of an entry point that a user gives for calibration, checked against its signature.

    Args:
        source: path of an .npz, "module:function", a function, or an iterable of samples.

    Raises:
        CompileError: they cannot be read, are none, or do not fit.
    """
    specs = graph.inputs[: graph.n_arguments]
    if isinstance(source, (str, os.PathLike)):
        text = os.fspath(source)
        given = _from_file(Path(text), specs) if text.endswith(".npz") else _called(_function(text), text)
    else:
        given = _called(source, "calibrate") if callable(source) else source
    if not isinstance(given, Iterable) or isinstance(given, (str, Tensor, Mapping)):
        raise CompileError("cannot read the inputs for calibration", hint=_HINT)
    state = list(graph.examples[graph.n_arguments :])
    samples = [[*_checked(specs, sample, i), *state] for i, sample in enumerate(given)]
    if not samples:
        raise CompileError("there are no inputs for calibration", hint=_HINT)
    return samples


def _from_file(path: Path, specs: Sequence[TensorSpec]) -> list[dict[str, Tensor]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: torch.from_numpy(np.array(file[name])) for name in file.files}
    except (OSError, ValueError) as error:
        raise CompileError(f"cannot read '{path}': {error}", hint=_HINT) from None
    missing = [spec.name for spec in specs if spec.name not in arrays]
    if missing:
        held = ", ".join(arrays) or "nothing"
        raise CompileError(f"'{path}' lacks the input '{missing[0]}'; it holds {held}", hint=_HINT)
    stacked = [spec for spec in specs if arrays[spec.name].dim() == len(spec.shape) + 1]
    if not stacked:
        return [{spec.name: arrays[spec.name] for spec in specs}]
    count = min(arrays[spec.name].shape[0] for spec in stacked)
    rows = {spec.name for spec in stacked}
    return [
        {s.name: arrays[s.name][i] if s.name in rows else arrays[s.name] for s in specs} for i in range(count)
    ]  # fmt: skip


def _function(text: str) -> Any:
    module, colon, name = text.rpartition(":")
    if not colon:
        raise CompileError(f"cannot read the inputs for calibration from '{text}'", hint=_HINT)
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise CompileError(f"cannot find '{text}': {error}", hint=_HINT) from None


def _called(function: Any, name: str) -> Any:
    try:
        return list(function())
    except CompileError:
        raise
    except Exception as error:
        raise CompileError(f"'{name}' raised for calibration: {type(error).__name__}: {error}", hint=_HINT) from error


def _checked(specs: Sequence[TensorSpec], sample: Any, number: int) -> list[Tensor]:
    values = _flat(specs, sample, number)
    if len(values) != len(specs):
        raise CompileError(f"calibration input {number} has {len(values)} tensors, and the model takes {len(specs)}")
    for spec, value in zip(specs, values, strict=True):
        fits = value.dtype == spec.dtype and value.dim() == len(spec.shape)
        if not fits or any(isinstance(n, int) and n != m for n, m in zip(spec.shape, value.shape, strict=True)):
            raise CompileError(
                f"calibration input {number}: {spec.name} is {_form(value.dtype, value.shape)}, and the model takes "
                f"{_form(spec.dtype, spec.shape)}"
            )
    return values


def _flat(specs: Sequence[TensorSpec], sample: Any, number: int) -> list[Tensor]:
    if isinstance(sample, Mapping) and all(isinstance(key, str) for key in sample):
        missing = [spec.name for spec in specs if spec.name not in sample]
        if missing:
            raise CompileError(f"calibration input {number} lacks '{missing[0]}'; it holds {', '.join(sample)}")
        sample = [sample[spec.name] for spec in specs]
    leaves = [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in pytree.tree_leaves(sample)]
    return [x.detach() for x in leaves if isinstance(x, Tensor)]


def _form(dtype: torch.dtype, shape: Sequence[Any]) -> str:
    return f"{dtype_name(dtype)}[{', '.join(map(str, shape))}]"

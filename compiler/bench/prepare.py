"""What all peers share: the model with its examples at a batch size, the package, and the float64 reference."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from ...runtime.errors import CompileError
from ...runtime.inspect import inspect_package
from ...runtime.measure import products
from ..api import compile_entries, compile_request, run_request
from ..capture.export import capture
from ..capture.given import with_inputs
from ..capture.source import Source, load_source
from ..model.graph import ModelGraph
from ..observe import Observer
from ..options import CompileOptions
from ..verify.compare import error, errors
from ..verify.reference import eager, reference

__all__ = ["Prepared", "batch_of", "load_model", "output_error", "prepare", "resize_batch"]

SEED = 0


@dataclass(frozen=True)
class Prepared:
    """A model at one batch size, ready for its peers.

    Attributes:
        batch: size of the batch dimension; None for a model without one.
        package: compiled by mycc, with fixed sizes.
        folder: holds inputs.npz, and files that peers share.
        reference: the outputs in float64; integers and booleans in their own dtype.
        eager: the largest relative error of eager torch's outputs.
        flops: of all matrix products, convolutions and attentions.
        changes: a call changes the model's state or an argument.
    """

    batch: int | None
    package: Path
    folder: Path
    reference: tuple[torch.Tensor, ...]
    eager: float
    flops: int
    changes: bool = False


def load_model(source: str, inputs: Sequence[str] = (), batch: int | None = None) -> Source:
    """The model of a SOURCE with its examples: replaced or made by `inputs` (x=f32[1,3,224,224]), then at a batch size.

    Random numbers start at a fixed seed, so that every process that loads the source has the same weights and examples
    unless the source itself prevents it. Raises CompileError.
    """
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    loaded = load_source(source, needs_inputs=not inputs)
    if isinstance(loaded.model, ExportedProgram):
        if inputs or batch not in (None, batch_of(loaded.args, dict(loaded.kwargs))):
            raise CompileError(f"the sizes of the exported program '{source}' are fixed", hint="Give its model file.")
        loaded = replace(loaded, model=loaded.model.module())
    loaded = with_inputs(loaded, inputs)
    args, kwargs = loaded.args, dict(loaded.kwargs)
    if batch is not None:
        args, kwargs = resize_batch(args, kwargs, batch)
    return replace(loaded, args=args, kwargs=kwargs, dynamic_shapes=None)


def batch_of(args: Sequence[Any], kwargs: dict[str, Any]) -> int | None:
    """The batch of examples: the first size of the first tensor that has one; None without such a tensor."""
    leaves = pytree.tree_leaves((tuple(args), kwargs))
    return next((x.shape[0] for x in leaves if isinstance(x, torch.Tensor) and x.dim()), None)


def resize_batch(args: Sequence[Any], kwargs: dict[str, Any], batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The examples at a batch size: every tensor whose first size is the batch is repeated or cut along it.

    Raises CompileError: no input has a batch dimension.
    """
    old = batch_of(args, kwargs)
    if not old:
        raise CompileError(f"cannot make the batch {batch}: no example input has a first dimension with elements")
    rows = torch.arange(batch) % old

    def resized(leaf: Any) -> Any:
        fits = isinstance(leaf, torch.Tensor) and leaf.dim() and leaf.shape[0] == old
        return leaf[rows] if fits else leaf

    values, spec = pytree.tree_flatten((tuple(args), kwargs))
    new_args, new_kwargs = pytree.tree_unflatten([resized(leaf) for leaf in values], spec)
    return new_args, new_kwargs


class _Captured(Observer):
    """Keeps the captured graph of a compile."""

    graph: ModelGraph | None = None

    def stage_finished(self, name: str, seconds: float, summary: str, value: object) -> None:
        if name == "capture":
            (self.graph,) = value  # type: ignore[misc]


def _compiled(
    source: Source, options: CompileOptions, out: Path, observers: Sequence[Observer]
) -> tuple[Path, ModelGraph]:
    """The package and the graph that was captured for it."""
    captured = _Captured()
    request = compile_request(compile_entries(source.model, source.args, source.kwargs), options, out)
    path = run_request(request, [*observers, captured])
    assert captured.graph is not None
    return path, captured.graph


def prepare(
    loaded: Source,
    batch: int | None,
    folder: Path,
    options: CompileOptions,
    observers: Sequence[Observer] = (),
    package: Path | None = None,
) -> Prepared:
    """Compiles what load_model gave for a batch size (unless there is a package), and computes its reference.

    Raises CompileError.
    """
    with torch.no_grad():
        if package is None:
            package, graph = _compiled(loaded, options, folder / "model.pkg", observers)
        else:
            graph = capture(loaded.model, loaded.args, loaded.kwargs)
        given = graph.examples[: graph.n_arguments]
        np.savez(folder / "inputs.npz", *(_array(example) for example in given))
        wanted = reference(graph, graph.examples)[: graph.n_results]
        own = errors(eager(graph, graph.examples)[: graph.n_results], wanted)
    (entry,) = inspect_package(os.fspath(package))["entry_points"]
    flops = products(entry["kernels"], {})
    size = batch_of(loaded.args, dict(loaded.kwargs))
    return Prepared(size, package, folder, tuple(wanted), max(own, default=0.0), flops, bool(graph.in_place))


def output_error(outputs: Path, wanted: Sequence[torch.Tensor]) -> float:
    """The largest relative error of the outputs that a worker wrote; infinite when they are others at all."""
    with np.load(outputs) as arrays:
        found = [torch.from_numpy(arrays[name]) for name in arrays]
    if len(found) != len(wanted):
        return float("inf")
    return max((error(y, r) for y, r in zip(found, wanted, strict=True)), default=0.0)


def _array(tensor: torch.Tensor) -> Any:
    """bfloat16 as its bits."""
    tensor = tensor.detach().contiguous()
    return tensor.view(torch.int16).numpy().view(np.uint16) if tensor.dtype == torch.bfloat16 else tensor.numpy()

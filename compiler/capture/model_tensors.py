"""The tensors of a model and of its example inputs: what none of them may be, and memory that they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ...runtime.errors import CompileError
from ..model.leaves import Leaf
from .program import check_tensor
from .sparse import is_sparse, storage_of
from .tensor_formats import refuse_format
from .trees import constant

__all__ = ["apart_from", "check_leaves", "check_model", "plain_parts"]

#: modules whose weights are packed for one library: torch.export cannot look into them
_PACKED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.ao.nn.sparse.quantized")


def check_leaves(leaves: Sequence[Leaf]) -> None:
    """Refuses example inputs that are neither dense tensors nor constants of a package."""
    for leaf in leaves:
        if leaf.is_tensor:
            check_tensor(leaf.value, f"example input '{leaf.name}'")
        else:
            constant(leaf.value, f"example input '{leaf.name}'")


def check_model(model: Any) -> None:
    """Refuses modules without plain weights, and weights without values, by their names."""
    if not isinstance(model, torch.nn.Module):
        return
    for name, module in model.named_modules():
        if type(module).__module__.startswith(_PACKED):
            kind = f"{type(module).__module__}.{type(module).__name__}".replace(".modules", "")
            raise CompileError(
                f"'{name or type(module).__name__}' of the model is a {kind}, whose weights are packed for torch's own "
                "kernels",
                hint="Compile the model from before torch.ao.quantization, or quantise that one with torchao "
                "(quantize_, or prepare_pt2e and convert_pt2e on the exported program).",
            )
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if torch.nn.parameter.is_lazy(tensor):
            owner = model.get_submodule(name.rpartition(".")[0])
            raise CompileError(
                f"'{name}' of the model has no shape yet: {type(owner).__name__} gets it from its first call",
                hint="Call the model once with the example inputs before it is compiled.",
            )
        refuse_format(tensor, name)
        check_tensor(tensor, f"'{name}' of the model", sparse=True)


def plain_parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that hold a tensor's memory: itself, or the parts of a quantised one that torchao made."""
    if is_sparse(tensor):
        yield storage_of(tensor)
        return
    if not is_traceable_wrapper_subclass(tensor):
        yield tensor
        return
    names, _ = tensor.__tensor_flatten__()
    for name in names:
        yield from plain_parts(getattr(tensor, name))


def apart_from(values: Sequence[Any], owners: Sequence[torch.nn.Module]) -> list[Any]:
    """The values with memory of its own for each tensor, also apart from the owners' weights: torch.export takes inputs
    that share it for one."""
    own = (part for m in owners for t in (*m.parameters(), *m.buffers()) for part in plain_parts(t))
    seen = {part.untyped_storage().data_ptr() for part in own}
    result = []
    for value in values:
        if isinstance(value, torch.Tensor):
            memory = {part.untyped_storage().data_ptr() for part in plain_parts(value)}
            value = value.detach().clone() if memory & seen and value.numel() else value
            seen |= memory
        result.append(value)
    return result

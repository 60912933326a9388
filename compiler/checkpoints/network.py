"""A network of transformers whose quantised layers hold a checkpoint's integers."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...runtime.errors import CompileError
from ...runtime.formats import task_of
from .files import Tensors, open_tensors
from .methods import Method, method_of
from .modules import PackedEmbedding, PackedLinear
from .weights import PackedWeight, refused

__all__ = ["Checkpoint", "check_finite", "check_folder", "empty_network", "fill", "load_folder", "other_task"]

_NAMED = 8  # tensors that an error names
#: tensors that old checkpoints hold and no network reads
_COMPUTED = re.compile(r"rotary_emb\.inv_freq$|\.attn\.(masked_)?bias$")


def check_folder(folder: Path, config: Mapping[str, Any]) -> None:
    """Raises CompileError where the quantised weights of a folder are in a form that is not taken."""
    with open_tensors(folder) as tensors:
        method_of(config["quantization_config"], tensors)


def load_folder(folder: Path, config: Any, auto_class: Any, dtype: torch.dtype | None) -> Any:
    """The network of a folder whose config.json has a quantization_config, in eval mode.

    Args:
        config: transformers' of the folder. auto_class: its class of networks. dtype: of all that is no integer;
            None: that of config.json.

    Raises:
        CompileError: a tensor is missing, left over or in a layout that is not taken.
    """
    about = config.quantization_config
    about = about if isinstance(about, Mapping) else about.to_dict()
    own = _dtype(config, dtype)
    with open_tensors(folder) as tensors:
        method = method_of(about, tensors)
        network = empty_network(config, auto_class, own)
        fill(network, _Folder(tensors, method, about), own, f"'{folder}'")
        if not hasattr(network, "quantised"):
            raise CompileError(f"'{folder}' says that its weights are quantised, but holds no layer of integers")
        _check_left(tensors, method, network, folder)
    return network


def other_task(network: Any) -> str:
    """What to do where the weights lack tensors of a network: another task, where config.json names another class."""
    stored = next(iter(getattr(network.config, "architectures", None) or []), None)
    if stored is None or stored == type(network).__name__:
        return "The weights are of another model, or incomplete."
    return f"They are of {stored}, says config.json. Its task: --task {task_of(stored)}"


def _dtype(config: Any, asked: torch.dtype | None) -> torch.dtype:
    own = asked or getattr(config, "dtype", None) or torch.float32
    return getattr(torch, own) if isinstance(own, str) else own


# a network without weights --------------------------------------------------------------------------------------------
class _EmptyMatrices(TorchFunctionMode):
    """Matrices that are made without values have no memory: those of a network before its weights are there."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        sizes = args[0] if len(args) == 1 and isinstance(args[0], tuple | list) else args
        if func is torch.empty and len(sizes) > 1:
            kwargs = {**kwargs, "device": "meta"}
        return func(*args, **kwargs)


def empty_network(config: Any, auto_class: Any, dtype: torch.dtype) -> Any:
    """The network in eval mode; its matrices are on the device "meta", its buffers have their values."""
    if getattr(config, "quantization_config", None) is not None:
        del config.quantization_config
    with _EmptyMatrices(), torch.no_grad():
        return auto_class.from_config(config, dtype=dtype).eval()


# its weights ----------------------------------------------------------------------------------------------------------
class Checkpoint(ABC):
    """Where a network's weights come from."""

    title: str

    @abstractmethod
    def packed(self, layer: str, shape: tuple[int, int]) -> PackedWeight | None:
        """The integers of a linear layer or an embedding; None: it has floats."""

    @abstractmethod
    def floats(self, name: str) -> Tensor | None:
        """A tensor of the state dict; None: there is none."""


@dataclass(frozen=True)
class _Folder(Checkpoint):
    tensors: Tensors
    method: Method
    config: Mapping[str, Any]

    @property
    def title(self) -> str:  # type: ignore[override]
        return self.method.title

    def packed(self, layer: str, shape: tuple[int, int]) -> PackedWeight | None:
        if not any(f"{layer}.{mark}" in self.tensors for mark in self.method.marks):
            return None
        try:
            return self.method.read(layer, shape, lambda name: self.tensors[f"{layer}.{name}"], self.config)
        except KeyError as error:
            raise refused(
                layer, f"the tensor {error.args[0]} is missing", "Copy the folder again, as a whole."
            ) from None

    def floats(self, name: str) -> Tensor | None:
        return self.tensors.get(name)


def fill(network: Any, checkpoint: Checkpoint, dtype: torch.dtype, place: str) -> None:
    """Gives a network the weights of a checkpoint. `network.quantised` then says which are integers, for a person.

    Raises:
        CompileError: a tensor is missing, of another shape, or a layer's integers cannot be read.
    """
    formats: Counter[str] = Counter()
    for name, module in list(network.named_modules()):
        if isinstance(module, nn.Linear | nn.Embedding):
            weight = checkpoint.packed(name, tuple(module.weight.shape))  # type: ignore[arg-type]
            if weight is not None:
                _check_scales(name, weight)
                formats[weight.format] += 1
                bias = checkpoint.floats(f"{name}.bias")
                network.set_submodule(name, _layer(name, module, weight, bias, dtype))
    missing = [name for name in _own_tensors(network) if not _set(network, name, checkpoint.floats(name), dtype)]
    _tie(network, missing)
    if missing:
        raise CompileError(
            f"the weights in {place} lack {len(missing)} tensors that {type(network).__name__} has",
            details=sorted(missing)[:_NAMED],
            hint=other_task(network),
        )
    network.requires_grad_(False)
    if formats:
        network.quantised = (
            f"{checkpoint.title}: {', '.join(f'{n} layers of {form}' for form, n in formats.most_common())}"
        )


def _layer(name: str, module: nn.Module, weight: PackedWeight, bias: Tensor | None, dtype: torch.dtype) -> nn.Module:
    if isinstance(module, nn.Embedding):
        return PackedEmbedding(weight, dtype)
    own = getattr(module, "bias", None)
    if own is not None and bias is None:
        raise refused(name, "its bias is missing")
    if own is None and bias is not None and not bool(bias.any()):
        bias = None  # writers that give every layer one
    return PackedLinear(weight, bias, dtype)


def _check_scales(layer: str, weight: PackedWeight) -> None:
    wrong = int((~torch.isfinite(weight.scales.float()) | (weight.scales == 0)).sum())
    if wrong:
        raise refused(layer, f"{wrong} of its {weight.scales.numel()} scales are zero, NaN or infinite")


def check_finite(name: str, tensor: Tensor) -> None:
    """Raises CompileError for a tensor of NaN or infinity."""
    if not bool(torch.isfinite(tensor).all()):
        raise CompileError(f"the tensor '{name}' holds NaN or infinity")


def _own_tensors(network: nn.Module) -> list[str]:
    """The names of a network's parameters and of the buffers that a state dict holds, without those of integers."""
    inside = tuple(f"{n}." for n, m in network.named_modules() if isinstance(m, PackedLinear | PackedEmbedding))
    return [name for name in network.state_dict() if not name.startswith(inside)]


def _set(network: nn.Module, name: str, value: Tensor | None, dtype: torch.dtype) -> bool:
    if value is None:
        return False
    path, _, last = name.rpartition(".")
    module = network.get_submodule(path)
    old = getattr(module, last)
    if tuple(old.shape) != tuple(value.shape):
        raise CompileError(f"the tensor '{name}' is {list(value.shape)}, and {list(old.shape)} in the network")
    value = value.to(dtype) if value.is_floating_point() else value
    setattr(module, last, nn.Parameter(value, requires_grad=False) if last in module._parameters else value)
    return True


def _tie(network: Any, missing: list[str]) -> None:
    """Weights that a network shares, of which a checkpoint holds one: taken off the missing ones."""
    for target, source in dict(getattr(network, "all_tied_weights_keys", None) or {}).items():
        if target not in missing:
            continue
        path, other = target.rpartition(".")[0], network.get_submodule(source.rpartition(".")[0])
        if isinstance(other, PackedEmbedding):
            network.set_submodule(path, other.as_linear())
        elif source not in missing:
            setattr(network.get_submodule(path), target.rpartition(".")[2], other.weight)
        else:
            continue
        missing.remove(target)


def _check_left(tensors: Tensors, method: Method, network: Any, folder: Path) -> None:
    left = [n for n in tensors.left if n.rpartition(".")[2] not in method.ignored and not _COMPUTED.search(n)]
    tied = set(getattr(network, "all_tied_weights_keys", None) or {})
    left = [n for n in left if n not in tied]
    if left:
        raise CompileError(
            f"'{folder}' holds {len(left)} tensors that {type(network).__name__} does not read",
            details=left[:_NAMED],
            hint="Checkpoints of Llama- and Qwen-like models are taken, whose layers have names of their own.",
        )

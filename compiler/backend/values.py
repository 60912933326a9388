"""What is known of the values of a traced graph: fake tensors, sizes, devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from ...runtime.errors import CompileError
from ..model.computed import free_symbols
from ..model.graph import DTYPE_NAMES, TensorSpec
from ..model.symbols import linear, size_of

__all__ = [
    "check_value", "defined_by", "device_of", "is_size", "mode_of", "ranges_of", "specs", "stays", "symbols_of",
    "the_device", "under",
]  # fmt: skip


def is_size(val: Any) -> bool:
    """Whether a value is a number that changes from call to call."""
    return isinstance(val, torch.SymInt)


def under(like: torch.Tensor, make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """A fake tensor, made in the mode of another one."""
    mode = getattr(like, "fake_mode", None)
    if mode is None:
        return make()
    with mode, torch.no_grad():
        return make()


def mode_of(module: fx.GraphModule) -> FakeTensorMode:
    """The mode of a graph's fake tensors; of a graph of numbers alone, a new one with their formulas."""
    values = [node.meta.get("val") for node in module.graph.nodes]
    modes = (getattr(val, "fake_mode", None) for val in values)
    envs = (val.node.shape_env for val in values if is_size(val))
    return next((mode for mode in modes if mode is not None), None) or FakeTensorMode(shape_env=next(envs, None))


def specs(nodes: Sequence[fx.Node], names: Sequence[str]) -> tuple[TensorSpec, ...]:
    """Types and shapes of some nodes, with names."""
    return tuple(
        TensorSpec(name, node.meta["val"].dtype, tuple(size_of(n) for n in node.meta["val"].shape))
        for node, name in zip(nodes, names, strict=True)
    )


def ranges_of(module: fx.GraphModule) -> Mapping[Any, Any]:
    """Bounds of the size symbols, as torch knows them."""
    for node in module.graph.nodes:
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is not None and mode.shape_env is not None:
            return mode.shape_env.var_to_range
    return {}


def check_value(val: torch.Tensor, name: str) -> None:
    """Raises CompileError for a tensor that a package does not take."""
    if val.dtype not in DTYPE_NAMES:
        raise CompileError(
            f"'{name}' is a tensor of {str(val.dtype).removeprefix('torch.')}, which a package cannot hold"
        )
    if val.layout != torch.strided or val.is_quantized:
        kind = "quantized" if val.is_quantized else str(val.layout).removeprefix("torch.")
        raise CompileError(f"'{name}' is a {kind} tensor; only dense ones work")


def device_of(module: fx.GraphModule) -> torch.device:
    """Where most of a graph's tensors are that have elements to compute with."""
    found: dict[torch.device, int] = {}
    for val in _tensors(module):
        found[val.device] = found.get(val.device, 0) + 1
    taken = {device: count for device, count in found.items() if device.type in ("cpu", "cuda")}
    return max(taken, key=lambda device: taken[device], default=torch.device("cpu"))


def the_device(module: fx.GraphModule) -> torch.device:
    """The one device of a graph. Raises CompileError for several, or one without a target."""
    devices = list(dict.fromkeys(val.device for val in _tensors(module)))
    if len(devices) > 1 or any(device.type not in ("cpu", "cuda") for device in devices):
        named = ", ".join(map(str, devices))
        raise CompileError(f"it has tensors on {named}; mycc takes a CPU or one CUDA device")
    return devices[0] if devices else torch.device("cpu")


def _tensors(module: fx.GraphModule) -> Iterator[torch.Tensor]:
    """The values of a graph, without numbers on the CPU, which go anywhere."""
    for node in module.graph.nodes:
        values = node.meta.get("val")
        for val in values if isinstance(values, (tuple, list)) else (values,):
            if isinstance(val, torch.Tensor) and not (val.device.type == "cpu" and val.dim() == 0):
                yield val


def symbols_of(values: Iterable[Any]) -> set[sympy.Symbol]:
    """The size symbols in some values."""
    return set().union(*(free_symbols(val) for val in values))


def defined_by(node: fx.Node) -> set[sympy.Symbol]:
    """The size symbols that the dimensions of an input say."""
    found = (linear(size_of(size)) for size in node.meta["val"].shape if isinstance(size, torch.SymInt))
    return {symbol for symbol, *_ in filter(None, found)}


def stays(node: fx.Node) -> bool:
    """Whether a node stays though nobody reads it."""
    return node.op in ("placeholder", "output") or bool(node.meta.get("mycc_kept"))

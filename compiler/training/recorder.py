"""A trace of fixed sizes in a tenth of the time of torch's: operators are written down as they run on fake tensors.

torch's own tracer carries each tensor in two wrappers (proxies, functional tensors), which takes it a millisecond an
operator. Of sizes that are numbers nothing has to be traced but the operators themselves; what they write in place the
copy behind this makes functional (capture/functional.py).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import snapshot_fake
from torch.utils._python_dispatch import TorchDispatchMode

from ..model.graph import graph_module

__all__ = ["NotRecorded", "has_fixed_sizes", "record"]

aten = torch.ops.aten
_PLACE = ("stack_trace", "nn_module_stack")  # of the line of the model, in what torch keeps of the current node


class NotRecorded(Exception):
    """What ran needs torch's own tracer."""


def has_fixed_sizes(values: Sequence[Tensor]) -> bool:
    """Whether the sizes and strides of all tensors are numbers."""
    return all(type(n) is int for v in values for n in (*v.shape, *v.stride(), v.storage_offset()))


def record(function: Callable[..., Sequence[Any]], values: Sequence[Tensor]) -> fx.GraphModule:
    """The operators that a function calls on fake values, as a graph of its arguments.

    Raises:
        NotRecorded: it asks for a value, or makes what a graph cannot hold.
    """
    recorder = _Recorder()
    for i, value in enumerate(values):
        recorder.enter(recorder.graph.placeholder(f"values_{i + 1}"), value)
    with recorder:
        found = function(*values)
    recorder.graph.output([recorder.operand(value) for value in found])
    return graph_module(recorder.root, recorder.graph, "Recorded")


class _Recorder(TorchDispatchMode):
    """Writes down the operators that reach it.

    Attributes:
        root: holds the constants that the graph names.
    """

    def __init__(self) -> None:
        super().__init__()
        self.graph, self.root = fx.Graph(), torch.nn.Module()
        self._nodes: dict[int, fx.Node] = {}
        self._known: list[Tensor] = []  # whose ids must not be taken by others
        self._constants = 0

    def enter(self, node: fx.Node, value: Tensor) -> None:
        """Notes that a node holds a tensor's value from here on."""
        node.meta["val"] = snapshot_fake(value)
        self._nodes[id(value)] = node
        self._known.append(value)

    def operand(self, value: Any) -> Any:
        """An argument of an operator as a graph holds it."""
        if isinstance(value, Tensor):
            return self._nodes.get(id(value)) or self._constant(value)
        if isinstance(value, (tuple, list)):
            return type(value)([self.operand(v) for v in value])
        if isinstance(value, dict):
            return {key: self.operand(v) for key, v in value.items()}
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, torch.Generator)):
            raise NotRecorded
        return value

    def _constant(self, value: Tensor) -> fx.Node:
        """A tensor that is no fake one: torch.tensor() has made it."""
        if type(value) is not Tensor:
            raise NotRecorded
        name = f"_tensor_constant{self._constants}"
        self._constants += 1
        self.root.register_buffer(name, value)
        node = self.graph.get_attr(name)
        self._nodes[id(value)] = node
        self._known.append(value)
        return node

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):
            raise NotRecorded
        if func.namespace == "prim":
            return func(*args, **kwargs)
        if _is_composite(func):
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        target = aten.lift_fresh_copy.default if func is aten.lift_fresh.default else func
        name = self.graph._target_to_str(target.overloadpacket.__name__)
        operands, named = self.operand(args), self.operand(kwargs)
        node = self.graph.create_node("call_function", target, operands, named, name=name)
        _describe(node)
        result = func(*args, **kwargs)
        self._results(node, result)
        return result

    def _results(self, node: fx.Node, result: Any) -> None:
        if isinstance(result, FakeTensor):
            self.enter(node, result)
        elif isinstance(result, (tuple, list)):
            node.meta["val"] = type(result)([snapshot_fake(r) if isinstance(r, Tensor) else r for r in result])
            for i, part in enumerate(result):
                item = self.graph.call_function(operator.getitem, (node, i))
                _describe(item)
                self._results(item, part)
        elif result is not None:
            raise NotRecorded  # a number, which may be of a constant alone


def _describe(node: fx.Node) -> None:
    """The line of the model that runs: that of the operator which it is the derivative of, too."""
    current = fx.traceback.get_current_meta()
    node.meta |= {key: current[key] for key in _PLACE if current.get(key)}


@cache
def _is_composite(func: OpOverload) -> bool:
    """Whether autograd would have run the operator's definition and not itself."""
    return func.has_kernel_for_dispatch_key(
        torch._C.DispatchKey.CompositeImplicitAutograd
    ) and not torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), torch._C.DispatchKey.CPU)

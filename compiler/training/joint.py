"""Traces on fake tensors: a captured graph with its derivatives and the optimizer's update as one functional graph.

torch's autograd runs over the captured graph node by node. Each operator of the backward pass keeps the line of the
operator that it is the derivative of.

    loss, y = f(x, w)       ->       loss, y = f(x, w);  dw = ...;  w1 = w - lr * dw
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch._aot_autograd.logging_utils import setup_stacktrace_preservation_hooks
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ...runtime.errors import CompileError
from ..model.graph import ModelGraph
from ..model.source_lines import origin, place_of
from .attention import whole_attention
from .recorder import NotRecorded, has_fixed_sizes, record

__all__ = ["Forward", "fake", "gradients", "mode_of", "recorded", "trace"]


def mode_of(graph: ModelGraph) -> FakeTensorMode:
    """The mode of the capture's fake tensors, which knows its sizes."""
    for node in graph.module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return FakeTensorMode(shape_env=ShapeEnv())


def fake(mode: FakeTensorMode, value: Tensor) -> Tensor:
    """A fake tensor of a real one's fixed shape."""
    return value if isinstance(value, FakeTensor) else mode.from_tensor(value.detach(), static_shapes=True)


@dataclass(frozen=True)
class Forward:
    """The captured graph as a function: of its placeholders and constants, to its outputs.

    whole: attention stays one operator, with its dropout (attention.py).
    """

    graph: ModelGraph
    sources: tuple[fx.Node, ...]
    whole: bool = False

    @classmethod
    def of(cls, graph: ModelGraph, whole: bool = False) -> Forward:
        return cls(graph, tuple(n for n in graph.module.graph.nodes if n.op in ("placeholder", "get_attr")), whole)

    def __call__(self, values: Mapping[fx.Node, Any]) -> list[Any]:
        """The outputs; values: one for each of the sources."""
        return list(_Replay(self.graph.module, values, self.whole).run(enable_io_processing=False))


class _Replay(fx.Interpreter):
    """Runs a graph on given values of placeholders and constants; notes at which node it is."""

    node: fx.Node

    def __init__(self, module: fx.GraphModule, values: Mapping[fx.Node, Any], whole: bool) -> None:
        super().__init__(module)
        self.values, self.whole = values, whole

    def run_node(self, n: fx.Node) -> Any:
        if n in self.values:
            return self.values[n]
        self.node = n
        try:
            return super().run_node(n)
        except NotImplementedError as error:
            raise _no_derivative(n, error) from error

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        found = None
        if self.whole and target is torch.ops.aten.scaled_dot_product_attention.default:
            found = whole_attention(args, kwargs, self.node.meta.get("val"))
        return super().call_function(target, args, kwargs) if found is None else found


def gradients(
    loss: Any, wanted: Sequence[Tensor], graph: ModelGraph, cotangent: Tensor | None = None
) -> list[Tensor | None]:
    """The derivatives of the loss, times a cotangent of its shape; None for what it does not depend on.

    Raises:
        CompileError: the loss is no real number, or an operator has no derivative; names the line.
    """
    node: Any = graph.module.graph.output_node().args[0][0]  # type: ignore[index]
    _check_loss(loss, node)
    if loss.grad_fn is None:
        return [None] * len(wanted)
    setup_stacktrace_preservation_hooks([loss.grad_fn])
    try:
        return list(torch.autograd.grad(loss, list(wanted), cotangent, allow_unused=True))
    except (NotImplementedError, RuntimeError) as error:
        raise _no_derivative(_named_in(str(error), graph), error) from error


def _check_loss(loss: Any, node: fx.Node) -> None:
    shape = list(loss.shape) if isinstance(loss, Tensor) else None
    if shape is not None and loss.is_floating_point() and all(isinstance(n, int) and n == 1 for n in shape):
        return
    what = "no tensor" if shape is None else f"a tensor of {str(loss.dtype)[6:]}{shape}"
    raise CompileError(
        f"the loss is {what}, not one real number",
        details=[line for line in [place_of(node)] if line],
        hint="Reduce it, for example with .mean().",
    )


def _no_derivative(node: fx.Node | None, error: Exception) -> CompileError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    what = "an operator" if node is None else str(node.target)
    lines = [place_of(node)] if node is not None and origin(node) else []
    return CompileError(
        f"{what} of the model has no derivative: {reason}",
        details=lines,
        hint="Put it under torch.no_grad(), freeze what stands before it, or write it with other operators.",
    )


def _named_in(message: str, graph: ModelGraph) -> fx.Node | None:
    """The node whose operator a message of torch names."""
    words = set(re.findall(r"\w+", message))
    for node in graph.module.graph.nodes:
        operator = node.target
        if isinstance(operator, torch._ops.OpOverload) and operator._opname.strip("_") in words:
            return node
    return None


def trace(mode: FakeTensorMode, function: Callable[..., Any], values: Sequence[Tensor]) -> fx.GraphModule:
    """The torch operators that a function calls on fake values, functional, with source lines."""
    with _tracing(mode):
        return make_fx(dispatch_functionalize(function), tracing_mode="real")(*values)


def recorded(mode: FakeTensorMode, function: Callable[..., Any], values: Sequence[Tensor]) -> fx.GraphModule | None:
    """What `trace` gives, in a fraction of its time, but not functional; None where torch's tracer is needed.

    A function that raises here is for `trace`, too: it says then what is wrong.
    """
    if not has_fixed_sizes(values):
        return None
    try:
        with _tracing(mode):
            return record(function, values)
    except (NotRecorded, CompileError, NotImplementedError, RuntimeError):
        return None


@contextmanager
def _tracing(mode: FakeTensorMode) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        for message in ("Anomaly Detection has been enabled", "Error detected in"):
            warnings.filterwarnings("ignore", message=message)
        for manager in (mode, enable_python_dispatcher(), fx.traceback.preserve_node_meta()):
            stack.enter_context(manager)
        stack.enter_context(torch.autograd.detect_anomaly(check_nan=False))  # which keeps the lines for the backward
        yield

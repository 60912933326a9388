"""The float64 reference of a captured graph, and its plain run in the model's own dtypes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..graph.decompose.products import scaled_mm
from ..model.control import is_control
from ..model.graph import ModelGraph
from ..model.random_operators import draws
from .control import run_control
from .fast_double import FAST
from .interpreter import Node, call_torch, run_graph, value_form
from .ties import settled
from .unchecked import check_operands

aten = torch.ops.aten
#: torch makes float32 of their numbers
_WHERE = (aten.where.Scalar, aten.where.ScalarSelf, aten.where.ScalarOther)
_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_WIDE = {**dict.fromkeys(_NARROW, torch.float64), torch.complex64: torch.complex128}


def reference(
    graph: ModelGraph, inputs: Sequence[torch.Tensor], keep: dict[str, torch.Tensor | None] | None = None
) -> list[torch.Tensor]:
    """The outputs of the captured graph with every float32, float16 and bfloat16 as float64, casts included.

    Sizes are read from the inputs. Constants are converted where they are read and freed after it, so that never more
    than one operator's weights exist twice. Integers and booleans are computed as they are.

    Args:
        graph: as captured, before any pass.
        inputs: one tensor per input, in the model's dtypes.
        keep: gets the values of the nodes that are its keys.

    Returns:
        float64 tensors for float outputs, others in their own dtype.
    """

    given, constant = [widened(t) for t in inputs], reference_constant(graph, reference)
    if not keep:
        return list(widened(run_graph(graph.module.graph, given, constant, reference_call)))
    placeholders = graph.module.graph.find_nodes(op="placeholder")
    keep.update({node.name: value for node, value in zip(placeholders, given, strict=True) if node.name in keep})
    known = graph.module.graph.find_nodes(op="get_attr")
    keep.update({n.name: widened(graph.constants[str(n.target)]) for n in known if n.name in keep})

    def call(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = reference_call(node, args, kwargs)
        if node.name in keep:
            keep[node.name] = result
        return result

    return list(widened(run_graph(graph.module.graph, given, constant, call)))


def reference_constant(
    graph: ModelGraph, body: Callable[[ModelGraph, Sequence[torch.Tensor]], list[torch.Tensor]]
) -> Callable[[str], Any]:
    """What get_attr nodes mean for `reference_call`: tensors, and bodies of control flow, which `body` runs."""

    def constant(name: str) -> Any:
        if name in graph.regions:
            return lambda *operands: body(graph.regions[name], operands)
        return _Lazy(graph.constants[name])

    return constant


def eager(graph: ModelGraph, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of the captured graph in the model's own dtypes: what eager torch computes."""

    def constant(name: str) -> Any:
        if name in graph.regions:
            return lambda *operands: eager(graph.regions[name], operands)
        return graph.constants[name]

    return run_graph(graph.module.graph, inputs, constant, call_torch)


class _Lazy:
    """A constant that is converted when an operator takes it: an embedding reads a few rows of its table only."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor.detach()


def widened(value: Any) -> Any:
    """A tensor with narrow floats widened; dtypes likewise; containers element by element."""
    if isinstance(value, _Lazy):
        value = value.tensor
    if isinstance(value, torch.Tensor):
        # what a subclass (of a quantized weight, say) computes, its own operators alone know
        return value if is_traceable_wrapper_subclass(value) else value.to(_WIDE.get(value.dtype, value.dtype))
    if isinstance(value, torch.dtype):
        return _WIDE.get(value, value)
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(widened(v) for v in value)
    return value


def reference_call(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any], reverse: bool = False) -> Any:
    """A node of the captured graph in float64, from the values of its arguments; reverse: as `ties.settled` has it."""
    if is_control(node.target):
        return run_control(str(node.target), widened(args))
    if node.target is torch.ops.mycc.assert_true.default:
        return None  # a matter of the model's own dtypes: eager tests it
    if node.target is aten.embedding.default:
        rows = aten.embedding.default(args[0].tensor if isinstance(args[0], _Lazy) else args[0], widened(args[1]))
        return widened(rows)
    if draws(node) or node.target is aten.view.dtype:
        return in_own_dtypes(node, args, kwargs)
    given = args, kwargs
    args, kwargs = widened(args), {k: widened(v) for k, v in kwargs.items()}
    check_operands(node.target, args)
    if node.target in _WHERE and _is_float(node):
        return aten.where.self(args[0], *(torch.as_tensor(a, dtype=torch.float64) for a in args[1:]))
    if _is_float(node) and not any(_holds_float(a) for a in (*args, *kwargs.values())):
        args, kwargs = _with_float_result(node, args, kwargs)
    if node.target is aten._scaled_mm.default:  # torch's takes float32 scales alone
        return scaled_mm(*args[:6], out_dtype=torch.float64 if _is_float(node) else node.meta["val"].dtype)
    fast = FAST.get(node.target)
    if fast is not None:
        result = fast(*args, **kwargs)
        if result is not None:
            return result
    result = settled(node.target, args, kwargs, reverse)
    if result is not None:
        return result
    try:
        return widened(value_form(node.target)(*args, **kwargs))
    except (RuntimeError, IndexError, TypeError, AssertionError) as error:
        try:
            return in_own_dtypes(node, *given)
        except (RuntimeError, IndexError, TypeError, AssertionError):
            raise error from None


def in_own_dtypes(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operator in the dtypes of the model, its result widened.

    For those that draw random numbers, which are others in another dtype, and those that have no float64 form
    (fake_quantize, tensor subclasses, many operators of other libraries).
    """
    values = [_as_captured(a, value) for a, value in zip(node.args, args, strict=True)]
    named = {key: _as_captured(node.kwargs[key], value) for key, value in kwargs.items()}
    return widened(node.target(*values, **named))  # type: ignore[operator]


def _as_captured(argument: Any, value: Any) -> Any:
    """An argument's value in the dtype that it has in the model."""
    if isinstance(argument, (list, tuple)):
        return type(value)(_as_captured(a, v) for a, v in zip(argument, value, strict=True))
    if isinstance(argument, Node) and isinstance(value, (torch.Tensor, _Lazy)):
        tensor = value.tensor if isinstance(value, _Lazy) else value
        dtype = argument.meta["val"].dtype
        return tensor if tensor.dtype == dtype else tensor.to(dtype)
    return value


def _is_float(node: Node) -> bool:
    val = node.meta.get("val")
    return isinstance(val, torch.Tensor) and val.dtype in _NARROW


def _holds_float(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_holds_float(v) for v in value)
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _with_float_result(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Arguments for an operator that makes floats of integers or of nothing, which torch does in float32."""
    names = {a.name for a in node.target._schema.arguments}  # type: ignore[union-attr]
    if "dtype" in names and not isinstance(kwargs.get("dtype"), torch.dtype) and torch.float64 not in args:
        kwargs = {**kwargs, "dtype": torch.float64}
    elif "dtype" not in names:
        args = tuple(a.double() if isinstance(a, torch.Tensor) else a for a in args)
    return args, kwargs

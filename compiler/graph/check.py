"""Is a graph what the stages after it take for granted? Run after every pass in tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from ..model.fake import computing_fake
from ..model.graph import ModelGraph
from .node import Node
from .sizes import expr

_AROUND = 5  # nodes shown on either side of a bad one


class GraphError(Exception):
    """A graph that breaks a law; the text shows the nodes around the place."""


def check_graph(graph: ModelGraph, after: str = "") -> None:
    """Raises GraphError unless

    - nodes are defined before they are used, and placeholders are the inputs in order;
    - every get_attr names a tensor of `constants`, with its shape and dtype in meta, and every constant is read;
    - every call is an operator overload or size arithmetic, and its meta["val"] has the dtypes and sizes that torch
      computes from the fake values of its operands;
    - outputs have the shapes and dtypes of the signature.

    Args:
        after: the pass that ran before, for the message.
    """
    fx_graph = graph.module.graph
    try:
        fx_graph.lint()
    except RuntimeError as error:
        raise GraphError(f"{_after(after)}{error}") from error
    for node, problem in _problems(graph):
        raise GraphError(f"{_after(after)}{node.name}: {problem}\n{_neighbourhood(node)}")


def _after(name: str) -> str:
    return f"after {name}: " if name else ""


def _neighbourhood(node: Node) -> str:
    nodes = list(node.graph.nodes)
    at = nodes.index(node)
    shown = nodes[max(0, at - _AROUND) : at + _AROUND + 1]
    return "\n".join(f"{'>' if n is node else ' '} {n.format_node()}" for n in shown)


def _problems(graph: ModelGraph) -> Iterator[tuple[Node, str]]:
    read: set[str] = set()
    placeholders = graph.module.graph.find_nodes(op="placeholder")
    output: Any = graph.module.graph.output_node()
    if len(placeholders) != len(graph.inputs):
        yield output, f"{len(placeholders)} placeholders for {len(graph.inputs)} inputs"
    for node in graph.module.graph.nodes:
        if node.op == "get_attr":
            read.add(str(node.target))
            problem = _constant_problem(graph, node)
        elif node.op == "call_function":
            problem = _call_problem(node)
        else:
            problem = None
        if problem:
            yield node, problem
    for name in graph.constants:
        if name not in read:
            yield output, f"nothing reads the constant {name}"
    for spec, result in zip(graph.outputs, output.args[0], strict=True):
        val = result.meta["val"]
        val = _whole(val, spec.dtype)
        if val.dtype != spec.dtype or [expr(n) for n in val.shape] != [expr(n) for n in spec.shape]:
            yield result, f"output {spec.name} has {_text(val)}, the signature says {spec.dtype} {list(spec.shape)}"


def _whole(val: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A complex output that the graph has as real and imaginary part, as the complex tensor that it stands for."""
    if not dtype.is_complex or val.dtype.is_complex or val.shape[-1] != 2:
        return val
    return torch.empty_like(val.select(-1, 0), dtype=val.dtype.to_complex())


def _constant_problem(graph: ModelGraph, node: Node) -> str | None:
    tensor, val = graph.constants.get(str(node.target)), node.meta.get("val")
    if tensor is None:
        return f"there is no constant {node.target}"
    if not isinstance(val, torch.Tensor) or val.dtype != tensor.dtype or list(val.shape) != list(tensor.shape):
        return f"its value is {_text(val)}, the constant is {_text(tensor)}"
    return None


def _call_problem(node: Node) -> str | None:
    if "val" not in node.meta:
        return "it has no value in meta"
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    if any("val" not in n.meta for n in node.all_input_nodes):
        return "an operand has no value in meta"
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    mode = next((t.fake_mode for t in _tensors((args, kwargs, node.meta["val"])) if hasattr(t, "fake_mode")), None)
    if mode is None:
        return None
    with computing_fake(mode):
        computed = node.target(*args, **kwargs)
    if _text(computed) != _text(node.meta["val"]):
        return f"meta says {_text(node.meta['val'])}, its operands give {_text(computed)}"
    return None


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from _tensors(v)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _text(value: Any) -> str:
    """Dtype and sizes of a tensor, the formula of a size."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(str(expr(n)) for n in value.shape)}]"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(_text(v) for v in value)})"
    return str(expr(value)) if isinstance(value, (int, torch.SymInt)) else str(value)

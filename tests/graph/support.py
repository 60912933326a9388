"""Captured graphs for the tests of passes, and what the tests ask of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import sympy
import torch
from mycc.compiler.capture import ModelGraph, capture
from mycc.compiler.graph.check import check_graph
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.graph.sizes import expr
from mycc.compiler.verify import VerifyResult, eager, verify

Dim = torch.export.Dim


class Module(torch.nn.Module):
    """A function with parameters given by name."""

    def __init__(self, function: Callable[..., Any], **tensors: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def graph_of(function: Callable[..., Any], *inputs: torch.Tensor, dynamic: Any = None, **tensors: Any) -> ModelGraph:
    """Captures function(self, *inputs); self has the tensors as buffers. `dynamic`: a tuple of dim -> Dim per input."""
    shapes = None if dynamic is None else (tuple(dynamic),)
    return capture(Module(function, **tensors).eval(), inputs, dynamic_shapes=shapes)


def passed(graph: ModelGraph) -> ModelGraph:
    """The graph after all passes, checked after each."""

    def check(report: Any, result: ModelGraph) -> None:
        read = {str(n.target) for n in result.module.graph.nodes if n.op == "get_attr"}
        live = {name: tensor for name, tensor in result.constants.items() if name in read}
        check_graph(replace(result, constants=live), report.name)

    result = run_graph_passes(graph, check)
    check_graph(result)
    return result


def counts(graph: ModelGraph) -> Mapping[str, int]:
    """What the passes report, summed over all of them."""
    total: Counter[str] = Counter()
    run_graph_passes(graph, lambda report, _: total.update(report.counts))
    return total


def operators(graph: ModelGraph) -> Mapping[str, int]:
    """How many nodes there are of each operator ("aten.linear"), size arithmetic left out."""
    calls = [n for n in graph.module.graph.nodes if isinstance(n.target, torch._ops.OpOverload)]
    names = (f"{n.target.namespace}.{n.target._opname}" for n in calls)
    return Counter(name for name in names if name != "aten.sym_size")


def agrees(graph: ModelGraph, result: ModelGraph) -> VerifyResult:
    """Compares the graph after passes with the float64 reference of the captured one; raises when it is off."""
    return verify(graph, lambda inputs: eager(result, inputs))


def text(graph: ModelGraph) -> str:
    """A line per node, without source lines: `%y: f32[2, 3] = aten.add.Tensor(%x, 1)`."""
    names = {s.symbol: sympy.Symbol(s.name) for s in graph.symbols}
    return "\n".join(_line(n, names) for n in graph.module.graph.nodes if n.op != "placeholder") + "\n"


def before_and_after(graph: ModelGraph, name: str) -> str:
    """The graph before and after the pass `name` changed it for the first time."""
    texts: list[tuple[str, str]] = [("captured", text(graph))]
    run_graph_passes(graph, lambda report, result: texts.append((report.name, text(result))))
    for (_, before), (done, after) in itertools.pairwise(texts):
        if done == name and before != after:
            return f"before {name}\n{before}\nafter {name}\n{after}"
    raise AssertionError(f"{name} changed nothing")


def _line(node: torch.fx.Node, names: Mapping[Any, str]) -> str:
    args = [_argument(a) for a in node.args] + [f"{k}={_argument(v)}" for k, v in node.kwargs.items()]
    if node.op == "output":
        return f"return {args[0]}"
    target = f"constant {node.target}" if node.op == "get_attr" else f"{_target(node.target)}({', '.join(args)})"
    return f"%{node.name}: {_value(node.meta.get('val'), names)} = {target}"


def _target(target: Any) -> str:
    return str(target) if isinstance(target, torch._ops.OpOverload) else target.__name__


def _argument(value: Any) -> str:
    if isinstance(value, torch.fx.Node):
        return f"%{value.name}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_argument(v) for v in value)}]"
    return str(value).removeprefix("torch.")


def _value(value: Any, names: Mapping[Any, str]) -> str:
    if isinstance(value, torch.Tensor):
        sizes = (str(expr(n).xreplace(names) if not isinstance(expr(n), int) else expr(n)) for n in value.shape)
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(sizes)}]"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(_value(v, names) for v in value)})"
    return "size"

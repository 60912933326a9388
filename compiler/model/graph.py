"""The value that capture gives and the graph passes keep: one entry point of the model as an FX graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from .computed import ComputedSize, SizeCheck
from .origins import Origin
from .source_lines import origin

__all__ = [
    "InPlace", "ModelGraph", "SizeSymbol", "TensorSpec", "dtype_name", "format_graph", "graph_module", "type_printer",
]  # fmt: skip

DTYPE_NAMES = {
    torch.bool: "bool",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "c64",
    torch.complex128: "c128",
}


def dtype_name(dtype: torch.dtype) -> str:
    """The project's short name of a torch dtype; of one without a name (float8, ...) torch's own."""
    return DTYPE_NAMES.get(dtype, str(dtype).removeprefix("torch."))


def graph_module(root: torch.nn.Module | dict[str, Any], graph: fx.Graph, name: str) -> fx.GraphModule:
    """The graph with its tensors. Its Python is printed and compiled when it is called, which few are."""
    return _LazyGraphModule(root, graph, name)


@dataclass(frozen=True)
class TensorSpec:
    """An input or output: a dimension is an int or a sympy expression over the size symbols."""

    name: str
    dtype: torch.dtype
    shape: tuple[int | sympy.Expr, ...]


@dataclass(frozen=True)
class SizeSymbol:
    """A dynamic size, defined by a dimension of an input: shape[dim] of inputs[input] is scale * symbol + offset.

    Attributes:
        name: the user's name ("batch"), else s0, s1, ...
        symbol: the sympy symbol in the shapes of meta["val"].
        min, max: bounds, both included.
    """

    name: str
    symbol: sympy.Symbol
    min: int
    max: int
    input: int
    dim: int
    scale: int = 1
    offset: int = 0


@dataclass(frozen=True)
class InPlace:
    """An input whose memory is part of what a call changes: a buffer of the model, or an argument that is written to.

    Attributes:
        input: its position in the inputs.
        output: the position in the outputs of the value that it has after the call; None: this entry point reads it.
        name: of the buffer ("layers.0.cache"); "" for an argument of the caller.
        initial: a buffer's value when the package is loaded; None for an argument.
        slot: its place in the state of the package.
    """

    input: int
    output: int | None
    name: str = ""
    initial: torch.Tensor | None = None
    slot: int = -1


@dataclass
class ModelGraph:
    """One entry point: a functional FX graph of aten operators and all that belongs to it.

    Attributes:
        name: the entry point's name.
        module: call_function nodes of functional aten overloads; placeholders are the tensor inputs in order; get_attr
            nodes (flat names) are constants; the output is a flat tuple of tensor nodes.
        constants: get_attr target -> tensor. Memory of the user's model, never copied; tied weights share a target.
        inputs, outputs: in the order of the placeholders and of the output tuple.
        symbols: the dynamic sizes of the inputs.
        computed, checks: sizes that the run finds, and what the model asks of them.
        in_tree, out_tree: the Python structure of inputs and outputs, as in the manifest.
        examples: one tensor per input, those the export was made with.
        regions: bodies of control flow, by the name of the get_attr node that stands for each.
        in_place: inputs that calls change. Inputs and outputs for the state stand behind the caller's.
        notes: warnings of the capture.
        steady: inputs, by position, that verification takes the value of and draws no other: a rate of decay, say.
        origins: target of a constant -> where it comes from, where that is known; those of the capture are for all
            tensors of the model's state_dict(), also for those that nothing reads.
        by_value: names of tensors of the model whose values have decided about code.
        variant_of, fixed: of a variant for some sizes: the general entry point's name, and those sizes by name.
    """

    name: str
    module: fx.GraphModule
    constants: dict[str, torch.Tensor]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    symbols: tuple[SizeSymbol, ...]
    in_tree: object
    out_tree: object
    examples: tuple[torch.Tensor, ...]
    in_place: tuple[InPlace, ...] = ()
    regions: Mapping[str, ModelGraph] = field(default_factory=dict)
    computed: tuple[ComputedSize, ...] = ()
    checks: tuple[SizeCheck, ...] = ()
    notes: tuple[str, ...] = ()
    steady: frozenset[int] = frozenset()
    origins: Mapping[str, Origin] = field(default_factory=dict)
    by_value: frozenset[str] = frozenset()
    variant_of: str = ""
    fixed: Mapping[str, int] = field(default_factory=dict)

    @property
    def n_arguments(self) -> int:
        """How many of the inputs the caller gives; the others are state."""
        return len(self.inputs) - sum(change.initial is not None for change in self.in_place)

    @property
    def n_results(self) -> int:
        """How many of the outputs the caller gets; the others are new values of what is changed in place."""
        return len(self.outputs) - sum(change.output is not None for change in self.in_place)

    def format(self) -> str:
        """The graph as text, a line for each node, as --dump writes it."""
        return format_graph(self)


class _Printer:
    def __init__(self, graph: ModelGraph) -> None:
        self.names = {s.symbol: sympy.Symbol(s.name) for s in graph.symbols}
        places = [node for node in graph.module.graph.nodes if node.op == "placeholder"]
        self.inputs = {node: spec.name for node, spec in zip(places, graph.inputs, strict=False)}

    def size(self, size: object) -> str:
        expr = size.node.expr if isinstance(size, torch.SymInt) else size
        return str(expr.xreplace(self.names)) if isinstance(expr, sympy.Basic) else str(expr)

    def type(self, value: object) -> str:
        """`f32[batch, 768]` of a tensor, `i64 = 2*batch` of a size, `(.., ..)` of several."""
        if isinstance(value, torch.Tensor):
            return f"{dtype_name(value.dtype)}[{', '.join(self.size(s) for s in value.shape)}]"
        if isinstance(value, (tuple, list)):
            return f"({', '.join(self.type(v) for v in value)})"
        if isinstance(value, torch.SymInt):
            return f"size {self.size(value)}"
        return type(value).__name__

    def spec(self, spec: TensorSpec) -> str:
        return f"{spec.name}: {dtype_name(spec.dtype)}[{', '.join(self.size(s) for s in spec.shape)}]"

    def argument(self, arg: object) -> str:
        if isinstance(arg, fx.Node):
            return f"%{self.inputs.get(arg, arg.name)}"
        if isinstance(arg, (list, tuple)):
            return f"[{', '.join(self.argument(a) for a in arg)}]"
        if isinstance(arg, torch.dtype):
            return dtype_name(arg)
        return str(arg)

    def node(self, node: fx.Node) -> str:
        args = [self.argument(a) for a in node.args]
        args += [f"{k}={self.argument(v)}" for k, v in node.kwargs.items()]
        target = str(node.target).removesuffix(".default") if node.op == "call_function" else node.op
        if node.op == "get_attr":
            args = [str(node.target)]
        where = origin(node)
        text = f"%{node.name}: {self.type(node.meta.get('val'))} = {target}({', '.join(args)})"
        return f"{text:<110}  # {where.module or '-'}  {where.where}" if where else text


def type_printer(graph: ModelGraph) -> Callable[[object], str]:
    """What writes the type of a node's value ("f32[batch, 768]") with the names that the graph gives its sizes."""
    return _Printer(graph).type


def format_graph(graph: ModelGraph) -> str:
    """The graph as text: a line per symbol, input, node and output; nodes carry the module and line they came from."""
    printer = _Printer(graph)
    lines = [f"graph {graph.name}"]
    for s in graph.symbols:
        source = f"{graph.inputs[s.input].name}.shape[{s.dim}]"
        define = "" if (s.scale, s.offset) == (1, 0) else f" = {s.scale}*{s.name} + {s.offset}"
        lines.append(f"  symbol {s.name} in {s.min}..{s.max} from {source}{define}")
    for c in graph.computed:
        lines.append(f"  symbol {c.name} in {c.min}..{c.max} found by the run  # {c.where}")
    lines += [f"  check {check}  # {check.where}" for check in graph.checks]
    lines += [f"  input {printer.spec(spec)}" for spec in graph.inputs]
    for node in graph.module.graph.nodes:
        if node.op not in ("placeholder", "output"):
            lines.append(f"  {printer.node(node)}")
    for region in graph.regions.values():
        lines += [f"  {line}" for line in format_graph(region).rstrip().split("\n")]
    results = graph.module.graph.output_node().args[0]
    changed = {change.output: change for change in graph.in_place}
    for i, (spec, result) in enumerate(zip(graph.outputs, results, strict=True)):  # type: ignore[arg-type]
        role = "output" if i not in changed else "state" if changed[i].name else "argument"
        lines.append(f"  {role} {printer.spec(spec)} = {printer.argument(result)}")
    return "\n".join(lines) + "\n"

"""Walks the graph, calls the lowering of each operator, owns the error context.

All operators without a lowering are collected and reported at once, with shapes, dtypes and the user's lines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import sympy
import torch
import torch.fx

from ....runtime.errors import CompileError
from ....runtime.text import counted
from ...graph.updates import updates_of
from ...ir.buffers import Buffer
from ...ir.dtypes import from_torch
from ...ir.index import Index, product
from ...ir.nodes import Origin
from ...ir.program import Check, Program
from ...machine.targets import Family
from ...model.computed import KEPT, is_definer
from ...model.control import is_control, regions_of
from ...model.graph import ModelGraph, type_printer
from ...model.operators.functional import behind_twin
from ...model.source_lines import origin as source_origin
from ...tune.choices.choices import NO_CHOICES, Choices
from . import layout
from .builder import Builder, WinogradChoice
from .constants import Constant, Layout
from .context import Context
from .control import lower_control
from .fraction_sizes import is_rounded
from .in_place import keep_old_values, on_its_memory
from .outputs import bind_outputs
from .registry import REGISTRY
from .scalars import computed_number, size_number
from .shapes import Sizes, sizes_of
from .tensor import Strided, Tensor, dense_strides, is_dense

#: what the graph computes about sizes: read from the nodes' own values
SYMBOLIC = (torch.SymInt, torch.SymBool, torch.SymFloat, int, bool, float)


@dataclass(frozen=True)
class Lowered:
    """A program of the loop IR, the constants that its const buffers stand for, and where the values of the graph's
    nodes lie, by name: those that have memory of their own."""

    program: Program
    constants: dict[Constant, Buffer]
    places: Mapping[str, Tensor] = field(default_factory=dict)

    def __str__(self) -> str:
        from ...ir.printer import print_program

        return print_program(self.program)


def lower(
    graph: ModelGraph,
    layouts: Mapping[str, Layout] | None = None,
    family: Family = "cpu",
    winograd: WinogradChoice = "f33",
    choices: Choices = NO_CHOICES,
) -> Lowered:
    """One entry point's graph as loop IR; CompileError names every operator that has no lowering.

    layouts: of constants that several entry points share (layout.shared_layouts); None: this one's own choice.
    family: of the targets that the program is for: they differ in the layouts of weights and in the types of products.
    winograd: which of Winograd's convolutions may be chosen on a CPU.
    choices: of algorithms, where the tuner or a lock file overrules the cost model.
    """
    _check_supported(graph)
    builder = Builder(sizes_of(graph), family, winograd=winograd, choices=choices)
    builder.places = {c.name: c.where for part in (graph, *regions_of(graph)) for c in part.computed}
    builder.packed.update(layout.shared_layouts([graph], family)[0] if layouts is None else layouts)
    for region in regions_of(graph):
        own = layout.shared_layouts([region], family)[0]
        builder.packed.update({target: form for target, form in own.items() if target not in builder.packed})
    values: dict[torch.fx.Node, Any] = {}
    inputs = _inputs(builder, graph, values)
    results = _lower_nodes(builder, graph, values)
    _check_results(graph, results, builder.sizes)
    targets = [(inputs[c.input], results[c.output]) for c in graph.in_place if c.output is not None]
    outputs = bind_outputs(builder, results[: graph.n_results], targets)
    program = Program(
        graph.name,
        tuple(inputs[: graph.n_arguments]),
        outputs,
        tuple(s.name for s in graph.symbols),
        tuple(builder.nodes),
        tuple(builder.defines),
        _checks(builder, graph),
        state=tuple(inputs[graph.n_arguments :]),
    )
    return Lowered(program, builder.constants, _places(values, results, outputs))


def _check_results(graph: ModelGraph, results: Sequence[Tensor], sizes: Sizes) -> None:
    """The results lie in memory that is made for what the graph promises: nothing larger may be stored there.

    Complex numbers are two real ones each. Formulas of one size may differ in form, so they are compared at some sizes
    of the ranges.
    """
    points = [_some_sizes(sizes, step) for step in range(3)]
    for spec, t in zip(graph.outputs, results, strict=True):
        parts = spec.dtype.is_complex
        promised = sizes.shape((*spec.shape, 2) if parts else spec.shape)
        dtype = from_torch(spec.dtype.to_real() if parts else spec.dtype)
        wrong = t.dtype != dtype or len(promised) != t.rank
        if wrong or any(_evaluated(promised, at) != _evaluated(t.shape, at) for at in points):
            raise ValueError(f"'{spec.name}' is {t.dtype}{list(t.shape)}, not {spec.dtype}{list(spec.shape)}")


def _some_sizes(sizes: Sizes, step: int) -> dict[str, int]:
    """Small sizes, all different where the ranges let them."""
    symbols = sizes.symbols.values()
    wanted = {s.name: s.lo + step * (3 + 2 * i) for i, s in enumerate(symbols)}
    return {s.name: wanted[s.name] if s.hi is None else min(wanted[s.name], s.hi) for s in symbols}


def _evaluated(shape: Sequence[Index], at: Mapping[str, int]) -> list[int]:
    return [n.evaluate(at) for n in shape]


def _places(
    values: Mapping[torch.fx.Node, Any], results: Sequence[Tensor], outputs: Sequence[Buffer]
) -> dict[str, Tensor]:
    """The nodes' tensors that lie in memory; a temporary that became an output is said to lie there."""
    became = {
        t.strided.buffer: out for t, out in zip(reversed(results[: len(outputs)]), reversed(outputs), strict=True)
        if t.strided is not None and t.strided.buffer.kind == "temp" and is_dense(t)
    }  # fmt: skip
    found: dict[str, Tensor] = {}
    for node, value in values.items():
        if isinstance(value, Tensor) and value.strided is not None:
            buffer = became.get(value.strided.buffer, value.strided.buffer)
            found[node.name] = replace(value, strided=replace(value.strided, buffer=buffer))
    return found


def _checks(builder: Builder, graph: ModelGraph) -> tuple[Check, ...]:
    """What the model asks of the sizes that the run finds."""
    order = {name: i + 1 for i, name in enumerate(builder.found)}
    names = {s.symbol: sympy.Symbol(s.name) for s in graph.symbols}
    checks = []
    for check in graph.checks:
        a, b = builder.sizes.index(check.a), builder.sizes.index(check.b)
        defined = max((order.get(size.name, 0) for size in a.sizes() | b.sizes()), default=0)
        checks.append(Check(check.op, a, b, defined, f"{check.where}: {check.named(names)} does not hold"))
    return tuple(checks)


def _lower_nodes(builder: Builder, graph: ModelGraph, values: dict[torch.fx.Node, Any]) -> list[Tensor]:
    """The values of the graph's outputs, given those of its placeholders."""
    nodes = list(graph.module.graph.nodes)
    for update in updates_of(graph, nodes):
        builder.updates[update] = None
    for node in nodes:
        if node in builder.updates:
            keep_old_values(builder, node, values)
        if is_control(node.target):
            values[node] = _lower_control(builder, graph, node, values)
        elif node.op == "call_function":
            with on_its_memory(builder, node, values):
                values[node] = _lower_node(builder, node, values, graph.constants)
        elif node.op == "output":
            return [_operand(builder, n, values, graph.constants) for n in node.args[0]]
    raise ValueError("a graph without an output")


def _lower_control(
    builder: Builder, graph: ModelGraph, node: torch.fx.Node, values: dict[torch.fx.Node, Any]
) -> tuple[Tensor, ...]:
    """A branch or a loop: its bodies are lowered where it stands."""

    def operand(arg: Any) -> Any:
        if isinstance(arg, torch.fx.Node) and arg.op == "get_attr" and arg.target in graph.regions:
            return graph.regions[str(arg.target)]
        if isinstance(arg, (list, tuple)):
            return type(arg)(operand(a) for a in arg)
        return _operand(builder, arg, values, graph.constants)

    def inside(region: ModelGraph, inputs: Sequence[Any]) -> list[Tensor]:
        placeholders = region.module.graph.find_nodes(op="placeholder")
        return _lower_nodes(builder, region, dict(zip(placeholders, inputs, strict=True)))

    builder.origin, builder.hint = _origin(node), str(node.target)
    try:
        return lower_control(builder, node, [operand(arg) for arg in node.args], inside)
    except CompileError as error:
        if error.details:
            raise
        raise CompileError(error.message, details=[_place(node)], hint=error.hint) from error


def _check_supported(graph: ModelGraph) -> None:
    missing = unsupported(graph)
    alone = [n for n in graph.module.graph.nodes if str(n.target) == _REFUSED and n.users]
    if len(missing) == 1 and alone:
        _, name, reason = alone[0].args
        hint = "Rewrite this line, or work on torch.view_as_real(x)."
        raise CompileError(f"cannot compile {name}: {reason}", details=[_place(alone[0])], hint=hint)
    if missing:
        raise CompileError(
            f"cannot compile {counted(len(missing), 'operator')}", details=missing, hint=_how_to_add(graph)
        )


_REFUSED = "mycc.refused.default"


def unsupported(graph: ModelGraph) -> list[str]:
    """A line for each operator of the graph that has no lowering, with its place in the user's model."""
    lines = [line for region in graph.regions.values() for line in unsupported(region)]
    for node in graph.module.graph.nodes:
        if node.op != "call_function" or is_control(node.target):
            continue
        if str(node.target) == _REFUSED and node.users:
            lines.append(f"{node.args[1]}: {node.args[2]}   {_place(node)}")
        elif isinstance(node.target, torch._ops.OpOverload):
            wanted = node.users and (not isinstance(node.meta.get("val"), SYMBOLIC) or is_definer(node))
            if wanted and REGISTRY.find(str(node.target)) is None:
                lines.append(f"{_describe(node, type_printer(graph))}   {_place(node)}")
        elif _is_tensor_function(node):
            lines.append(f"{node.target}   {_place(node)}")
    return list(dict.fromkeys(lines))


def _how_to_add(graph: ModelGraph) -> str:
    """What to write for an operator of the user's own; for the others what to do instead."""
    for node in graph.module.graph.nodes:
        target = behind_twin(node.target) or node.target
        own = isinstance(target, torch._ops.OpOverload) and target.namespace not in ("aten", "prims", "mycc")
        if own and REGISTRY.find(str(target)) is None:
            name = f"{target.namespace}::{target._opname}"
            lowering, kernel = f'@mycc.lowering("{name}")', f'mycc.cpp_kernel("{name}", ...)'
            return f"Say what it computes: {lowering} over the loop IR, or {kernel} (docs/custom-operators.md)."
    return "Rewrite these lines with operators that mycc knows (docs/architecture.md lists the families)."


def _is_tensor_function(node: torch.fx.Node) -> bool:
    import operator

    if node.target is operator.getitem:
        return False
    return isinstance(node.meta.get("val"), (torch.Tensor, tuple, list))


def _describe(node: torch.fx.Node, type_text: Callable[[torch.Tensor], str]) -> str:
    values = [arg.meta.get("val") for arg in node.all_input_nodes]
    args = [type_text(val) for val in values if isinstance(val, torch.Tensor)]
    target = str(behind_twin(node.target) or node.target)
    return f"{target.replace('aten.', 'aten::', 1)}({', '.join(args)})"


def _type_text(builder: Builder, val: torch.Tensor) -> str:
    """`f32[rows, 1280]`, with the user's names of sizes."""
    sizes = ", ".join(str(s if isinstance(s, int) else builder.sizes.index(s)) for s in val.shape)
    return f"{_dtype_name(val.dtype)}[{sizes}]"


def _dtype_name(dtype: torch.dtype) -> str:
    try:
        return from_torch(dtype)
    except KeyError:
        return str(dtype).removeprefix("torch.")


def _place(node: torch.fx.Node) -> str:
    where = source_origin(node)
    if where is None or not where.file:
        return ""
    return f"{where.file}:{where.line}  {where.text}".rstrip()


def _inputs(builder: Builder, graph: ModelGraph, values: dict[torch.fx.Node, Any]) -> list[Buffer]:
    """A buffer for every input, the caller's and the state's; enters the values of the placeholders."""
    changed = {change.input: change for change in graph.in_place}
    found: list[Buffer] = []
    for i, node in enumerate(graph.module.graph.find_nodes(op="placeholder")):
        change, val = changed.get(i), node.meta["val"]
        kind, slot = "input", i
        if change is not None:
            kind, slot = ("inout", i) if change.initial is None else ("state", change.slot)
        shape = builder.sizes.shape(val.shape)
        buffer = Buffer(builder.fresh(node.name), from_torch(val.dtype), product(shape), kind, slot)
        found.append(buffer)
        values[node] = Tensor(shape, buffer.dtype, Strided(buffer, dense_strides(shape)))
    return found


def _lower_node(
    builder: Builder, node: torch.fx.Node, values: dict[torch.fx.Node, Any], constants: dict[str, torch.Tensor]
) -> Any:
    import operator

    if node.target is operator.getitem:
        return values[node.args[0]][node.args[1]]  # type: ignore[index]
    symbolic = isinstance(node.meta.get("val"), SYMBOLIC) and not is_definer(node)
    if not isinstance(node.target, torch._ops.OpOverload) or symbolic:
        return _symbolic(builder, node, values)
    if not node.users and not node.meta.get(KEPT):
        return None
    function = REGISTRY.find(str(node.target))
    assert function is not None, node.target
    builder.origin = _origin(node)
    builder.hint = _hint(node)
    args = [_operand(builder, a, values, constants) for a in node.args]
    kwargs = {k: _operand(builder, a, values, constants) for k, a in node.kwargs.items()}
    try:
        result = function(Context(builder, node, constants), *args, **kwargs)
        return _typed(builder, result, node.meta.get("val"))
    except CompileError as error:
        raise CompileError(
            f"cannot compile {_describe(node, partial(_type_text, builder))}: {error.message}",
            details=[place for place in (_place(node),) if place],
            hint=error.hint,
        ) from error


def _typed(builder: Builder, result: Any, val: Any) -> Any:
    """The result in the types that torch gives it: a lowering may have computed in a wider one."""
    if isinstance(result, (tuple, list)) and isinstance(val, (tuple, list)):
        return tuple(_typed(builder, r, v) for r, v in zip(result, val, strict=False))
    if not isinstance(result, Tensor) or not isinstance(val, torch.Tensor):
        return result
    dtype = from_torch(val.dtype)
    return result if result.dtype == dtype else builder.map(result.shape, dtype, result.at)


def _symbolic(builder: Builder, node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> Any:
    """Size arithmetic in the graph: the value is what torch recorded; with numbers that the run finds, a number."""
    val = node.meta.get("val")
    if isinstance(val, torch.SymInt) and is_rounded(val.node.expr):
        with contextlib.suppress(CompileError):  # else a number; where a size is made of it, that is an error
            return builder.sizes.index(val)
    # what torch takes for true, as the model asserts it, is computed all the same: it is what the run tests
    operands = node.all_input_nodes if isinstance(val, bool) else _numbers(node)
    if any(isinstance(values.get(n), Tensor) for n in operands):
        return computed_number(builder, node, [_operand(builder, a, values, {}) for a in node.args])
    if isinstance(val, torch.SymInt):
        return builder.sizes.index(val)
    if isinstance(val, (torch.SymFloat, torch.SymBool)) and val.node.expr.free_symbols:
        return size_number(node, [_operand(builder, a, values, {}) for a in node.args])
    return val


def _numbers(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The operands of a node that are numbers, not tensors."""
    symbolic = (torch.SymInt, torch.SymFloat, torch.SymBool)
    return [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), symbolic)]


def _operand(builder: Builder, arg: Any, values: dict[torch.fx.Node, Any], constants: dict[str, torch.Tensor]) -> Any:
    if isinstance(arg, torch.fx.Node):
        if arg.op == "get_attr":
            return _constant(builder, str(arg.target), constants[str(arg.target)])
        if isinstance(arg.meta.get("val"), torch.SymInt) and not isinstance(values.get(arg), Tensor):
            return builder.sizes.index(arg.meta["val"])
        return values[arg]
    if isinstance(arg, (list, tuple)):
        return type(arg)(_operand(builder, a, values, constants) for a in arg)
    return arg


def _constant(builder: Builder, target: str, tensor: torch.Tensor) -> Tensor:
    """A dense view of a constant; only what some node reads is stored."""
    return layout.constant_tensor(builder, target, tensor)


def _origin(node: torch.fx.Node) -> Origin:
    merged = node.meta.get("mycc_origins", ())
    where = source_origin(node)
    line = (where.where,) if where is not None and where.file else ()
    ops = tuple(dict.fromkeys(_op_name(str(m[1] if isinstance(m, tuple) else m)) for m in merged)) if merged else ()
    return Origin(ops or (_op_name(str(node.target)),), line, (node.name,))


def _op_name(target: str) -> str:
    parts = target.split(".")
    return ".".join(parts[:2])


def _hint(node: torch.fx.Node) -> str:
    return str(node.target).split(".")[1].strip("_") if isinstance(node.target, torch._ops.OpOverload) else "t"

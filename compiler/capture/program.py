"""An exported program as a ModelGraph."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx
from torch._ops import HigherOrderOperator
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)

from ...runtime.errors import CompileError
from .failures import quiet_export
from .functional import INLINED, FunctionalCopy, InputWrite, NeedsRetrace, RefusedNode, Tensor
from .graph import ModelGraph, TensorSpec
from .leaves import Dims
from .smallest import check_smallest
from .source_lines import ROOT, place_of
from .symbols import size_of, size_symbols
from .trees import LEAF, constant, leaf_names, structure

__all__ = ["ProgramInputs", "check_tensor", "import_program", "state_error", "user_name"]


@dataclass(frozen=True)
class ProgramInputs:
    """The tensor inputs of a program, what the user said about their sizes, and the structure of all arguments."""

    names: list[str]
    examples: tuple[torch.Tensor, ...]
    dims: list[Dims]
    tree: object


def import_program(name: str, program: ExportedProgram, inputs: ProgramInputs) -> ModelGraph:
    """The program as a ModelGraph; torch's own functionalisation first where ours cannot say it."""
    _refuse_control_flow(program)
    try:
        return _Importer(name, program, inputs).run()
    except NeedsRetrace:
        with torch.no_grad(), quiet_export():
            functional = program.run_decompositions({})
        return _Importer(name, functional, inputs).run()


def _refuse_control_flow(program: ExportedProgram) -> None:
    found: list[str] = []
    for node in program.graph.nodes:
        target = node.target
        if isinstance(target, HigherOrderOperator) and str(target) not in INLINED:
            found.append(f"torch.ops.higher_order.{target}  {place_of(node)}".rstrip())
    if found:
        raise CompileError(f"cannot compile {len(found)} operator{'s' * (len(found) > 1)}", details=found)


class _Importer:
    """Builds the ModelGraph of one exported program."""

    def __init__(self, name: str, program: ExportedProgram, inputs: ProgramInputs) -> None:
        self.name, self.program, self.inputs = name, program, inputs
        self.graph = fx.Graph()
        self.constants: dict[str, torch.Tensor] = {}
        self._nodes: dict[object, Tensor] = {}  # identity of the memory -> its get_attr
        self._labels: dict[fx.Node, str] = {}  # "parameter 'x'" of an input or constant, for messages

    def run(self) -> ModelGraph:
        signature = self.program.graph_signature
        placeholders = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        bound = [self._input(spec, node) for spec, node in zip(signature.input_specs, placeholders, strict=True)]
        copier = FunctionalCopy(self.graph)
        try:
            results = copier.copy(self.program.graph_module, bound, self._attribute)
        except RefusedNode as refused:
            raise self._refusal(refused) from None
        out_tree, nodes = self._outputs(copier, results)
        self.graph.output(tuple(nodes))
        _remove_dead(self.graph)
        _order_inputs(self.graph)
        module = fx.GraphModule(self._root(), self.graph, class_name="Model")
        used = {str(n.target) for n in self.graph.nodes if n.op == "get_attr"}
        graph = ModelGraph(
            name=self.name,
            module=module,
            constants={target: tensor for target, tensor in self.constants.items() if target in used},
            inputs=self._specs(self._placeholders(), self.inputs.names),
            outputs=self._specs(nodes, list(leaf_names(out_tree, "output"))),
            symbols=(),
            in_tree=self.inputs.tree,
            out_tree=out_tree,
            examples=self.inputs.examples,
        )
        shapes = [spec.shape for spec in graph.inputs]
        graph.symbols = size_symbols(shapes, self.inputs.names, self.inputs.dims, self.program.range_constraints)
        _check_sizes(graph)
        check_smallest(graph, _asked_for_one(self.inputs.dims))
        return graph

    # -- inputs and constants ---------------------------------------------------------------------------------------

    def _placeholders(self) -> list[fx.Node]:
        return [n for n in self.graph.nodes if n.op == "placeholder"]

    def _input(self, spec: InputSpec, node: fx.Node) -> Any:
        if spec.kind == InputKind.USER_INPUT:
            return self._user_input(spec, node)
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            return self._constant(str(spec.target), self._tensor(spec), node.meta, spec.kind.name.lower())
        raise CompileError(f"the model holds '{spec.target}', a {spec.kind.name.lower()}, which a package cannot hold")

    def _user_input(self, spec: InputSpec, node: fx.Node) -> Any:
        if isinstance(spec.arg, ConstantArgument):
            return spec.arg.value
        if not isinstance(spec.arg, TensorArgument):
            raise CompileError(f"input '{spec.arg.name}' is not a tensor but changes from call to call; pass a tensor")
        name = self.inputs.names[len(self._placeholders())]
        new = self.graph.placeholder(name)
        new.meta = dict(node.meta)
        self._labels[new] = f"input '{name}'"
        return Tensor(new, outside=True)

    def _tensor(self, spec: InputSpec) -> torch.Tensor:
        target = str(spec.target)
        for store in (self.program.state_dict, self.program.constants, self.program.tensor_constants):
            if isinstance(store.get(target), torch.Tensor):
                return store[target]
        raise CompileError(f"the exported program lacks the values of '{target}'")

    def _constant(self, name: str, tensor: torch.Tensor, meta: Mapping[str, Any], kind: str) -> Tensor:
        check_tensor(tensor, f"'{name}'")
        key = _memory_key(tensor)
        if key not in self._nodes:
            target = _flat_name(name, self.constants)
            self.constants[target] = tensor.detach()
            node = self.graph.get_attr(target)
            node.meta = dict(meta)
            self._labels[node] = f"{kind.replace('constant_tensor', 'constant')} '{user_name(name)}'"
            self._nodes[key] = Tensor(node, outside=True)
        return self._nodes[key]

    def _attribute(self, name: str) -> Tensor:
        tensor = functools.reduce(getattr, name.split("."), self.program.graph_module)
        if not isinstance(tensor, torch.Tensor):
            kind = type(tensor).__name__
            raise CompileError(f"the exported program holds '{name}', a {kind}, which a package cannot hold")
        return self._constant(name, tensor, {"val": tensor}, "constant")

    def _root(self) -> torch.nn.Module:
        root = torch.nn.Module()
        for target, tensor in self.constants.items():
            root.register_buffer(target, tensor)
        return root

    # -- outputs ------------------------------------------------------------------------------------------------------

    def _outputs(self, copier: FunctionalCopy, results: Sequence[Any]) -> tuple[object, list[fx.Node]]:
        leaves: list[object] = []
        nodes: list[fx.Node] = []
        for spec, result in zip(self.program.graph_signature.output_specs, results, strict=True):
            if spec.kind != OutputKind.USER_OUTPUT:
                self._refuse_mutation(spec, result, copier)
            if isinstance(spec.arg, TensorArgument) and isinstance(result, Tensor):
                leaves.append(LEAF)
                nodes.append(copier.value(result))
            elif isinstance(spec.arg, SymIntArgument) and isinstance(result, Tensor):
                raise CompileError(
                    "the model returns a size that changes from call to call as a Python int",
                    details=[where] if (where := place_of(result.node)) else [],
                    hint="Return a tensor, or leave it out: the caller knows the shapes of the outputs.",
                )
            else:
                value = spec.arg.value if isinstance(spec.arg, ConstantArgument) else result
                leaves.append(constant(value, "an output"))
        if not nodes:
            raise CompileError("the model returns no tensor")
        remaining = iter(leaves)
        out_spec = self.program.call_spec.out_spec
        assert out_spec is not None
        return structure(out_spec, lambda: next(remaining)), nodes

    def _refuse_mutation(self, spec: OutputSpec, result: Any, copier: FunctionalCopy) -> None:
        where = place_of(result.node) if isinstance(result, Tensor) else ""
        if spec.kind == OutputKind.BUFFER_MUTATION:
            raise state_error(f"buffer '{user_name(str(spec.target))}'", where)
        if spec.kind == OutputKind.USER_INPUT_MUTATION:
            raise state_error(f"input '{spec.target}'", where)
        kind = spec.kind.name.lower()
        raise CompileError(f"the exported program has an output of kind {kind}: export it for inference")

    def _refusal(self, refused: RefusedNode) -> CompileError:
        where = place_of(refused.node)
        if isinstance(refused, InputWrite):
            return state_error(self._labels.get(refused.target, refused.target.name), where)
        return CompileError(refused.message, details=[where] if where else [], hint=refused.hint)

    def _specs(self, nodes: Sequence[fx.Node], names: Sequence[str]) -> tuple[TensorSpec, ...]:
        result = []
        for node, name in zip(nodes, names, strict=True):
            value = node.meta["val"]
            result.append(TensorSpec(name, value.dtype, tuple(size_of(size) for size in value.shape)))
        return tuple(result)


def _asked_for_one(dims: Sequence[Dims]) -> set[str]:
    """Symbols that the user said in so many words to start at 1."""
    roots: list[Any] = [getattr(dim, "root", dim) for by_axis in dims for dim in by_axis.values()]
    return {root.__name__ for root in roots if hasattr(root, "__name__") and root.min == 1}


def state_error(what: str, where: str) -> CompileError:
    """The refusal of a model that changes a buffer, a parameter or an input."""
    hint = "A package has no state: return the new value instead."
    if what.startswith("input"):
        hint = "Work on a copy: x = x.clone() before the change, or the operator without the trailing underscore."
    elif re.search(r"running_|num_batches", what):
        hint = "This is a norm in training mode: call model.eval() before compiling it."
    return CompileError(f"the model changes its {what}", details=[where] if where else [], hint=hint)


def user_name(name: str) -> str:
    """A parameter's name in the user's model."""
    return name.removeprefix(f"{ROOT}.")


def _memory_key(tensor: torch.Tensor) -> object:
    """Equal for tensors of the same memory, shape and dtype; empty tensors have no memory to share."""
    if tensor.numel() == 0:
        return id(tensor)
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _flat_name(name: str, taken: Mapping[str, object]) -> str:
    flat = re.sub(r"\W", "_", user_name(name))
    flat = flat if flat and not flat[0].isdigit() and not hasattr(torch.nn.Module, flat) else f"c_{flat}"
    unique, n = flat, 1
    while unique in taken:
        unique, n = f"{flat}_{n}", n + 1
    return unique


def _remove_dead(graph: fx.Graph) -> None:
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op in ("call_function", "get_attr"):
            graph.erase_node(node)


def _order_inputs(graph: fx.Graph) -> None:
    """Placeholders first: FX wants them there, and torch.export mixes them with the parameters."""
    first = next(iter(graph.nodes))
    for node in [n for n in graph.nodes if n.op == "placeholder"]:
        if node is first:
            first = first.next
        else:
            first.prepend(node)


def _check_sizes(graph: ModelGraph) -> None:
    """Refuses sizes that depend on the values of tensors: they are known only while the package runs."""
    known = {s.symbol for s in graph.symbols}
    bad: dict[str, None] = {}
    for node in graph.module.graph.nodes:
        for size in _sizes(node.meta.get("val")):
            if size.free_symbols - known:
                bad.setdefault(place_of(node) or node.name)
                known |= size.free_symbols
    if bad:
        raise CompileError(
            "the size of a tensor depends on the values of another",
            details=list(bad),
            hint="Operators such as nonzero, unique and boolean indexing have no fixed output size; use torch.where.",
        )


def _sizes(value: object) -> Iterator[sympy.Expr]:
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        yield value.node.expr
    elif isinstance(value, torch.Tensor):
        for size in value.shape:
            if isinstance(size, torch.SymInt):
                yield size.node.expr
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _sizes(part)


def check_tensor(tensor: torch.Tensor, what: str) -> None:
    """Refuses a tensor without values in dense CPU memory."""
    if tensor.device.type == "meta":
        raise CompileError(f"{what} has no values: it is on the meta device", hint="Load the weights before compiling.")
    if tensor.device.type != "cpu":
        raise CompileError(f"{what} is on {tensor.device}", hint="Move model and inputs to the CPU first: .cpu()")
    if tensor.layout != torch.strided or tensor.is_quantized:
        kind = "quantized" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")
        raise CompileError(f"{what} is a {kind} tensor; only dense ones work")

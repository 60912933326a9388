"""An exported program as a ModelGraph."""

from __future__ import annotations

import functools
import keyword
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)

from ...runtime.errors import CompileError
from ..model.assertions import asked_sizes, settle
from ..model.computed import KEPT, computed_sizes, keep_definers, scalar_tensor
from ..model.control import MUTABLE, with_computed, with_symbols
from ..model.graph import DTYPE_NAMES, ModelGraph, TensorSpec, graph_module
from ..model.leaves import Dims
from ..model.origins import FIXED, FromModel, Origin
from ..model.source_lines import ROOT, place_of
from ..model.symbols import size_of, size_symbols
from .failures import check_dynamic, export_failure, quiet_export
from .functional import (
    SHARED,
    WRITE_A_COPY,
    FunctionalCopy,
    NeedsRetrace,
    RefusedNode,
    Tensor,
    overwrites_copies,
    stops_derivatives,
)
from .result_types import right_types
from .scripts import SCRIPT
from .smallest import check_smallest
from .sparse import NoSparseForm, Sparse, is_sparse, sparse_constant
from .state import Changed, memory_key, with_changes
from .tensor_formats import refuse_format
from .trees import LEAF, constant, leaf_names, structure

__all__ = ["ProgramInputs", "check_tensor", "flat_name", "import_program", "replaced_error", "user_name"]


#: numbers that the model returns, each as a tensor of one element
_NUMBERS: dict[type, tuple[str, torch.dtype]] = {
    SymIntArgument: ("int", torch.int64),
    SymFloatArgument: ("float", torch.float64),
    SymBoolArgument: ("bool", torch.bool),
}


@dataclass(frozen=True)
class _Outside:
    """A tensor from outside of the graph: its node, its name, and of a constant its value."""

    node: fx.Node
    name: str
    initial: torch.Tensor | None = None


@dataclass(frozen=True)
class ProgramInputs:
    """The tensor inputs of a program, what the user said about their sizes, and the structure of all arguments.

    differentiated: the graph keeps what stops derivatives.
    not_for_one: torch's symbols that have to be 2 at least, each with the line that says so.
    """

    names: list[str]
    examples: tuple[torch.Tensor, ...]
    dims: list[Dims]
    tree: object
    differentiated: bool = False
    not_for_one: Mapping[str, str] = field(default_factory=dict)


def _check_copies(program: ExportedProgram) -> None:
    """Refuses what torch's own functionalisation gets wrong."""
    graphs = (m.graph for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule))
    wrong = next((node for graph in graphs for node in graph.nodes if overwrites_copies(node)), None)
    if wrong is not None:
        raise CompileError(SHARED, hint=WRITE_A_COPY, details=[place_of(wrong)])


def import_program(name: str, program: ExportedProgram, inputs: ProgramInputs) -> ModelGraph:
    """The program as a ModelGraph; torch's own functionalisation first where ours cannot say it."""
    dtype, reason = _autocast_around(program), ""
    try:
        if dtype is None:
            return _Importer(name, program, inputs).run()
    except NeedsRetrace as needs:
        reason = str(needs)
    _check_copies(program)
    if inputs.differentiated:
        _check_stops(program, reason)
    around = torch.autocast("cpu", dtype) if dtype is not None else nullcontext()
    with torch.no_grad(), quiet_export(), around, _whole_functionalised():
        _round_operands(program.graph_module, dtype)
        try:
            functional = program.run_decompositions({})
        except Exception as error:  # a write to elements that lie over each other
            if "is not functional" in str(error) and reason:
                raise CompileError(
                    f"a branch or loop whose body writes stands beside {reason}, which cannot be compiled together",
                    hint="Write through slices, select, transposes or indices, or to a copy: x.clone().",
                ) from error
            raise export_failure(error, inputs.names, lambda: program.run_decompositions({})) from error
    return _Importer(name, functional, inputs).run()


def _check_stops(program: ExportedProgram, reason: str) -> None:
    """torch's own functionalisation drops what stops derivatives."""
    graphs = (m.graph for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule))
    for node in (n for graph in graphs for n in graph.nodes):
        if stops_derivatives(node):
            raise CompileError(
                f"a model that stops derivatives beside {reason or 'autocast'} cannot be trained",
                details=[place_of(node)],
                hint="Write that part without in-place operators, or without detach() and torch.no_grad().",
            )


def _whole_functionalised() -> AbstractContextManager[Any]:
    """torch.export's auto_functionalized gets the tensors that an operator writes to, not parts of others."""
    from torch._export import config

    patched: AbstractContextManager[Any] = config.patch(enable_auto_functionalized_v2_for_export=False)
    return patched


#: operators that torch defines by matrix products, whose operands autocast rounds; whole, they escape it
_OF_PRODUCTS = (
    torch.ops.aten.einsum.default,
    torch.ops.aten.tensordot.default,
    torch.ops.aten.inner.default,
    torch.ops.aten.linalg_multi_dot.default,
)
_PRODUCTS = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "conv1d", "conv2d", "conv3d",
             "scaled_dot_product_attention")  # fmt: skip


def _round_operands(root: fx.GraphModule, dtype: torch.dtype | None) -> None:
    """einsum(x, y) under autocast     ->     einsum(x.to(bf16), y.to(bf16)), as its products would take them"""
    for node in list(root.graph.nodes):
        if str(node.target) == "wrap_with_autocast":
            _, inner, enabled, _, body = node.args[:5]
            _round_operands(getattr(root, body.target), inner if enabled else None)
        operands: list[fx.Node] = []
        fx.map_arg(node.args, operands.append)
        if dtype is None or node.target not in _OF_PRODUCTS or len(operands) < 2:
            continue
        with root.graph.inserting_before(node):
            for operand in node.all_input_nodes:
                if operand.meta["val"].dtype == torch.float32:
                    cast = root.graph.call_function(torch.ops.aten.to.dtype, (operand, dtype))
                    cast.meta = {**node.meta, "val": operand.meta["val"].to(dtype)}
                    node.replace_input_with(operand, cast)
        root.recompile()


def _autocast_around(program: ExportedProgram) -> torch.dtype | None:
    """The type of the autocast that the whole program was exported under, which its graph does not say: products of
    float32 that give another type."""
    for node in program.graph.nodes:
        if node.op != "call_function" or getattr(node.target, "_opname", "") not in _PRODUCTS:
            continue
        operands = {n.meta["val"].dtype for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)}
        if operands == {torch.float32} and node.meta["val"].dtype != torch.float32:
            return node.meta["val"].dtype
    return None


class _Importer:
    """Builds the ModelGraph of one exported program."""

    def __init__(self, name: str, program: ExportedProgram, inputs: ProgramInputs) -> None:
        self.name, self.program, self.inputs = name, program, inputs
        self.graph = fx.Graph()
        self.constants: dict[str, torch.Tensor] = {}
        self._nodes: dict[object, Tensor] = {}  # identity of the memory -> its get_attr
        self._outside: dict[Tensor, _Outside] = {}
        self._targets: dict[Tensor, str] = {}
        self._by_target: dict[str, Tensor] = {}
        self._matrices: dict[str, Sparse] = {}
        self._names: dict[Tensor, list[str]] = {}  # of tensors of the model's state_dict()

    def run(self) -> ModelGraph:
        signature = self.program.graph_signature
        right_types(self.program.graph_module)
        placeholders = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        bound = [self._input(spec, node) for spec, node in zip(signature.input_specs, placeholders, strict=True)]
        stops = self.inputs.differentiated
        copier = FunctionalCopy(self.graph, constants=self.constants, part=self._part, stops=stops)
        try:
            results = copier.copy(self.program.graph_module, bound, self._attribute)
        except RefusedNode as refused:
            raise self._refusal(refused) from None
        out_tree, nodes = self._outputs(copier, results)
        changes = self._changes(copier)
        nodes += [change.after for change in changes]
        if not nodes:
            raise CompileError("the model returns no tensor and changes none")
        names = [*leaf_names(out_tree, "output"), *(change.name for change in changes)]
        self.graph.output(tuple(nodes))
        inputs = self._specs(self._placeholders(), self.inputs.names)
        check_dynamic([spec.shape for spec in inputs], self.inputs.names, self.inputs.dims)
        ranges = self.program.range_constraints
        symbols = size_symbols([spec.shape for spec in inputs], self.inputs.names, self.inputs.dims, ranges)
        keep_definers(self.graph, asked_sizes(copier.assertions))
        _remove_dead(self.graph)
        computed = computed_sizes(list(self.graph.nodes), {s.symbol for s in symbols}, ranges)
        checks = settle(copier.assertions, computed)
        _remove_dead(self.graph)
        _order_inputs(self.graph)
        read = _read(self.graph)
        regions = {name: region for name, region in copier.regions.items() if name in read}
        module = graph_module(self._root(regions), self.graph, "Model")
        used = _read(self.graph)
        graph = ModelGraph(
            name=self.name,
            module=module,
            constants={target: tensor for target, tensor in self.constants.items() if target in used},
            inputs=inputs,
            outputs=self._specs(nodes, names),
            symbols=symbols,
            in_tree=self.inputs.tree,
            out_tree=out_tree,
            examples=self.inputs.examples,
            regions=regions,
            computed=computed,
            checks=checks,
            origins=self._origins(),
        )
        check_smallest(graph, _asked_for_one(self.inputs.dims), self.inputs.not_for_one)
        with_symbols(graph, graph.symbols)
        with_computed(graph, {*(s.symbol for s in symbols), *(c.symbol for c in computed)}, ranges)
        return with_changes(graph, changes)

    # -- inputs and constants ---------------------------------------------------------------------------------------

    def _placeholders(self) -> list[fx.Node]:
        return [n for n in self.graph.nodes if n.op == "placeholder"]

    def _input(self, spec: InputSpec, node: fx.Node) -> Any:
        if spec.kind == InputKind.USER_INPUT:
            return self._user_input(spec, node)
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            found = self._tensor(spec)
            if is_sparse(found):
                return self._sparse(str(spec.target), found)
            tensor = self._constant(str(spec.target), found, node.meta, spec.kind.name.lower())
            if spec.kind == InputKind.PARAMETER or spec.persistent:
                self._names.setdefault(tensor, []).append(user_name(str(spec.target)))
            self._by_target[str(spec.target)] = tensor
            return tensor
        raise self._held(spec)

    def _held(self, spec: InputSpec) -> CompileError:
        if getattr(spec.arg, "class_fqn", "") == "torch._C.Generator":
            return CompileError(
                "the model draws random numbers from a torch.Generator of its own",
                hint="Leave out generator=, and give calls of the package their seed: m(x, seed=3).",
            )
        kind = spec.kind.name.lower()
        return CompileError(f"the model holds '{spec.target}', a {kind}, which a package cannot hold")

    def _user_input(self, spec: InputSpec, node: fx.Node) -> Any:
        if isinstance(spec.arg, ConstantArgument):
            return spec.arg.value
        if not isinstance(spec.arg, TensorArgument):
            raise CompileError(f"input '{spec.arg.name}' is not a tensor but changes from call to call; pass a tensor")
        name = self.inputs.names[len(self._placeholders())]
        new = self.graph.placeholder(name)
        new.meta = dict(node.meta)
        tensor = self._by_target[spec.arg.name] = Tensor(new, outside=True)
        self._outside[tensor] = _Outside(new, name)
        return tensor

    def _tensor(self, spec: InputSpec) -> torch.Tensor:
        target = str(spec.target)
        for store in (self.program.state_dict, self.program.constants, self.program.tensor_constants):
            if isinstance(store.get(target), torch.Tensor):
                return store[target]
        raise CompileError(f"the exported program lacks the values of '{target}'")

    def _constant(self, name: str, tensor: torch.Tensor, meta: Mapping[str, Any], kind: str) -> Tensor:
        refuse_format(tensor, user_name(name))
        check_tensor(tensor, f"'{name}'")
        key = memory_key(tensor)
        if key not in self._nodes:
            target = flat_name(name, self.constants)
            self.constants[target] = tensor.detach()
            node = self.graph.get_attr(target)
            node.meta = {**meta, **({} if kind == "parameter" else {MUTABLE: True})}
            self._nodes[key] = outside = Tensor(node, outside=True)
            self._outside[outside] = _Outside(node, user_name(name), tensor.detach())
            self._targets[outside] = target
        return self._nodes[key]

    def _origins(self) -> dict[str, Origin]:
        """Of all constants, also of those that nothing reads."""
        found: dict[str, Origin] = {}
        for tensor, own in self._outside.items():
            if own.initial is not None:
                names = self._names.get(tensor)
                found[self._targets[tensor]] = FIXED if names is None else FromModel(tuple(names))
        return found

    def _sparse(self, name: str, tensor: torch.Tensor) -> Sparse:
        """A sparse matrix of the model, whose parts are constants."""
        if name not in self._matrices:

            def part(own: str, value: torch.Tensor) -> Tensor:
                return self._constant(f"{name}.{own}", value, {"val": value}, "parameter")

            try:
                self._matrices[name] = sparse_constant(tensor, part)
            except NoSparseForm as refused:
                raise CompileError(f"'{name}' of the model is {refused}, which cannot be compiled") from None
        return self._matrices[name]

    def _attribute(self, name: str) -> Tensor:
        tensor = functools.reduce(getattr, name.split("."), self.program.graph_module)
        if not isinstance(tensor, torch.Tensor):
            kind = type(tensor).__name__
            raise CompileError(f"the exported program holds '{name}', a {kind}, which a package cannot hold")
        return self._constant(name, tensor, {"val": tensor}, "constant")

    def _part(self, whole: Tensor, node: fx.Node) -> Tensor:
        """One of the tensors that a quantised weight is made of, as a constant of its own."""
        own, attribute = self._outside.get(whole), str(node.args[1])
        if own is None or own.initial is None:
            raise RefusedNode(node, "the model looks into a tensor that is made of several, and no weight")
        return self._constant(f"{own.name}.{attribute}", getattr(own.initial, attribute), node.meta, "buffer")

    def _root(self, regions: Mapping[str, ModelGraph]) -> torch.nn.Module:
        root = torch.nn.Module()
        for target, tensor in self.constants.items():
            root.register_buffer(target, tensor)
        for target, region in regions.items():
            root.add_module(target, region.module)
        return root

    # -- outputs ------------------------------------------------------------------------------------------------------

    def _outputs(self, copier: FunctionalCopy, results: Sequence[Any]) -> tuple[object, list[fx.Node]]:
        leaves: list[object] = []
        nodes: list[fx.Node] = []
        for spec, result in zip(self.program.graph_signature.output_specs, results, strict=True):
            if spec.kind != OutputKind.USER_OUTPUT:
                self._note_change(spec, result)
            elif isinstance(spec.arg, TensorArgument) and isinstance(result, Tensor):
                leaves.append(LEAF)
                nodes.append(copier.value(result))
            elif isinstance(spec.arg, tuple(_NUMBERS)) and isinstance(result, Tensor):
                name, dtype = _NUMBERS[type(spec.arg)]
                leaves.append({"scalar": name})
                nodes.append(scalar_tensor(self.graph, result.node, dtype))
            else:
                value = spec.arg.value if isinstance(spec.arg, ConstantArgument) else result
                leaves.append(constant(value, "an output"))
        remaining = iter(leaves)
        out_spec = self.program.call_spec.out_spec
        assert out_spec is not None
        return structure(out_spec, lambda: next(remaining)), nodes

    def _note_change(self, spec: OutputSpec, result: Any) -> None:
        """torch's own functionalisation returns what the program changes as further results."""
        changed = self._by_target.get(str(spec.target))
        if changed is None or not isinstance(result, Tensor):
            kind = spec.kind.name.lower()
            raise CompileError(f"the exported program has an output of kind {kind}: export it for inference")
        changed.node, changed.stale = result.node, False

    def _changes(self, copier: FunctionalCopy) -> list[Changed]:
        """What a call changes, in the order of inputs and constants."""
        found = []
        for tensor, own in self._outside.items():
            after = copier.value(tensor)
            if after is not own.node:
                found.append(Changed(own.node, after, own.name, own.initial))
        return sorted(found, key=lambda change: change.initial is not None)  # arguments first

    def _refusal(self, refused: RefusedNode) -> CompileError:
        where = place_of(refused.node)
        return CompileError(refused.message, details=[where] if where else [], hint=refused.hint)

    def _specs(self, nodes: Sequence[fx.Node], names: Sequence[str]) -> tuple[TensorSpec, ...]:
        result = []
        for node, name in zip(nodes, names, strict=True):
            value = node.meta["val"]
            if value.dtype not in DTYPE_NAMES:
                wanted = str(value.dtype).removeprefix("torch.")
                raise CompileError(f"{name} is a tensor of {wanted}, which a package cannot hold")
            result.append(TensorSpec(name, value.dtype, tuple(size_of(size) for size in value.shape)))
        return tuple(result)


def _asked_for_one(dims: Sequence[Dims]) -> set[str]:
    """Symbols that the user said in so many words to start at 1."""
    roots: list[Any] = [getattr(dim, "root", dim) for by_axis in dims for dim in by_axis.values()]
    return {root.__name__ for root in roots if hasattr(root, "__name__") and root.min == 1}


def replaced_error(name: str) -> CompileError:
    """The refusal of a model that puts a tensor of another kind in the place of a buffer."""
    return CompileError(
        f"the model replaces its buffer '{name}' by a tensor of another shape or dtype",
        hint="State has one shape: register the buffer at its full size, and write to a part of it.",
    )


def user_name(name: str) -> str:
    """A parameter's name in the user's model."""
    return name.removeprefix(f"{ROOT}.").replace(f"{SCRIPT}.", "")


def flat_name(name: str, taken: Mapping[str, object]) -> str:
    """An identifier for a tensor of the model that is none of `taken`, nor what a module has anyway."""
    flat = re.sub(r"\W", "_", user_name(name))
    usable = flat.isidentifier() and not keyword.iskeyword(flat) and not hasattr(torch.nn.Module, flat)
    flat = flat if usable else f"c_{flat}"
    unique, n = flat, 1
    while unique in taken:
        unique, n = f"{flat}_{n}", n + 1
    return unique


def _read(graph: fx.Graph) -> set[str]:
    """What get_attr nodes name: constants, and bodies of control flow."""
    return {str(n.target) for n in graph.nodes if n.op == "get_attr"}


def _remove_dead(graph: fx.Graph) -> None:
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op in ("call_function", "get_attr") and not node.meta.get(KEPT):
            graph.erase_node(node)


def _order_inputs(graph: fx.Graph) -> None:
    """Placeholders first: FX wants them there, and torch.export mixes them with the parameters."""
    first = next(iter(graph.nodes))
    for node in [n for n in graph.nodes if n.op == "placeholder"]:
        if node is first:
            first = first.next
        else:
            first.prepend(node)


def check_tensor(tensor: torch.Tensor, what: str, sparse: bool = False) -> None:
    """Refuses a tensor without values in CPU memory, dense unless it may be sparse."""
    if tensor.device.type == "meta":
        raise CompileError(f"{what} has no values: it is on the meta device", hint="Load the weights before compiling.")
    if tensor.device.type != "cpu":
        raise CompileError(f"{what} is on {tensor.device}", hint="Move model and inputs to the CPU first: .cpu()")
    if (tensor.layout != torch.strided and not sparse) or tensor.is_quantized:
        kind = "quantized" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")
        raise CompileError(f"{what} is a {kind} tensor; only dense ones work")

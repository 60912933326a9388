"""torch.export, and its program as a ModelGraph."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    SymIntArgument,
    TensorArgument,
)
from torch.utils import _pytree as pytree

from ...runtime.errors import CompileError
from .examples import dynamic_dims
from .failures import export_failure, quiet_export
from .functional import FunctionalCopy, InputWrite, NeedsRetrace, RefusedNode, Tensor
from .graph import ModelGraph, TensorSpec
from .leaves import Dims, Leaf, bind, leaves_of, shapes_by_leaf
from .sizes import resize_examples
from .source_lines import ROOT, origin
from .symbols import size_of, size_symbols
from .trees import LEAF, constant, leaf_names, structure

__all__ = ["CaptureRequest", "capture", "capture_request"]

Model = torch.nn.Module | Callable[..., Any] | ExportedProgram


@dataclass(frozen=True)
class CaptureRequest:
    """One entry point to capture.

    Attributes:
        model: an nn.Module, a callable, or an ExportedProgram.
        args, kwargs: example inputs; may be empty for an ExportedProgram that has its own.
        dynamic_shapes: in torch.export's form, or None.
        dynamic: dimensions in the command line's form ("x:0=batch(1..64)"), added to dynamic_shapes.
        name: the entry point's name.
    """

    model: Model
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None
    dynamic: tuple[str, ...] = ()
    name: str = "forward"


def capture(
    model: Model,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    name: str = "forward",
) -> ModelGraph:
    """Exports a model for these example inputs; see CaptureRequest. Raises CompileError."""
    return capture_request(CaptureRequest(model, tuple(args), dict(kwargs or {}), dynamic_shapes, (), name))


def capture_request(request: CaptureRequest) -> ModelGraph:
    """The graph of one entry point. Raises CompileError with the user's line where there is one."""
    if isinstance(request.model, ExportedProgram):
        return _from_program(request, request.model)
    arguments = bind(forward_of(request.model), request.args, request.kwargs)
    leaves = leaves_of(arguments)
    _check_tensors(leaves, request.model)
    dims = shapes_by_leaf(arguments, _collected(request))
    dims = dynamic_dims(arguments, dims, request.dynamic) if request.dynamic else dims
    values = resize_examples(leaves, dims)
    _, spec = pytree.tree_flatten((request.args, dict(request.kwargs)))

    tensors = [i for i, leaf in enumerate(leaves) if leaf.is_tensor]
    names = _unique([leaves[i].name for i in tensors])
    call = _Call(request.model, values, spec, tensors)
    examples = tuple(values[i] for i in tensors)
    program = _export(call, examples, [dims[i] for i in tensors], names)
    in_leaves = iter([LEAF if leaf.is_tensor else constant(leaf.value, f"input '{leaf.name}'") for leaf in leaves])
    inputs = _Inputs(names, examples, [dims[i] for i in tensors], structure(spec, lambda: next(in_leaves)))
    return _import(request.name, program, inputs)


@dataclass(frozen=True)
class _Inputs:
    names: list[str]
    examples: tuple[torch.Tensor, ...]
    dims: list[Dims]
    tree: object


def forward_of(model: Model) -> Callable[..., Any]:
    """What a call of the model calls: its forward, or the callable itself."""
    if isinstance(model, torch.nn.Module):
        return model.forward
    if not callable(model):
        raise CompileError(
            f"cannot compile a {type(model).__name__}; it has to be an nn.Module, a function or an ExportedProgram"
        )
    return model


class _Call(torch.nn.Module):
    """The model as a function of its tensor inputs alone: everything else in the arguments is a constant."""

    def __init__(self, model: Model, values: Sequence[Any], spec: pytree.TreeSpec, tensors: Sequence[int]) -> None:
        super().__init__()
        if isinstance(model, torch.nn.Module):
            setattr(self, ROOT, model)
        else:
            for i, owner in enumerate(_modules_of(model)):
                setattr(self, f"owner{i}" if i else ROOT, owner)
        self._call = [model]  # in a list: not a submodule a second time
        self._values, self._spec, self._tensors = list(values), spec, tuple(tensors)

    def forward(self, *tensors: torch.Tensor) -> Any:
        values = list(self._values)
        for i, tensor in zip(self._tensors, tensors, strict=True):
            values[i] = tensor
        args, kwargs = pytree.tree_unflatten(values, self._spec)
        return self._call[0](*args, **kwargs)


def _modules_of(function: Any) -> list[torch.nn.Module]:
    """The modules whose parameters a function uses: its object, what it closes over, what it names globally."""
    found: dict[int, torch.nn.Module] = {}

    def visit(value: Any, depth: int) -> None:
        if isinstance(value, torch.nn.Module):
            found.setdefault(id(value), value)
        elif isinstance(value, functools.partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                visit(part, depth)
        elif inspect.ismethod(value):
            visit(value.__self__, depth)
            visit(value.__func__, depth)
        elif inspect.isfunction(value) and depth < 3:
            used = inspect.getclosurevars(value)
            for part in (*used.nonlocals.values(), *used.globals.values()):
                visit(part, depth + 1)
        elif hasattr(value, "__dict__") and depth < 2 and not inspect.isclass(value) and not inspect.ismodule(value):
            for part in vars(value).values():
                visit(part, depth + 2)
            visit(getattr(type(value), "__call__", None), depth + 2)

    visit(function, 0)
    return list(found.values())


def _collected(request: CaptureRequest) -> Any:
    shapes = request.dynamic_shapes
    if isinstance(shapes, torch.export.ShapesCollection):
        return shapes.dynamic_shapes(request.model, request.args, dict(request.kwargs))
    return shapes


def _check_tensors(leaves: Sequence[Leaf], model: Model) -> None:
    for leaf in leaves:
        if leaf.is_tensor:
            _check_tensor(leaf.value, f"example input '{leaf.name}'")
        else:
            constant(leaf.value, f"example input '{leaf.name}'")
    if isinstance(model, torch.nn.Module):
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            _check_tensor(tensor, f"'{name}' of the model")


def _check_tensor(tensor: torch.Tensor, what: str) -> None:
    if tensor.device.type == "meta":
        raise CompileError(f"{what} has no values: it is on the meta device", hint="Load the weights before compiling.")
    if tensor.device.type != "cpu":
        raise CompileError(f"{what} is on {tensor.device}", hint="Move model and inputs to the CPU first: .cpu()")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise CompileError(f"{what} is a {'quantized' if tensor.is_quantized else tensor.layout} tensor; only dense ones work")


def _unique(names: Sequence[str]) -> list[str]:
    result: list[str] = []
    for name in names:
        unique, n = name or "input", 1
        while unique in result:
            unique, n = f"{name}_{n}", n + 1
        result.append(unique)
    return result


def _export(
    call: torch.nn.Module, examples: Sequence[torch.Tensor], dims: Sequence[Dims], names: Sequence[str]
) -> ExportedProgram:
    shapes = (tuple(d or None for d in dims),) if any(dims) else None

    def export() -> ExportedProgram:
        with torch.no_grad(), quiet_export():
            return torch.export.export(call, tuple(examples), dynamic_shapes=shapes, strict=False)

    try:
        return export()
    except Exception as error:
        failure = export_failure(error, names, export)
    raise failure


def _from_program(request: CaptureRequest, program: ExportedProgram) -> ModelGraph:
    if request.dynamic_shapes or request.dynamic:
        raise CompileError("the sizes of an exported program are fixed by its export; export it again with other dynamic_shapes")
    args, kwargs = request.args, dict(request.kwargs)
    if not args and not kwargs:
        if program.example_inputs is None:
            raise CompileError("the exported program has no example inputs; give args")
        args, kwargs = program.example_inputs
    spec = program.call_spec.in_spec
    values, given = pytree.tree_flatten((tuple(args), dict(kwargs)))
    if spec is not None and given != spec:
        raise CompileError("the example inputs do not have the structure that the program was exported with")
    user = [s for s in program.graph_signature.input_specs if s.kind == InputKind.USER_INPUT]
    tensors = [i for i, s in enumerate(user) if isinstance(s.arg, TensorArgument)]
    names = _unique([user[i].arg.name for i in tensors])
    examples = tuple(values[i] for i in tensors)
    for name, example in zip(names, examples, strict=True):
        if not isinstance(example, torch.Tensor):
            raise CompileError(f"example input '{name}' is a {type(example).__name__}, not a tensor")
        _check_tensor(example, f"example input '{name}'")
    leaves = iter(
        [LEAF if i in tensors else constant(value, f"example input {i}") for i, value in enumerate(values)]
    )
    tree = structure(given, lambda: next(leaves))
    return _import(request.name, program, _Inputs(names, examples, [{} for _ in names], tree))


def _import(name: str, program: ExportedProgram, inputs: _Inputs) -> ModelGraph:
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
        if isinstance(target, HigherOrderOperator) and not str(target).startswith(("wrap_with_set_grad", "wrap_with_autocast")):
            where = origin(node)
            found.append(f"torch.ops.higher_order.{target}  {where or ''}".rstrip())
    if found:
        raise CompileError(f"cannot compile {len(found)} operator{'s' * (len(found) > 1)}", details=found)


class _Importer:
    """Builds the ModelGraph of one exported program."""

    def __init__(self, name: str, program: ExportedProgram, inputs: _Inputs) -> None:
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
        _check_tensor(tensor, f"'{name}'")
        key = _memory_key(tensor)
        if key not in self._nodes:
            target = _flat_name(name, self.constants)
            self.constants[target] = tensor.detach()
            node = self.graph.get_attr(target)
            node.meta = dict(meta)
            self._labels[node] = f"{kind.replace('constant_tensor', 'constant')} '{_user_name(name)}'"
            self._nodes[key] = Tensor(node, outside=True)
        return self._nodes[key]

    def _attribute(self, name: str) -> Tensor:
        tensor = functools.reduce(getattr, name.split("."), self.program.graph_module)
        if not isinstance(tensor, torch.Tensor):
            raise CompileError(f"the exported program holds '{name}', a {type(tensor).__name__}, which a package cannot hold")
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
                    details=[str(origin(result.node) or "")],
                    hint="Return a tensor, or leave it out: the caller knows the shapes of the outputs.",
                )
            else:
                leaves.append(constant(spec.arg.value if isinstance(spec.arg, ConstantArgument) else result, "an output"))
        if not nodes:
            raise CompileError("the model returns no tensor")
        remaining = iter(leaves)
        out_spec = self.program.call_spec.out_spec
        assert out_spec is not None
        return structure(out_spec, lambda: next(remaining)), nodes

    def _refuse_mutation(self, spec: Any, result: Any, copier: FunctionalCopy) -> None:
        where = origin(result.node) if isinstance(result, Tensor) else None
        if spec.kind == OutputKind.BUFFER_MUTATION:
            raise _state_error(f"buffer '{_user_name(spec.target)}'", str(where or ""))
        if spec.kind == OutputKind.USER_INPUT_MUTATION:
            raise _state_error(f"input '{spec.target}'", str(where or ""))
        raise CompileError(f"the exported program has an output of kind {spec.kind.name.lower()}: export it for inference")

    def _refusal(self, refused: RefusedNode) -> CompileError:
        where = origin(refused.node)
        if isinstance(refused, InputWrite):
            return _state_error(self._labels.get(refused.target, refused.target.name), str(where or ""))
        return CompileError(refused.message, details=[str(where)] if where else [], hint=refused.hint)

    def _specs(self, nodes: Sequence[fx.Node], names: Sequence[str]) -> tuple[TensorSpec, ...]:
        result = []
        for node, name in zip(nodes, names, strict=True):
            value = node.meta["val"]
            result.append(TensorSpec(name, value.dtype, tuple(size_of(size) for size in value.shape)))
        return tuple(result)


def _state_error(what: str, where: str) -> CompileError:
    hint = "A package has no state: return the new value instead."
    if what.startswith("input"):
        hint = "Work on a copy: x = x.clone() before the change, or the operator without the trailing underscore."
    elif re.search(r"running_|num_batches", what):
        hint = "This is a norm in training mode: call model.eval() before compiling it."
    return CompileError(f"the model changes its {what}", details=[where] if where else [], hint=hint)


def _user_name(name: str) -> str:
    """A parameter's name in the user's model."""
    return name.removeprefix(f"{ROOT}.")


def _memory_key(tensor: torch.Tensor) -> object:
    """Equal for tensors of the same memory, shape and dtype; empty tensors have no memory to share."""
    if tensor.numel() == 0:
        return id(tensor)
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _flat_name(name: str, taken: Mapping[str, object]) -> str:
    flat = re.sub(r"\W", "_", _user_name(name))
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
                bad.setdefault(str(origin(node) or node.name))
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

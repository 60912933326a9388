"""Capture: torch.export of the model, and what makes its result fit for us."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.fx.experimental import _config
from torch.utils import _pytree as pytree

from ...runtime.errors import CompileError, Error
from ..model.graph import ModelGraph
from ..model.leaves import Dims, bind, leaves_of, shapes_by_leaf
from ..model.random_operators import draws_random_numbers
from ..model.sizes import Place, resize_examples, shared_sizes, traced_dims, without_hints_of_one
from ..model.source_lines import ROOT, recording_lines
from .assumptions import Asked, assumptions_hold, holds_for_one
from .bodies import shared_operands
from .by_shape import ByShape
from .caches import register_caches
from .casts import noting_casts, symbolic_casts
from .containers import changed_containers
from .detections import detections_of_all_sizes
from .dynamic_shapes import check_additional, limit_notes, plain_shapes
from .examples import dynamic_dims
from .failures import export_failure, fixes_a_size, listening, quiet_export, whole_suggestions
from .filled import filled
from .library_shapes import library_shapes
from .model_tensors import apart_from, check_leaves, check_model
from .pools import pools_of_all_sizes
from .program import ProgramInputs, check_tensor, import_program, replaced_error, user_name
from .running_statistics import counted_averages
from .scripts import Scripted, signature_of, unscripted
from .second_ways import Captured, levels_closed, second_ways
from .sizes_of_one import not_for_one, noting_questions
from .specialise import fix_sizes
from .transformers import spelled_out_transformers
from .trees import LEAF, constant, structure
from .trial import run_once, sizes_of
from .triton_calls import tracing_kernels

__all__ = ["CaptureRequest", "capture", "capture_request", "forward_of"]

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
        fixed: dynamic sizes by name that this variant of the entry point `variant_of` has as constants.
        differentiated: the graph keeps what stops derivatives: detach(), torch.no_grad().
    """

    model: Model
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None
    dynamic: tuple[str, ...] = ()
    name: str = "forward"
    fixed: Mapping[str, int] = field(default_factory=dict)
    variant_of: str = ""
    differentiated: bool = False


def capture(
    model: Model,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    name: str = "forward",
) -> ModelGraph:
    """Exports a model for these example inputs; see CaptureRequest. Raises CompileError."""
    return capture_request(CaptureRequest(model, tuple(args), dict(kwargs or {}), dynamic_shapes, (), name))


#: of torch's generator during the export; a model that sets another one is found by it
_OWN_SEED = 0x6D79_6363_7365_6564


def capture_request(request: CaptureRequest) -> ModelGraph:
    """The graph of one entry point. Raises CompileError with the user's line where there is one."""
    if isinstance(request.model, ExportedProgram):
        return _from_program(request, request.model)
    register_caches()
    arguments = bind(forward_of(request.model), request.args, request.kwargs)
    leaves = leaves_of(arguments)
    check_leaves(leaves)
    check_model(request.model)
    shapes = plain_shapes(request.dynamic_shapes, request.model, request.args, request.kwargs)
    dims = shapes_by_leaf(arguments, shapes)
    dims = dynamic_dims(arguments, dims, request.dynamic) if request.dynamic else dims
    _, spec = pytree.tree_flatten((request.args, dict(request.kwargs)))
    tensors = [i for i, leaf in enumerate(leaves) if leaf.is_tensor]
    names = _unique([leaves[i].name for i in tensors])

    def export(dims: list[Dims], larger: bool = False) -> tuple[Captured, tuple[torch.Tensor, ...], list[Dims], bool]:
        """The program, the examples and dimensions that it is for, and whether the model sets a seed."""
        values = apart_from(resize_examples(leaves, dims, larger), _owners(request.model))
        if request.fixed:
            values, dims = fix_sizes(leaves, values, dims, request.fixed)
        examples, own = tuple(values[i] for i in tensors), [dims[i] for i in tensors]
        call = _Call(request.model, values, spec, tensors, shared_sizes(own), _Notes())
        apart = unscripted([owner for owner in call.children() if not isinstance(owner, Scripted)])
        with apart, _unchanged(call.plain_tensors()), torch.random.fork_rng(devices=[]):
            torch.manual_seed(_OWN_SEED)
            given = [leaves[i].value for i in tensors]
            with torch.set_grad_enabled(request.differentiated):
                return _export(call, given, examples, own, names), examples, own, torch.initial_seed() != _OWN_SEED

    def imported(dims: list[Dims], larger: bool = False) -> tuple[ModelGraph, tuple[str, ...], bool]:
        captured, examples, own, seeds = export(dims, larger)
        assert captured.program is not None, "_export raises when nothing works"
        in_leaves = iter([LEAF if x.is_tensor else constant(x.value, f"input '{x.name}'") for x in leaves])
        tree: Any = structure(spec, lambda: next(in_leaves))
        tree["tuple"][0]["names"] = [argument.name for argument in arguments[: len(request.args)]]
        inputs = ProgramInputs(names, examples, own, tree, request.differentiated, captured.not_for_one)
        graph = import_program(request.name, captured.program, inputs)
        return graph, captured.notes, seeds

    try:
        graph, found, seeds = imported(dims)
    except CompileError as error:
        without = without_hints_of_one(leaves, dims)  # they may have to stay 1
        if without == dims and not fixes_a_size(error):
            raise
        try:
            graph, found, seeds = imported(without, larger=without == dims)
        except CompileError:
            if without == dims:
                raise error from None
            raise
    if seeds and draws_random_numbers(graph):
        raise CompileError(
            "the model calls torch.manual_seed: what it draws then would not be what the package draws",
            hint="Take it out of forward(), and give calls of the package their seed: m(x, seed=3).",
        )
    check_additional(request.dynamic_shapes, forward_of(request.model), graph)
    notes = (*limit_notes(dims), *found)
    return replace(graph, variant_of=request.variant_of, fixed=request.fixed, notes=notes)


def forward_of(model: Model) -> Callable[..., Any]:
    """What a call of the model calls: its forward, or the callable itself."""
    forward = model.forward if isinstance(model, torch.nn.Module) else model
    if (signature := signature_of(forward)) is not None:

        def script(*args: Any, **kwargs: Any) -> Any:
            return forward(*args, **kwargs)

        script.__signature__ = signature  # type: ignore[attr-defined]
        return script
    if isinstance(model, torch.nn.Module):
        return model.forward
    if not callable(model):
        raise CompileError(
            f"cannot compile a {type(model).__name__}; it has to be an nn.Module, a function or an ExportedProgram"
        )
    try:
        inspect.signature(model)
    except ValueError:  # torch's own functions, such as torch.linalg.inv, have none
        return lambda *args, **kwargs: model(*args, **kwargs)
    return model


class _Notes:
    """What a trace of the model did besides computing (torch.export resets attributes of modules, but not this)."""

    def __init__(self) -> None:
        self.replaced: list[str] = []  # buffers and tensor attributes that forward assigned to
        self.assigned: list[str] = []  # those of them whose new value does not fit into their memory
        self.containers: list[str] = []  # places in dicts and lists of arguments that forward changed

    def clear(self) -> None:
        """For another trace."""
        for kept in (self.replaced, self.assigned, self.containers):
            kept.clear()

    def warnings(self) -> tuple[str, ...]:
        """What the package does not do for its caller."""
        if not self.containers:
            return ()
        places = ", ".join(self.containers)
        return (f"the model changes {places}: calls of the package leave the caller's dicts and lists as they are",)


class _Call(torch.nn.Module):
    """The model as a function of its tensor inputs alone: everything else in the arguments is a constant."""

    def __init__(
        self,
        model: Model,
        values: Sequence[Any],
        spec: pytree.TreeSpec,
        tensors: Sequence[int],
        shared: Sequence[Sequence[Place]],
        notes: _Notes,
    ) -> None:
        super().__init__()
        if isinstance(model, torch.jit.ScriptModule):
            model = Scripted(model)
        if isinstance(model, torch.nn.Module):
            setattr(self, ROOT, model)
        else:
            for i, owner in enumerate(_modules_of(model)):
                setattr(self, f"owner{i}" if i else ROOT, owner)
        self._call = [model]  # in a list: not a submodule a second time
        self.values, self.spec, self.tensors = list(values), spec, tuple(tensors)
        self.shared, self.notes = shared, notes
        self.keeps = False  # whether attributes stay as forward leaves them

    def forward(self, *tensors: torch.Tensor) -> Any:
        for (first, axis), *others in self.shared:
            for i, other in others:  # torch learns here that they are one size, not at the end of its trace
                torch._check(tensors[i].shape[other] == tensors[first].shape[axis])
        values = list(self.values)
        for i, tensor in zip(self.tensors, tensors, strict=True):
            values[i] = tensor
        args, kwargs = pytree.tree_unflatten(values, self.spec)
        given = pytree.tree_unflatten(values, self.spec)
        before = self.state()
        result = self._call[0](*args, **kwargs)
        if self.keeps:
            return result
        self.notes.containers = [
            *changed_containers(given[0], args, "its arguments"),
            *changed_containers(given[1], kwargs, "its arguments"),
        ]
        for name, (owner, attribute, value) in before.items():
            new = getattr(owner, attribute, None)
            if new is value:
                continue
            setattr(owner, attribute, value)
            self.notes.replaced.append(name)
            if _fits(new, value):
                value.copy_(new)  # from then on it is state like a buffer that is changed in place
            else:
                self.notes.assigned.append(name)
        return result

    @property
    def model(self) -> Model:
        """What is called."""
        return self._call[0]

    def plain_tensors(self) -> list[torch.Tensor]:
        """Tensors that modules hold as attributes, neither parameters nor buffers."""
        return [
            value
            for module in self.modules()
            if module is not self
            for value in module.__dict__.values()
            if isinstance(value, torch.Tensor)
        ]

    def state(self) -> dict[str, tuple[torch.nn.Module, str, Any]]:
        """Everything that forward could keep a tensor in: torch.export sees this only in the outermost module."""
        return {
            f"{path}.{name}": (module, name, value)
            for path, module in self.named_modules()
            if module is not self
            for name, value in (*module._buffers.items(), *module.__dict__.items())
            if isinstance(value, torch.Tensor)
        }


@contextmanager
def _unchanged(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """torch.export runs what changes tensors that are no buffers; here they get their values back."""
    kept = [(tensor, tensor._version, tensor.detach().clone()) for tensor in tensors]
    try:
        yield
    finally:
        for tensor, version, value in kept:
            if tensor._version != version:
                tensor.detach().copy_(value)


def _fits(new: object, old: torch.Tensor) -> bool:
    """Whether a tensor that forward assigned can lie in the memory of the one before it."""
    if not isinstance(new, torch.Tensor) or new.dtype != old.dtype or new.dim() != old.dim():
        return False
    return all(isinstance(n, int) and n == m for n, m in zip(new.shape, old.shape, strict=True))


def _owners(model: Model) -> list[torch.nn.Module]:
    return [model] if isinstance(model, torch.nn.Module) else _modules_of(model)


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

    visit(function, 0)
    return list(found.values())


def _unique(names: Sequence[str]) -> list[str]:
    result: list[str] = []
    for name in names:
        unique, n = name or "input", 1
        while unique in result:
            unique, n = f"{name}_{n}", n + 1
        result.append(unique)
    return result


class _Plain(torch.nn.Module):
    """As _Call, without a look at what the model keeps: in a form that torch's tracer of bytecode takes."""

    def __init__(self, call: _Call) -> None:
        super().__init__()
        for name, owner in call.named_children():
            setattr(self, name, owner)
        self.values, self.spec, self.tensors = call.values, call.spec, call.tensors
        self.function = None if ROOT in call._modules and call.model is getattr(call, ROOT) else call.model

    def forward(self, *tensors: torch.Tensor) -> Any:
        values = list(self.values)
        for i, tensor in zip(self.tensors, tensors, strict=True):
            values[i] = tensor
        args, kwargs = pytree.tree_unflatten(values, self.spec)
        function = getattr(self, ROOT) if self.function is None else self.function
        return function(*args, **kwargs)


def _export(
    call: _Call,
    given: Sequence[torch.Tensor],
    examples: Sequence[torch.Tensor],
    dims: Sequence[Dims],
    names: Sequence[str],
) -> Captured:
    """The program of a model, by the first way that works. given: the user's own examples, before they are resized."""
    shapes = (tuple(d or None for d in traced_dims(dims)),) if any(dims) else None
    questions: dict[str, str] = {}

    def export(whatever_the_size: bool = False, conditions_beside: bool = False) -> ExportedProgram:
        lenient = _config.patch(backed_size_oblivious=whatever_the_size)  # type: ignore[attr-defined]
        patches = (
            quiet_export(), recording_lines(), lenient, ByShape(), tracing_kernels(), shared_operands(),
            pools_of_all_sizes(), detections_of_all_sizes(), library_shapes(), whole_suggestions(), counted_averages(),
            noting_questions(questions), spelled_out_transformers(),
        )  # fmt: skip
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            return torch.export.export(
                call, tuple(examples), dynamic_shapes=shapes, strict=False,
                prefer_deferred_runtime_asserts_over_guards=conditions_beside,
            )  # fmt: skip

    try:
        with levels_closed():
            program = _first_that_works(export)
        if call.notes.assigned:
            program = _once_filled(call, examples, lambda: _first_that_works(export))
    except Exception as error:
        failure = export_failure(error, names, export)
        fixes_sizes = "Constraints violated" in str(error)
        own = isinstance(error, Error) or "Encountered input mutation" in str(error)  # which no other way takes
    else:
        notes = call.notes.warnings()
        return Captured(program, notes, not_for_one=not_for_one(program, call, examples, questions))
    if own or fixes_sizes:
        raise failure
    return _otherwise(call, given, examples, shapes, names, failure)


def _once_filled(
    call: _Call, examples: Sequence[torch.Tensor], export: Callable[[], ExportedProgram]
) -> ExportedProgram:
    """The program of a model that puts tensors of another kind in the place of buffers, if only a first call does."""
    names = tuple(dict.fromkeys(call.notes.assigned))
    call.notes.clear()
    refusal = replaced_error(user_name(names[0]))
    with filled(call, names, examples) as only_filled:
        if not only_filled:
            raise refusal
        program = export()
    if set(names) & {*call.notes.replaced, *call.notes.assigned} or call.notes.assigned:
        raise refusal
    return program


def _otherwise(
    call: _Call,
    given: Sequence[torch.Tensor],
    examples: Sequence[torch.Tensor],
    shapes: Any,
    names: Sequence[str],
    failure: Error,
) -> Captured:
    """What another way of torch's captures, where the model itself works and keeps nothing in attributes."""
    call.notes.replaced.clear()
    plain = [(tensor, tensor._version) for tensor in call.plain_tensors()]
    run_once(call, given, "")
    if any(a.shape != b.shape for a, b in zip(given, examples, strict=True)):
        run_once(call, examples, sizes_of(names, examples))
    if call.notes.replaced or any(tensor._version != version for tensor, version in plain):
        raise failure  # the other ways would lose what calls keep
    found = second_ways(_Plain(call), examples, shapes)
    if found.program is None:
        raise CompileError(failure.message, details=[*failure.details, *found.reasons], hint=failure.hint)
    if shapes is None:
        return found
    every = {str(symbol): "" for symbol in found.program.range_constraints}  # what these ask is not known
    return replace(found, not_for_one=not_for_one(found.program, _Plain(call), examples, every))


def _first_that_works(export: Callable[..., ExportedProgram]) -> ExportedProgram:
    """A model that calls int(), float() or len() is exported once more with those that leave sizes symbolic."""
    with noting_casts() as namespaces:
        try:
            return _where_conditions_hold(export)
        except Exception:
            with contextlib.suppress(Exception), symbolic_casts(namespaces):
                if namespaces:
                    return _where_conditions_hold(export)
            raise


def _where_conditions_hold(export: Callable[..., ExportedProgram]) -> ExportedProgram:
    """torch.export takes what it sees of computed sizes (half a length is more than 1, a slice is not all) for a
    condition, and refuses ranges in which it does not hold everywhere. Where it does, the model is exported with the
    conditions beside the graph, if they do no harm; else without asking whether sizes are 1."""
    try:
        return export()
    except Exception as error:
        if "Constraints violated" not in str(error):
            raise
        asked = Asked()
        with contextlib.suppress(Exception), listening(asked):
            program = export(conditions_beside=True)
            if assumptions_hold(program, asked):
                return program
        last: ExportedProgram | None = None
        with contextlib.suppress(Exception):
            last = export(whatever_the_size=True)
        if last is None or not holds_for_one(last):
            raise
        return last


def _from_program(request: CaptureRequest, program: ExportedProgram) -> ModelGraph:
    if request.dynamic_shapes or request.dynamic or request.fixed:
        raise CompileError(
            "the sizes of an exported program are fixed by its export",
            hint="Export it again with other dynamic_shapes.",
        )
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
        check_tensor(example, f"example input '{name}'")
    leaves = iter([LEAF if i in tensors else constant(value, f"example input {i}") for i, value in enumerate(values)])
    tree = structure(given, lambda: next(leaves))
    return import_program(request.name, program, ProgramInputs(names, examples, [{} for _ in names], tree))

"""What a package that trains is made from, and its entry points as captured graphs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ...runtime.errors import CompileError
from ...runtime.text import counted
from ..capture.export import CaptureRequest, capture_request
from ..machine.targets import Family
from ..model.graph import ModelGraph
from ..model.source_lines import is_torch_file
from .plan import Plan, plan_of
from .steps import Settings, entry_graphs

__all__ = ["TrainingRequest", "capture_training", "training_request"]

_USUAL = ("step", "evaluate", "gradients", "apply")
_ACCUMULATE = ("accumulate", "update")
_IN_EVAL = (
    "the model is in evaluation mode: its dropout and batch norms stay so in a training step; if that is not meant, "
    "call model.train() before compiling"
)


@dataclass(frozen=True)
class TrainingRequest:
    """A training step to capture.

    Attributes:
        model: the module; its parameters are those of the plan.
        args, kwargs: example inputs of the model.
        targets: example inputs of the loss, behind the model's output.
        loss: loss(output, *targets) -> one real number; None: the model returns it, alone or as `loss`.
        plan: of the optimizer.
        settings: of the step.
        dynamic_shapes, dynamic: as of CaptureRequest; targets go by the names of the loss's parameters.
        dtype: "bf16": model and loss under torch.autocast, over parameters in their own types; None: as they are.
    """

    model: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    targets: tuple[Any, ...]
    loss: Callable[..., Any] | None
    plan: Plan
    settings: Settings
    dynamic_shapes: Any = None
    dynamic: tuple[str, ...] = ()
    dtype: str | None = None

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest's row of training: what the runtime has to know of the optimizer."""
        plan, settings = self.plan, self.settings
        values = {name: plan.values(name) for name in plan.hyper}
        for name in ("clip_norm", "clip_value"):
            if getattr(settings, name) is not None:
                values[name] = getattr(settings, name)
        return {
            "optimizer": plan.row.name,
            "hyper": values,
            "groups": len(plan.groups),
            "parameters": [{"name": t.name, "group": t.group} for t in plan.trained],
            "aliases": self._aliases(),
            "check_finite": settings.check_finite,
            "memory_budget": settings.memory_budget,
        }

    def _aliases(self) -> dict[str, str]:
        """Other names of parameters that the model holds several times."""
        first: dict[int, str] = {}
        found = {}
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            own = first.setdefault(id(parameter), name)
            if own != name:
                found[name] = own
        return found


def training_request(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    targets: tuple[Any, ...],
    loss: Any,
    optimizer: Any,
    freeze: Sequence[str] = (),
    clip_norm: float | None = None,
    clip_value: float | None = None,
    check_finite: bool = False,
    outputs: bool = False,
    accumulate: bool = False,
    entries: Sequence[str] | None = None,
    memory_budget: float = 1.0,
    dynamic_shapes: Any = None,
    dynamic: tuple[str, ...] = (),
    dtype: str | None = None,
) -> TrainingRequest:
    """The checked request for a package that trains; the arguments are those of mycc.compile_training.

    Raises:
        CompileError: an argument is wrong.
    """
    if not isinstance(model, torch.nn.Module):
        raise CompileError(f"a {type(model).__name__} cannot be trained; it has to be an nn.Module")
    if loss is not None and not callable(loss):
        raise CompileError(f"the loss is a {type(loss).__name__}, not a function of the output and the targets")
    for name, value in (("clip_norm", clip_norm), ("clip_value", clip_value)):
        if value is not None and not (isinstance(value, (int, float)) and value > 0):
            raise CompileError(f"{name} has to be a number above 0, not {value!r}")
    if isinstance(memory_budget, bool) or not isinstance(memory_budget, (int, float)) or not 0 <= memory_budget <= 1:
        raise CompileError(f"memory_budget is a number from 0 to 1, not {memory_budget!r}")
    chosen = (*(_USUAL if entries is None else entries), *(_ACCUMULATE if accumulate else ()))
    known = (*_USUAL, *_ACCUMULATE)
    for name in chosen:
        if name not in known:
            raise CompileError(f"there is no entry point '{name}' to make", hint=f"These can be: {', '.join(known)}.")
    if not chosen:
        raise CompileError("there is no entry point to make", hint=f"These can be: {', '.join(known)}.")
    chosen = tuple(name for name in known if name in chosen)
    patterns = (freeze,) if isinstance(freeze, str) else tuple(freeze)
    plan = plan_of(optimizer, model, loss, patterns)
    settings = Settings(clip_norm, clip_value, check_finite, outputs, chosen, float(memory_budget))
    if dtype not in (None, "bf16"):
        raise CompileError(
            f"a training step cannot be computed in {dtype}",
            hint="bf16 computes products in bfloat16 over float32 parameters; for another type convert the model.",
        )
    return TrainingRequest(model, args, kwargs, targets, loss, plan, settings, dynamic_shapes, dynamic, dtype)


def capture_training(request: TrainingRequest, families: Collection[Family] = frozenset({"cpu"})) -> list[ModelGraph]:
    """All entry points of the package. families: of its targets. Raises CompileError with the user's line where there
    is one."""
    with refusing_own_backwards():
        forward = capture_request(_capture(request, "step"))
    notes = () if request.model.training else (_IN_EVAL,)
    made = entry_graphs(forward, request.plan, request.settings, families)
    graphs = {g.name: replace(g, notes=g.notes + notes) for g in made}
    if "evaluate" in request.settings.entries:
        with _evaluating(request.model):
            graphs["evaluate"] = capture_request(_capture(request, "evaluate"))
    return [graphs[name] for name in request.settings.entries]


def _capture(request: TrainingRequest, name: str) -> CaptureRequest:
    """Model and loss as one function of the arguments of both."""
    forward = inspect.signature(request.model.forward)
    names = _target_names(request, set(forward.parameters))
    call: Any = functools.partial(_model_and_loss, request.model, request.loss, names, request.dtype)
    parameters = [*forward.parameters.values()]
    behind = [p for p in parameters if p.kind is p.VAR_KEYWORD]
    before = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
    own = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in names]
    call.__signature__ = inspect.Signature([*before, *own, *behind])
    kwargs = {**request.kwargs, **dict(zip(names, request.targets, strict=True))}
    shapes, dynamic = request.dynamic_shapes, request.dynamic
    return CaptureRequest(call, request.args, kwargs, shapes, dynamic, name, differentiated=name == "step")


def _model_and_loss(
    model: torch.nn.Module,
    loss: Callable[..., Any] | None,
    names: Sequence[str],
    dtype: str | None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """(loss, the model's output); the loss alone where the model returns nothing else."""
    targets = [kwargs.pop(name) for name in names]
    with torch.autocast("cpu", torch.bfloat16) if dtype == "bf16" else nullcontext():
        output = model(*args, **kwargs)
        if loss is not None:
            return _checked_loss(loss, loss(output, *targets)), output
        found = _loss_in(output)
        return (found,) if found is output else (found, output)


def _checked_loss(function: Callable[..., Any], found: Any) -> torch.Tensor:
    """What the loss returns. Raises CompileError where it is no tensor: its first tensor would be taken for it."""
    if isinstance(found, torch.Tensor):
        return found
    raise CompileError(
        f"the loss is no tensor: it returns a {type(found).__name__}",
        details=_place(function),
        hint="Return one tensor with one real number, for example that of torch.nn.functional.cross_entropy.",
    )


def _place(function: Callable[..., Any]) -> list[str]:
    """File and line of the user's function; nothing of a module of torch, or of what has no source."""
    function = type(function).forward if isinstance(function, torch.nn.Module) else function
    code = getattr(function, "__code__", None)
    if code is None or is_torch_file(code.co_filename):
        return []
    return [f"{Path(code.co_filename).name}:{code.co_firstlineno}"]


def _check_targets(function: Callable[..., Any], signature: inspect.Signature, count: int) -> None:
    """Raises CompileError where the loss does not take the output and so many targets."""
    try:
        signature.bind(*range(count + 1))
    except TypeError as error:
        raise CompileError(
            f"the loss does not take the output and {counted(count, 'target')}: {error}",
            details=_place(function),
            hint="targets= has the loss's arguments behind the output, in their order.",
        ) from None


def _loss_in(output: Any) -> Any:
    """The loss among what a model returns."""
    if isinstance(output, torch.Tensor):
        return output
    found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(found, torch.Tensor):
        return found
    raise CompileError(
        f"the model returns a {type(output).__name__} without a loss",
        hint="Give loss=: a function of the model's output and the targets.",
    )


def _target_names(request: TrainingRequest, taken: set[str]) -> tuple[str, ...]:
    """Names of the targets: of the loss's parameters behind its first, where they can be told."""
    count = len(request.targets)
    if request.loss is None:
        if count:
            raise CompileError(
                "targets are given without a loss",
                hint="Give loss=, or pass them to the model as arguments when it computes its loss itself.",
            )
        return ()
    function = request.loss.forward if isinstance(request.loss, torch.nn.Module) else request.loss
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        parameters = []
    else:
        _check_targets(request.loss, signature, count)
        parameters = list(signature.parameters.values())[1:]
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names: list[str] = []
    for i in range(count):
        name = named[i] if i < len(named) else ("target" if count == 1 else f"target_{i}")
        while name in taken or name in names:
            name = f"{name}_target" if not name.endswith("_target") else f"{name}_"
        names.append(name)
    return tuple(names)


@contextmanager
def refusing_own_backwards() -> Iterator[None]:
    """While it lasts a call of an autograd.Function is an error: the graph would have the derivatives of its forward,
    and not its own backward. So are derivatives taken in forward, whose graph stops gradients at what they keep."""
    original = torch.autograd.Function.__dict__["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if is_torch_file(inspect.getsourcefile(cls) or "") if cls.__module__ != "__main__" else False:
            return original.__get__(None, cls)(*args, **kwargs)
        raise CompileError(
            f"the model calls {cls.__name__}, an autograd.Function, whose own backward cannot be compiled",
            hint="Write it as operators with a derivative; x + (f(x) - x).detach() passes a gradient straight through.",
        )

    def derivatives(*args: Any, **kwargs: Any) -> Any:
        raise CompileError(
            "the model takes derivatives in its forward, through which a training step cannot differentiate yet",
            hint="mycc.compile takes such a model for inference.",
        )

    taken = torch.autograd.grad
    torch.autograd.grad = derivatives
    torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        torch.autograd.grad = taken
        torch.autograd.Function.apply = original  # type: ignore[method-assign]


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """The model in evaluation mode; each module's own mode comes back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training

"""`mycc.compile`: checks what it is given, and hands it to the pipeline."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ..arguments import CompileArguments, StepArguments, TrainingArguments, arguments_of
from ..runtime.errors import CompileError
from ..runtime.installation import how_to_install
from .faults import reporting_faults
from .garbage import rare_collections
from .observe import DumpObserver, Observer, warn
from .options import CompileOptions
from .package.replace import check_replaceable
from .request import CompileRequest, Task
from .signatures import takes

if TYPE_CHECKING:
    from .capture.export import CaptureRequest
    from .capture.source import Source
    from .training.request import TrainingRequest

__all__ = [
    "check_files",
    "check_out",
    "compile",
    "compile_entries",
    "compile_request",
    "compile_training",
    "observers_of",
    "require_torch",
    "run_request",
    "train_request",
]


@takes(CompileArguments)
@rare_collections()
def compile(
    model: Any,
    args: Sequence[Any] | Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    out: str | os.PathLike[str],
    dynamic_shapes: Any = None,
    dynamic: Sequence[str] = (),
    name: str | None = None,
    progress: bool | Observer | None = None,
    **options: Unpack[CompileArguments],
) -> Path:
    """Compiles a model to a package that runs without torch.

    Args:
        model: an nn.Module, a callable or an ExportedProgram; or {"encode": (module, args[, kwargs[, dynamic_shapes]]),
            ...} for a package with several entry points, which share their weights.
        args, kwargs: example inputs. Tensors are the package's inputs; all else (numbers, None, text) becomes constant.
        out: the file to write. It appears whole or not at all.
        dynamic_shapes: which sizes change from call to call, in torch.export's own form.
        dynamic: sizes that change in the command line's form: ["x:0=batch(1..64)"].
        name: the package's name, under which Python can import it; None: from `out`.
        progress: True to show the stages on standard error, or an Observer of one's own.
        **options: CompileArguments of arguments.py.

    Returns:
        The package's path.

    Raises:
        CompileError: the model, its inputs or an option cannot be compiled; says what, where and what to do.
    """
    require_torch()
    with reporting_faults("request"):
        checked = CompileOptions.of(**options)
        check_files(checked)
        entries = compile_entries(model, args, kwargs, dynamic_shapes, dynamic)
        request = compile_request(entries, checked, out, name)
    return run_request(request, observers_of(progress))


@takes(TrainingArguments)
@rare_collections()
def compile_training(
    model: Any,
    args: Sequence[Any] | Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    targets: Sequence[Any] | Any = (),
    loss: Any = None,
    optimizer: Any,
    out: str | os.PathLike[str],
    dynamic_shapes: Any = None,
    dynamic: Sequence[str] = (),
    name: str | None = None,
    progress: bool | Observer | None = None,
    **options: Unpack[TrainingArguments],
) -> Path:
    """Compiles a training step, forward, backward and the optimizer's update, to a package that runs without torch.

    The package starts from the model's parameters and from what the optimizer has kept so far; both stay as they are.
    Modules keep their mode: call model.train() before, as for a loop in torch.

    Args:
        model: an nn.Module on the CPU.
        args, kwargs: example inputs of the model. Tensors are inputs of a step; all else becomes constant.
        targets: example inputs of the loss behind the model's output; a step takes them by the loss's parameter names
            or behind the model's arguments.
        loss: loss(output, *targets) -> one real number; None: the model returns it, alone or as `loss`.
        optimizer: a torch.optim object over the model's parameters. Its formula and flags (momentum or none, nesterov,
            amsgrad) are compiled in; its numbers (lr, weight_decay) are what a step takes when it is given no others.
        dynamic_shapes, dynamic: which sizes change, as for mycc.compile; targets go by their names.
        name, progress: as for mycc.compile. dtype="bf16" computes products in bfloat16 over float32 parameters, as
            under torch.autocast.
        **options: TrainingArguments of arguments.py.

    Returns:
        The package's path; mycc.load() gives a Training for it.

    Raises:
        CompileError: what was wrong, with the line of the model where there is one: a parameter without a gradient, a
            loss that is no number, an optimizer without a formula, an operator without a derivative.
    """
    require_torch()
    from .training.request import training_request

    with reporting_faults("request"):
        given: dict[str, Any] = dict(options)
        step = {name: given.pop(name) for name in arguments_of(StepArguments) if name in given}
        checked = CompileOptions.of(**given)
        training = training_request(
            model, _args(args), dict(kwargs or {}), targets=_args(targets), loss=loss, optimizer=optimizer,
            dynamic_shapes=dynamic_shapes, dynamic=tuple(dynamic), dtype=checked.dtype, **step,
        )  # fmt: skip
        request = compile_request((), checked, out, name, training=training)
    return run_request(request, observers_of(progress))


def train_request(source: Source, dynamic: Sequence[str], **settings: Any) -> TrainingRequest:
    """The request for the training step of a file; settings are those of compile_training. Raises CompileError."""
    from .training.request import training_request

    with reporting_faults("request"):
        if "optimizer" not in source.training:
            raise CompileError(
                f"{source.name}.py has no optimizer: looked for `optimizer` or `get_optimizer()`",
                hint="For example optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3).",
            )
        return training_request(
            source.model, source.args, source.kwargs, targets=source.training["targets"],
            loss=source.training.get("loss"), optimizer=source.training["optimizer"],
            dynamic_shapes=source.dynamic_shapes, dynamic=tuple(dynamic), **settings,
        )  # fmt: skip


def check_files(options: CompileOptions) -> None:
    """Raises CompileError when there is no C++ compiler for a target, or a file that the options name cannot be read:
    before the model is loaded."""
    from .build.cache import Cache
    from .build.toolchain import find_toolchain
    from .machine.local_cpu import machine

    if any(target.arch == machine() for target in options.targets):  # for others there is more to say later
        find_toolchain(machine(), Cache(options.cache_dir))
    if options.lock is not None:
        from .tune.search.lock import read_lock

        read_lock(options.lock)


def compile_request(
    entries: Sequence[CaptureRequest],
    options: CompileOptions,
    out: str | os.PathLike[str],
    name: str | None = None,
    task: Task | None = None,
    training: TrainingRequest | None = None,
) -> CompileRequest:
    """The checked request for a package; of one that trains there are no entries. Raises CompileError."""
    path = check_out(out)
    package = _check_name(name) if name is not None else _name_of(path)
    return CompileRequest(tuple(entries), options, path, package, tuple(options.ineffective()), task, training)


@rare_collections()
def run_request(request: CompileRequest, observers: Sequence[Observer]) -> Path:
    """Runs the pipeline. Warnings go to the observers, or without any to Python's warnings."""
    from .pipeline import run

    for text in request.warnings:
        warn(observers, text)
    if request.options.dump is not None:
        observers = [*observers, DumpObserver(request.options.dump)]
    with reporting_faults("compile"):  # what happens between the stages
        return Path(run(request, observers).path)


def require_torch() -> None:
    """Raises CompileError when torch is missing or too old: a loader's installation has none."""
    try:
        import torch
    except ImportError as error:
        missing = f"compiling needs torch, which cannot be imported ({error})"
        raise CompileError(missing, hint=how_to_install("compiler")) from None
    version = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if version < (2, 11):
        raise CompileError(f"compiling needs torch 2.11 or later; this is {torch.__version__}")


def observers_of(progress: bool | Observer | None) -> list[Observer]:
    """The observers that `progress` asks for: itself, one that prints a line for each stage (True), or none."""
    if isinstance(progress, Observer):
        return [progress]
    if not progress:
        return []
    from .progress import ProgressObserver

    return [ProgressObserver()]


def check_out(out: str | os.PathLike[str]) -> Path:
    """The path of the package to write, in a directory that can be written. Raises CompileError."""
    path = Path(out).expanduser()
    if "\0" in str(path):
        raise CompileError(f"cannot write the package to {str(path)!r}: a path has no NUL")
    if path.is_dir():
        raise CompileError(f"cannot write the package to '{path}': it is a directory")
    if not path.absolute().parent.is_dir():
        raise CompileError(f"cannot write the package to '{path}': there is no directory '{path.absolute().parent}'")
    if not os.access(path.absolute().parent, os.W_OK):
        raise CompileError(f"cannot write the package to '{path}': no permission to write there")
    check_replaceable(path)
    return path


def _check_name(name: str) -> str:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise CompileError(f"'{name}' cannot be a package's name: it has to be a Python identifier, such as my_model")
    return name


def _name_of(path: Path) -> str:
    name = re.sub(r"\W", "_", path.name.split(".")[0]) or "model"
    return f"model_{name}" if not name.isidentifier() or keyword.iskeyword(name) else name


def compile_entries(
    model: Any,
    args: Sequence[Any] | Any = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    dynamic: Sequence[str] = (),
) -> tuple[CaptureRequest, ...]:
    """The entry points of what mycc.compile was given as its model. Raises CompileError."""
    from .capture.export import CaptureRequest

    if not isinstance(model, Mapping):
        return (CaptureRequest(model, _args(args), dict(kwargs or {}), dynamic_shapes, tuple(dynamic)),)
    if args or kwargs or dynamic_shapes:
        raise CompileError(
            "several entry points have their inputs beside them",
            hint='For example mycc.compile({"encode": (module, args, kwargs, dynamic_shapes)}, out=...).',
        )
    if not model:
        raise CompileError("there is no entry point to compile")
    entries = []
    for name, entry in model.items():
        parts = entry if isinstance(entry, tuple) else (entry,)
        if not 1 <= len(parts) <= 4:
            form = "(module, args[, kwargs[, dynamic_shapes]])"
            raise CompileError(f"entry point '{name}' has {len(parts)} parts, not {form}")
        rest: tuple[Any, ...] = ((), None, None)
        module, entry_args, entry_kwargs, shapes = (*parts, *rest[len(parts) - 1 :])
        checked = _args(entry_args), dict(entry_kwargs or {}), shapes, tuple(dynamic), _check_name(name)
        entries.append(CaptureRequest(module, *checked))
    return tuple(entries)


def _args(args: Sequence[Any] | Any) -> tuple[Any, ...]:
    """A single tensor is taken for a tuple of one, as users write it."""
    return tuple(args) if isinstance(args, (tuple, list)) else (args,)

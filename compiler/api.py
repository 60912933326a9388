"""`mycc.compile`: checks what it is given, and hands it to the pipeline."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.errors import CompileError
from ..runtime.installation import how_to_install
from .faults import reporting_faults
from .observe import DumpObserver, Observer, warn
from .options import CompileOptions, Mode
from .package.replace import check_replaceable
from .request import CompileRequest, Task

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


def compile(
    model: Any,
    args: Sequence[Any] | Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    out: str | os.PathLike[str],
    dynamic_shapes: Any = None,
    target: str | Sequence[str] = "cpu",
    dtype: Any = None,
    mode: Mode = "default",
    tune: bool = False,
    lock: str | os.PathLike[str] | None = None,
    verify: bool = True,
    strict: bool = False,
    threads: int | None = None,
    options: Mapping[str, object] | Sequence[str] | None = None,
    name: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    dump: str | os.PathLike[str] | None = None,
    progress: bool | Observer | None = None,
    dynamic: Sequence[str] = (),
    specialize: str | Sequence[str] | Mapping[str, Any] = (),
    quantize: str | None = None,
    quantize_skip: str | Sequence[str] = (),
    calibrate: Any = None,
    max_error: float | None = None,
) -> Path:
    """Compiles a model to a package that runs without torch.

    Args:
        model: an nn.Module, a callable or an ExportedProgram; or {"encode": (module, args[, kwargs[, dynamic_shapes]]),
            ...} for a package with several entry points, which share their weights.
        args, kwargs: example inputs. Tensors are the package's inputs; all else (numbers, None, text) becomes constant.
        out: the file to write. It appears whole or not at all.
        dynamic_shapes: which sizes change from call to call, in torch.export's own form.
        target: "cpu" (this machine's ISA level), "cpu:x86-64-v3", ...; several with commas between.
        dtype: the dtype to compute in; None: the model's own.
        mode: torch.compile's word: "default", "reduce-overhead" or "max-autotune".
        tune: measure kernel variants on this machine, and keep the choices in a file beside the package: out + ".lock".
        lock: repeat the choices of such a file, without measuring.
        verify: compare the package with the model in float64 before it is written.
        strict: make an error of every warning.
        threads: threads of a call of the package; None: one per core where it runs.
        options: {"schedule.fuse": False} or ["schedule.fuse=false"], over compiler/options.py.
        name: the package's name, under which Python can import it; None: from `out`.
        cache_dir: where compiled objects are kept; None: the user's cache directory.
        jobs: C++ compilers that run at once; None: one per core.
        dump: directory for a text file per stage.
        progress: True to show the stages on standard error, or an Observer of one's own.
        dynamic: sizes that change in the command line's form: ["x:0=batch(1..64)"].
        specialize: dynamic sizes for which the package holds variants of its own, "batch=1,8 seq=128" or
            {"batch": (1, 8)}: a call of such sizes runs code that was compiled for them.
        quantize: store weights in few bits: "int8", "int8-dynamic", "int4", "int4:group=64", "fp8"; see
            docs/quantization.md.
        quantize_skip: patterns of layers' names that stay as they are, such as "lm_head" or "layers.0.*".
        calibrate: inputs for static quantisation, with "int8": an .npz, "module:function", a function or a list.
        max_error: the largest error, relative to the model's results, that quantisation may add.

    Returns:
        The package's path.

    Raises:
        CompileError: the model, its inputs or an option cannot be compiled; says what, where and what to do.
    """
    require_torch()
    with reporting_faults("request"):
        checked = CompileOptions.of(
            target=target, dtype=dtype, mode=mode, tune=tune, lock=lock, verify=verify, strict=strict, threads=threads,
            options=options, cache_dir=cache_dir, jobs=jobs, dump=dump, specialize=specialize, quantize=quantize,
            quantize_skip=quantize_skip, calibrate=calibrate, max_error=max_error,
        )  # fmt: skip
        check_files(checked)
        entries = compile_entries(model, args, kwargs, dynamic_shapes, dynamic)
        request = compile_request(entries, checked, out, name)
    return run_request(request, observers_of(progress))


def compile_training(
    model: Any,
    args: Sequence[Any] | Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    targets: Sequence[Any] | Any = (),
    loss: Any = None,
    optimizer: Any,
    out: str | os.PathLike[str],
    freeze: Sequence[str] = (),
    clip_norm: float | None = None,
    clip_value: float | None = None,
    check_finite: bool = False,
    outputs: bool = False,
    accumulate: bool = False,
    entries: Sequence[str] | None = None,
    dynamic_shapes: Any = None,
    dynamic: Sequence[str] = (),
    target: str | Sequence[str] = "cpu",
    dtype: Any = None,
    mode: Mode = "default",
    verify: bool = True,
    strict: bool = False,
    threads: int | None = None,
    options: Mapping[str, object] | Sequence[str] | None = None,
    name: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    dump: str | os.PathLike[str] | None = None,
    progress: bool | Observer | None = None,
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
        freeze: patterns of parameters' names ("encoder.*") that do not change; nor do those without requires_grad and
            those that the optimizer lacks.
        clip_norm, clip_value: gradients are clipped to this norm over all, or each element to this value; a step may
            be given another.
        check_finite: a step whose loss or gradients are not finite changes nothing.
        outputs: a step returns what the model returns, too.
        accumulate: entry points `accumulate` and `update` as well, for steps of several batches.
        entries: the entry points to make; None: step, evaluate, gradients, apply.
        dynamic_shapes, dynamic: which sizes change, as for mycc.compile; targets go by their names.
        dtype: "bf16": products in bfloat16 over float32 parameters, as under torch.autocast; None: the model's own.
        target, mode, verify, strict, threads, options, name, cache_dir, jobs, dump, progress: as for mycc.compile.

    Returns:
        The package's path; mycc.load() gives a Training for it.

    Raises:
        CompileError: what was wrong, with the line of the model where there is one: a parameter without a gradient, a
            loss that is no number, an optimizer without a formula, an operator without a derivative.
    """
    require_torch()
    from .training.request import training_request

    with reporting_faults("request"):
        checked = CompileOptions.of(
            target=target, dtype=dtype, mode=mode, verify=verify, strict=strict, threads=threads, options=options,
            cache_dir=cache_dir, jobs=jobs, dump=dump,
        )  # fmt: skip
        training = training_request(
            model, _args(args), dict(kwargs or {}), targets=_args(targets), loss=loss, optimizer=optimizer,
            freeze=freeze, clip_norm=clip_norm, clip_value=clip_value, check_finite=check_finite, outputs=outputs,
            accumulate=accumulate, entries=entries, dynamic_shapes=dynamic_shapes, dynamic=tuple(dynamic),
            dtype=checked.dtype,
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

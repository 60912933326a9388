"""`mycc compile`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..arguments import TASK_NAMES, CompileArguments, StepArguments, TaskArguments, arguments_of
from .arguments import Dynamic, Examples, Json, Quiet, Source, Verbose, out_option
from .console import print_json, print_rich, stdout_to_stderr
from .record import completion_of, with_options
from .sources import check_format, load_model, progress

if TYPE_CHECKING:
    from ..compiler.observe import Observer, TimingObserver

__all__ = ["compile_command"]


@with_options(CompileArguments, StepArguments, TaskArguments, tf32=True)
def compile_command(
    source: Source,
    out: Annotated[Path | None, out_option("The package. Default: NAME.pkg here.")] = None,
    inputs: Examples = None,
    dynamic: Dynamic = None,
    *,
    train: Annotated[
        bool, typer.Option("--train", help="Compile a training step: the file has an `optimizer` and a `loss`.")
    ] = False,
    name: Annotated[
        str | None, typer.Option("--name", help="The package's name in Python. Default: from the file.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            help="What the model is for, where SOURCE is a folder of transformers or a GGUF file: "
            f"{', '.join(TASK_NAMES[:-1])} or {TASK_NAMES[-1]}.",
            autocompletion=completion_of(TASK_NAMES),
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    **given: Any,
) -> None:
    """Compile a model, or with --task a model's folder, to a package."""
    from ..compiler.observe import TimingObserver

    timing = TimingObserver()
    observers: list[Observer] = [timing] if as_json else [timing, progress(quiet)]
    start = perf_counter()
    if task is not None:
        from ..compiler.options import check_task

        check_task(task)
        from ..compiler.generation.tasks import compile_task

        others = {"--input": inputs, "--dynamic": dynamic, "--train": train}
        with stdout_to_stderr(as_json):
            path = compile_task(task, source, out, name, given, others, observers)
    else:
        step = {key: given.pop(key) for key in arguments_of(StepArguments) if key in given}
        _refuse(TaskArguments, given, "--task")
        if not train:
            _refuse(StepArguments, step, "--train")
        with stdout_to_stderr(as_json):
            path = _compile(source, out, name, inputs or (), dynamic or (), given, step if train else None, observers)
    _report_compile(path, timing, perf_counter() - start, as_json, verbose)


def _refuse(record: type, given: Mapping[str, Any], needs: str) -> None:
    """Raises CompileError for an argument of the record."""
    from ..runtime.errors import CompileError

    words = [argument.option[0] for name, (_, argument) in arguments_of(record).items() if name in given]
    if words:
        verb = "goes" if len(words) == 1 else "go"
        raise CompileError(f"{', '.join(words)} {verb} with {needs}")


def _compile(
    source: str,
    out: Path | None,
    name: str | None,
    inputs: Sequence[str],
    dynamic: Sequence[str],
    given: Mapping[str, Any],
    step: Mapping[str, Any] | None,
    observers: Sequence[Observer],
) -> Path:
    """Compiles a source. step: the arguments of a training step; None: its model is compiled to be called."""
    from ..compiler.api import (
        check_files,
        check_out,
        compile_entries,
        compile_request,
        require_torch,
        run_request,
        train_request,
    )
    from ..compiler.observe import running_stage
    from ..compiler.options import CompileOptions

    check_format(source)
    options = CompileOptions.of(**given)
    check_files(options)
    if out is not None:
        check_out(out)
    with running_stage(observers, "load") as stage:
        require_torch()
        from ..compiler.capture.source import describe

        loaded = load_model(source, inputs)
        stage.summary = describe(loaded)
    where = out or Path(f"{loaded.name}.pkg")
    if step is not None:
        training = train_request(loaded, dynamic, dtype=options.dtype, **step)
        return run_request(compile_request((), options, where, name, training=training), observers)
    entries = compile_entries(loaded.model, loaded.args, loaded.kwargs, loaded.dynamic_shapes, dynamic)
    return run_request(compile_request(entries, options, where, name), observers)


def _report_compile(path: Path, timing: TimingObserver, seconds: float, as_json: bool, verbose: bool) -> None:
    from ..compiler.machine.targets import runs_on_this_machine
    from ..runtime.inspect import accuracy_line, inspect_package, megabytes, quantization_lines
    from ..runtime.text import counted

    facts = inspect_package(os.fspath(path))
    if as_json:
        stages = [{"name": s.name, "seconds": round(s.seconds, 3), "summary": s.summary} for s in timing.stages]
        kept = {
            key: facts[key]
            for key in ("path", "name", "size", "weights", "other", "targets", "glibc", "check", "quantization")
        }
        entries = [{"name": row["name"], "signature": row["signature"], "kernels": len(row["kernels"])}
                   for row in facts["entry_points"]]  # fmt: skip
        result = {**kept, "entry_points": entries, "seconds": round(seconds, 3), "stages": stages}
        print_json({**result, "warnings": timing.warnings}, "compile/1")
        return
    number = sum(len(row["kernels"]) for row in facts["entry_points"])
    targets = ", ".join(row["target"] for row in facts["targets"])
    print(f"\n{path}  {megabytes(facts['size'])}  ({counted(number, 'kernel')}, {targets}, {seconds:.1f} s)")
    for row in facts["entry_points"]:
        print(f"  {row['signature']}")
    here = runs_on_this_machine(facts)
    print(f"  {accuracy_line(facts['check'])}" + ("" if here else ": no target of it runs on this machine"))
    for line in quantization_lines(facts["quantization"] or {}):
        print(f"  {line}")
    if verbose:
        from ..runtime.render import render_inspection

        for fusions in (False, True):
            print_rich(render_inspection(facts, fusions, summary=False))
    if not here:
        print(f"  copy it to a machine with {targets} and run it there: mycc run {path}")
        return
    way = f"mycc run {path}"
    if (facts["task"] or {}).get("name") == "text-generation":
        way += ' --prompt "..."'
    print(f"  run it: {way}   or in Python: mycc.load({os.fspath(path)!r})")

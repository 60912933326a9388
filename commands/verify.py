"""`mycc verify`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..arguments import CompileArguments
from .arguments import Device, Dynamic, Entry, Examples, Json, Target, Threads, Verbose
from .console import print_json, print_rich, stdout_to_stderr
from .record import with_options
from .sources import check_format, load_model

if TYPE_CHECKING:
    from ..compiler.options import CompileOptions
    from ..compiler.verify.command import ModelReport

__all__ = ["verify_command"]


@with_options(CompileArguments, only=("dtype", "options"))
def verify_command(
    files: Annotated[
        list[str], typer.Argument(metavar="[SOURCE] FILE", help="A package; before it the model to compare it with.")
    ],
    bisect: Annotated[
        Path | None,
        typer.Option("--bisect", metavar="[DIR]", help="Find the first wrong kernel; a reproducer goes to DIR."),
    ] = None,
    inputs: Examples = None,
    dynamic: Dynamic = None,
    *,
    entry: Entry = None,
    threads: Threads = None,
    target: Target = None,
    device: Device = None,
    as_json: Json = False,
    verbose: Verbose = False,
    **given: Any,
) -> None:
    """Check every hash of a package, then its results against its accuracy certificate, or with SOURCE against the
    model itself in float64. Exit code 1: not accurate."""
    if len(files) > 1 or bisect is not None:
        from ..compiler.options import CompileOptions

        options = CompileOptions.of(threads=threads, **given)
        with stdout_to_stderr(as_json):
            compared = _compare_with_model(files, inputs, dynamic, options, entry, bisect)
        print_json(compared.as_dict(), "verify/1") if as_json else print(compared.text())
        if not compared.ok:
            raise typer.Exit(1)
        return
    from ..runtime.verify import verify_package

    report = verify_package(files[0], threads, target, device)
    if as_json:
        print_json(report.as_dict(), "verify/1")
    else:
        from ..runtime.render import render_verify

        print_rich(render_verify(report))
    if not report.ok:
        raise typer.Exit(1)


def _compare_with_model(
    files: Sequence[str],
    inputs: Sequence[str] | None,
    dynamic: Sequence[str] | None,
    options: CompileOptions,
    entry: str | None,
    bisect: Path | None,
) -> ModelReport:
    from ..compiler.api import compile_entries, require_torch
    from ..runtime.errors import InputError
    from ..runtime.formats import recognise

    if len(files) != 2:
        raise InputError("comparing with the model takes its source and the package: mycc verify model.py model.pkg")
    if (found := recognise(files[0])) is not None and found.package:
        raise InputError(
            f"'{files[0]}' is a package, and so is what it would be compared with",
            hint=f"Check one at a time: mycc verify {files[0]}. Or name the model: mycc verify model.py {files[1]}.",
        )
    check_format(files[0])
    require_torch()
    from ..compiler.quantize.stored import as_stored
    from ..compiler.verify.command import verify_model

    loaded = load_model(files[0], inputs or [])
    entries = compile_entries(loaded.model, loaded.args, loaded.kwargs, loaded.dynamic_shapes, dynamic or ())
    return verify_model(entries, Path(files[1]), options, entry, bisect, as_stored)

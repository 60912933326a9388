"""`mycc check`."""

from __future__ import annotations

from typing import Any

import typer

from ..arguments import CompileArguments
from .arguments import Dynamic, Examples, Json, Source, Verbose
from .console import print_json, print_rich, stdout_to_stderr
from .record import with_options
from .sources import check_format, load_model

__all__ = ["check_command"]

#: the arguments of a compile that decide what is refused
_DECIDING = ("specialize", "target", "dtype", "quantize", "quantize_skip", "options", "strict")


@with_options(CompileArguments, only=_DECIDING, tf32=True)
def check_command(
    source: Source,
    inputs: Examples = None,
    dynamic: Dynamic = None,
    *,
    as_json: Json = False,
    verbose: Verbose = False,
    **given: Any,
) -> None:
    """Say in seconds whether a model would compile, and to which kernels. Exit code 1: it would not."""
    from ..compiler.api import compile_entries, require_torch
    from ..compiler.options import CompileOptions

    check_format(source)
    options = CompileOptions.of(**given)
    with stdout_to_stderr(as_json):
        require_torch()
        from ..compiler.check import check

        loaded = load_model(source, inputs or [])
        entries = compile_entries(loaded.model, loaded.args, loaded.kwargs, loaded.dynamic_shapes, dynamic or ())
        report = check(entries, options)
    if as_json:
        print_json({"source": source, **report.as_dict()}, "check/1")
    else:
        from ..compiler.check_text import render_check

        print_rich(render_check(report, source))
    if not report.ok:
        raise typer.Exit(1)

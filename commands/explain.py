"""`mycc explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..arguments import CompileArguments
from .arguments import Device, Dynamic, Entry, Examples, JsonFile, Quiet, Threads, Verbose, out_option, size_option
from .console import stdout_to_stderr
from .record import with_options
from .sources import check_format, load_model, progress

__all__ = ["explain_command"]


@with_options(CompileArguments, only=("dtype", "options"))
def explain_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A package; or a model, which is compiled first.")],
    out: Annotated[Path | None, out_option("The page. Default: NAME.html here.")] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
    measure: Annotated[bool, typer.Option("--measure", help="Time each kernel here, beside the roof.")] = False,
    against: Annotated[
        Path | None, typer.Option("--against", metavar="FILE", help="Another package, to be shown beside.")
    ] = None,
    sources: Annotated[
        list[Path] | None, typer.Option("--source", metavar="DIR", help="A folder with the model's files.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write a trace for Perfetto or Chrome.")
    ] = None,
    dot: Annotated[
        Path | None, typer.Option("--dot", metavar="FILE", help="Write the graph for Netron or Graphviz.")
    ] = None,
    json_file: JsonFile = None,
    sizes: Annotated[list[str] | None, size_option()] = None,
    inputs: Examples = None,
    dynamic: Dynamic = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Of a model: what to compile for. Of a package: which to measure.")
    ] = None,
    *,
    entry: Entry = None,
    threads: Threads = None,
    device: Device = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    **given: Any,
) -> None:
    """Show what became of a model: one page with its graph, kernels, lines, fusions, memory and times."""
    from ..compiler.bench.command import is_source, refuse
    from ..compiler.explain.api import explain_package
    from ..compiler.explain.command import Wanted, check_wanted, deliver, explaining
    from ..runtime.execute import parse_sizes

    wanted = Wanted(out, open_page, trace, dot, json_file)
    check_wanted(wanted)
    check_format(file, package=True)
    about: dict[str, Any] = {
        "measure": measure, "against": against, "sizes": parse_sizes(sizes or []), "entry": entry, "threads": threads,
        "device": device, "sources": sources or [],
    }  # fmt: skip
    if is_source(file):
        from ..compiler.options import CompileOptions

        options = CompileOptions.of(target=target or "cpu", threads=threads, **given)
        about["sources"] = [*about["sources"], Path(file.rpartition(":")[0] or file).absolute().parent]
        with (
            stdout_to_stderr(json_file == "-"),
            explaining(lambda: load_model(file, inputs or []), options, dynamic, progress(quiet)) as path,
        ):
            explanation = explain_package(path, **about)
    else:
        own = {"--input": inputs, "--dynamic": dynamic, "--dtype": given.get("dtype"), "--set": given.get("options")}
        refuse(own, "a model, not for a package", "Name the model's source: mycc explain model.py.")
        explanation = explain_package(Path(file), target=target, **about)
    for line in deliver(explanation, wanted):
        print(line)

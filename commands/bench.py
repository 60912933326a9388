"""`mycc bench`."""

from __future__ import annotations

from pathlib import Path
from time import strftime
from typing import Annotated

import typer

from .arguments import CacheDir, Device, Entry, Examples, JsonFile, Quiet, Sizes, Target, Verbose
from .console import print_rich, stdout_to_stderr, write_json
from .sources import check_format, progress

__all__ = ["bench_command"]


def bench_command(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A package; or a model to compare: model.py, model.py:factory.")
    ],
    against: Annotated[
        str | None, typer.Option("--against", metavar="PEERS", help="eager,compile,aoti,aoti-max,ort,openvino.")
    ] = None,
    threads: Annotated[
        str | None, typer.Option("--threads", metavar="N,N", help="Threads of a run, one measurement for each.")
    ] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="N,N", help="Sizes of the model's batch. Default: the example's.")
    ] = None,
    inputs: Examples = None,
    seconds: Annotated[float, typer.Option("--seconds", help="How long each peer runs in a turn.")] = 1.0,
    turns: Annotated[int, typer.Option("--turns", help="How often the peers take turns.")] = 3,
    tolerance: Annotated[
        float | None, typer.Option("--tolerance", help="Largest error of a peer that counts. Default: from eager's.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with charts.")] = None,
    sizes: Sizes = None,
    runs: Annotated[int | None, typer.Option("--runs", help="Timed runs. Default: a second's worth.")] = None,
    kernels: Annotated[bool, typer.Option("--kernels", help="Each kernel beside the machine's roof.")] = False,
    entry: Entry = None,
    target: Target = None,
    device: Device = None,
    cache_dir: CacheDir = None,
    json_file: JsonFile = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Measure a package and its kernels; or a model beside eager torch and other compilers."""
    from ..compiler.bench.command import bench_packages, bench_source, check_file, is_source, refuse

    check_file(Path(json_file) if json_file not in (None, "-") else None)
    check_format(file, package=True)
    if not is_source(file):
        own = {"--against": against, "--batch": batch, "--input": inputs, "--html": html, "--tolerance": tolerance}
        refuse(own, "a model, not for a package", "Name the model's source: mycc bench model.py --against eager,aoti.")
        from ..runtime.execute import parse_sizes
        from ..runtime.render import render_bench

        results = bench_packages(file, threads, sizes=parse_sizes(sizes or []), runs=runs, entry=entry, target=target,
                                 device=device, kernels=kernels or verbose)  # fmt: skip
        if json_file is None:
            for result in results:
                print_rich(render_bench(result))
        else:
            write_json(results[0] if len(results) == 1 else results, json_file, "bench/1")
        return
    own = {"--size": sizes, "--runs": runs, "--kernels": kernels, "--entry": entry, "--device": device}
    refuse(own, "a package, not for a model", "Compile the model first: mycc compile model.py --out model.pkg.")
    check_file(html)
    from ..compiler.bench.page import html_page
    from ..compiler.bench.report import render_case, render_summary, write_text

    with stdout_to_stderr(json_file == "-"):
        comparison = bench_source(
            file, against, threads, batch, inputs=tuple(inputs or ()), seconds=seconds, turns=turns,
            tolerance=tolerance, show=lambda case: print_rich(render_case(case)), observers=[progress(quiet)],
            compile_options={"target": target or "cpu", "cache_dir": cache_dir},
        )  # fmt: skip
        print_rich(render_summary(comparison))
    if json_file is not None:
        write_json(comparison.as_dict(), json_file, "comparison/1")
    if html is not None:
        write_text(html, html_page(comparison, strftime("%Y-%m-%d %H:%M")))
    if not comparison.accurate:
        raise typer.Exit(1)

"""Arguments that several commands take and that are none of a compile: those are made from the record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..arguments import CompileArguments, arguments_of
from .record import option_of

__all__ = [
    "CacheDir",
    "Device",
    "Dynamic",
    "Entry",
    "Examples",
    "Json",
    "Package",
    "Quiet",
    "Sizes",
    "Source",
    "Target",
    "Threads",
    "Verbose",
]

_OF_COMPILE = arguments_of(CompileArguments)
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Package = Annotated[Path, typer.Argument(metavar="FILE", help="A package (model.pkg).")]
Threads = Annotated[int | None, option_of(_OF_COMPILE["threads"][1])]
Target = Annotated[str | None, typer.Option("--target", help="One of the package's targets. Default: the best here.")]
Device = Annotated[
    str | None, typer.Option("--device", help="cpu, cuda or cuda:1. Default: a GPU that it has code for, else the CPU.")
]
Entry = Annotated[str | None, typer.Option("--entry", help="Which entry point. Default: the first.")]
Sizes = Annotated[
    list[str] | None, typer.Option("--size", "--set", metavar="NAME=SIZE", help="A dynamic size: batch=4.")
]
CacheDir = Annotated[Path | None, option_of(_OF_COMPILE["cache_dir"][1])]
Source = Annotated[
    str, typer.Argument(metavar="SOURCE", help="model.py, model.py:factory, package.module:factory or program.pt2.")
]
Examples = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="X=DTYPE[SIZES]", help="Replaces or makes an example input: x=f32[1,3,224,224]."),
]
Dynamic = Annotated[
    list[str] | None, typer.Option("--dynamic", metavar="X:DIM=SIZE", help="A size that changes: x:0=batch(1..64).")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress: only results, warnings and errors.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="More detail; tracebacks of internal errors.")]

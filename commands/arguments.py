"""Arguments that several commands take and that are none of a compile: those are made from the record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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
    "JsonFile",
    "Package",
    "Quiet",
    "Sizes",
    "Source",
    "Target",
    "Threads",
    "Verbose",
    "out_option",
    "size_option",
]


def out_option(help: str) -> Any:
    """The file that a command writes: Annotated[Path | None, out_option("The package.")]."""
    return typer.Option("--out", "-o", metavar="FILE", help=help)


def size_option(*names: str) -> Any:
    """Values of dynamic sizes; --set as well where it does not say options of a compile."""
    return typer.Option("--size", *names, metavar="NAME=SIZE", help="A dynamic size: batch=4.")


_OF_COMPILE = arguments_of(CompileArguments)
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
JsonFile = Annotated[
    str | None, typer.Option("--json", metavar="[FILE]", help="Print the result as JSON, or write it to FILE.")
]
Package = Annotated[Path, typer.Argument(metavar="FILE", help="A package (model.pkg).")]
Threads = Annotated[int | None, option_of(_OF_COMPILE["threads"][1])]
Target = Annotated[str | None, typer.Option("--target", help="One of the package's targets. Default: the best here.")]
Device = Annotated[
    str | None, typer.Option("--device", help="cpu, cuda or cuda:1. Default: a GPU that it has code for, else the CPU.")
]
Entry = Annotated[str | None, typer.Option("--entry", help="Which entry point. Default: the first.")]
Sizes = Annotated[list[str] | None, size_option("--set")]
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

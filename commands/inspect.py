"""`mycc inspect`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from .arguments import Json, Package, Sizes, Verbose
from .console import print_json, print_rich

__all__ = ["inspect_command"]


def inspect_command(
    file: Package,
    fusions: Annotated[
        bool, typer.Option("--fusions", help="List the fusions: which were done, which not, and why.")
    ] = False,
    members: Annotated[bool, typer.Option("--members", help="The members of the package and their sizes.")] = False,
    sizes: Sizes = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show what a package is: signature, targets, kernels with their source lines, memory, sizes."""
    from ..runtime.execute import parse_sizes
    from ..runtime.inspect import inspect_package

    facts = inspect_package(os.fspath(file))
    if as_json:
        print_json(facts, "inspect/1")
    else:
        from ..runtime.render import render_inspection

        print_rich(render_inspection(facts, fusions, members or verbose, parse_sizes(sizes or [])))

"""`mycc weights`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..runtime.text import counted
from .arguments import Json, Package, Verbose, out_option
from .console import print_json, print_rich

__all__ = ["weights_command"]


def weights_command(
    file: Package,
    weights: Annotated[
        Path, typer.Argument(metavar="WEIGHTS", help="A safetensors file with the names of the model's state_dict().")
    ],
    out: Annotated[Path | None, out_option("The new package. Default: in place of the old.")] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Tensors that are missing stay as they are.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Put other weights, such as those of a training package, into a package for inference."""
    from ..compiler.package.other_weights import replace_weights

    done = replace_weights(file, weights, out, partial=partial)
    if as_json:
        print_json({"package": str(done.path), "replaced": done.replaced, "kept": list(done.kept)}, "weights/1")
    else:
        kept = f"; {len(done.kept)} stayed as they were" if done.kept else ""
        print_rich(f"{done.path}: {counted(done.replaced, 'tensor')} replaced{kept}")

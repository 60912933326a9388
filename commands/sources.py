"""The model that a command is given, and the observer of its compile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..compiler.capture.source import Source
    from ..compiler.observe import Observer

__all__ = ["check_format", "load_model", "progress"]


def check_format(file: str, package: bool = False) -> None:
    """Refuses weights, packages and files of other tools at once, before torch is imported. Raises InputError.

    package: a package will do too.
    """
    from ..runtime.errors import InputError
    from ..runtime.formats import refusal

    if (refused := refusal(file, package=package, source=True)) is not None:
        raise InputError(refused[0], hint=refused[1])


def load_model(source: str, inputs: Sequence[str]) -> Source:
    """A model's source, with other examples where `--input` gives some, or those alone where it has none of its own.

    Raises CompileError.
    """
    from ..compiler.capture.given import with_inputs
    from ..compiler.capture.source import load_source

    return with_inputs(load_source(source, needs_inputs=not inputs), inputs)


def progress(quiet: bool = False) -> Observer:
    """Prints a line for each stage on standard error; quiet: warnings alone."""
    from ..compiler.progress import ProgressObserver

    return ProgressObserver(quiet=quiet)

"""What the pipeline is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .options import CompileOptions

if TYPE_CHECKING:
    from .capture.export import CaptureRequest

__all__ = ["CompileRequest"]


@dataclass(frozen=True)
class CompileRequest:
    """One package to make.

    Attributes:
        entries: its entry points, at least one, names all different.
        options: checked options.
        out: the package's path; its directory exists.
        name: the package's name, a Python identifier: it can be imported by it.
        warnings: what was found already and is no error.
    """

    entries: tuple[CaptureRequest, ...]
    options: CompileOptions
    out: Path
    name: str
    warnings: tuple[str, ...] = ()

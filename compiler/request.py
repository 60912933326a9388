"""What the pipeline is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import CompileOptions

if TYPE_CHECKING:
    from .capture.export import CaptureRequest
    from .training.request import TrainingRequest

__all__ = ["CompileRequest", "Task"]


@dataclass(frozen=True)
class Task:
    """What a package is for, beside its functions.

    Attributes:
        facts: the manifest's row "task"; its "name" says which task.
        files: name -> bytes, members of the package in its folder task/.
    """

    facts: Mapping[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class CompileRequest:
    """One package to make.

    Attributes:
        entries: its entry points, at least one unless it trains, names all different.
        options: checked options.
        out: the package's path; its directory exists.
        name: the package's name, a Python identifier: it can be imported by it.
        warnings: what was found already and is no error.
        task: what the package is for; None: its functions alone.
        training: of a package that trains, in place of the entry points.
    """

    entries: tuple[CaptureRequest, ...]
    options: CompileOptions
    out: Path
    name: str
    warnings: tuple[str, ...] = ()
    task: Task | None = None
    training: TrainingRequest | None = None

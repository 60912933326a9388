"""What is no CompileError when it leaves a stage: a fault of mycc, told with its stage, node and line of the model."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any

from ..runtime.errors import CompileError, CompilerFault, Error

__all__ = ["reporting_faults"]

_OWN = str(Path(__file__).resolve().parent) + "/"
_REPORT = (
    "This is a fault of mycc, not of your model. Please report it with this text and what `mycc compile -v` prints."
)


@contextmanager
def reporting_faults(stage: str) -> Iterator[None]:
    """An exception that is no error for the user leaves the body as a CompileError that names the stage, the node at
    work, its line of the user's model, and the line of mycc."""
    try:
        yield
    except Error:
        raise
    except SystemExit as error:
        raise CompileError(f"the model ended the program (exit code {error.code}) in stage '{stage}'") from error
    except MemoryError as error:
        raise CompileError(f"there is not enough memory for stage '{stage}'", details=_details(error)) from error
    except OSError as error:
        if error.strerror is None:
            raise _fault(error, stage) from error
        file = f"'{error.filename}': " if error.filename else ""
        raise CompileError(f"stage '{stage}' met an error of the system: {file}{error.strerror}") from error
    except Exception as error:
        raise _fault(error, stage) from error


def _fault(error: Exception, stage: str) -> CompilerFault:
    import torch

    from .. import __version__

    versions = (
        f"mycc {__version__}, torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}"
    )
    return CompilerFault(
        f"internal error in stage '{stage}': {_text(error)}", details=[*_details(error), versions], hint=_REPORT
    )


def _text(error: Exception) -> str:
    """The exception's kind and the first line of what it says."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # its own __str__ may be what fails
        lines = []
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def _details(error: BaseException) -> list[str]:
    """`add_1 (aten.add.Tensor)  model.py:12  x + y`, then notes of who called, then mycc's innermost line."""
    frames = [step for cause in _causes(error) for step in walk_tb(cause.__traceback__)]
    node = next((found for frame, _ in reversed(frames) if (found := _node_in(frame))), "")
    own = [(frame.f_code, line) for frame, line in frames if frame.f_code.co_filename.startswith(_OWN)]
    at = [f"at {Path(code.co_filename).name}:{line} in {code.co_name}" for code, line in own[-1:]]
    return [*([node] if node else []), *getattr(error, "__notes__", ()), *at]


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what it was raised from, the root last."""
    while error is not None:
        yield error
        error = error.__cause__


def _node_in(frame: FrameType) -> str:
    """The node that a function works on: by the name of its variable before others."""
    values = sorted(frame.f_locals.items(), key=lambda item: item[0] not in ("node", "n", "call"))
    for describe in (_graph_node, _loop_node):
        for _, value in values:
            if found := describe(value):
                return found
    return ""


def _graph_node(value: Any) -> str:
    from torch.fx import Node

    from .model.source_lines import place_of

    if not isinstance(value, Node) or value.op in ("output", "placeholder"):
        return ""
    return f"{value.name} ({value.target})  {place_of(value)}".rstrip()


def _loop_node(value: Any) -> str:
    """What stands in the loop IR, or holds what stands there."""
    from .ir.nodes import Origin

    for holder in (value, getattr(value, "node", None)):
        origin = getattr(holder, "origin", None)
        if isinstance(origin, Origin) and origin.ops:
            return origin.describe()
    return ""

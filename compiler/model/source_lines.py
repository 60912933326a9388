"""Which line of the user's model a node came from."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from traceback import FrameSummary, StackSummary, extract_tb
from types import FrameType, TracebackType
from typing import Any
from unittest.mock import patch

import torch
from torch import fx
from torch.fx.proxy import TracerBase

__all__ = [
    "ROOT",
    "Frame",
    "Origin",
    "frames_of_exception",
    "is_torch_file",
    "is_user_file",
    "module_of",
    "modules_of",
    "origin",
    "pick",
    "pick_user_line",
    "place_of",
    "recording_lines",
    "user_frame",
]

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$')
_TORCH = str(Path(torch.__file__).parent) + "/"
_LIBRARY_DIRS = tuple({sysconfig.get_paths()[key].rstrip("/") + "/" for key in ("purelib", "platlib", "stdlib")})
#: what Python and notebooks call code that was typed in; torch and others call what they generate by other names
_TYPED_IN = ("<stdin>", "<ipython-input", "<python-input", "<doctest ")
_STRING = "<string>"  # code of `python -c` and exec, and constructors that the standard library generates
ROOT = "mycc_model"  # the attribute under which capture's wrapper holds the user's model
_OWN_DIRS = tuple({str(path.parents[1]) + "/" for path in (Path(__file__).absolute(), Path(__file__).resolve())})
#: what stands in capture/ for functions of torch
_FORMS = (
    "by_shape", "checked", "detections", "masks", "out_arguments", "pools", "recurrent", "result_types", "sparse",
    "tensor_indices",
)  # fmt: skip
_CALLED_BY_MODELS = tuple(f"{folder}capture/{file}.py" for folder in _OWN_DIRS for file in _FORMS)


@dataclass(frozen=True)
class Frame:
    """One line of a call stack."""

    file: str
    line: int
    function: str
    text: str


@dataclass(frozen=True)
class Origin:
    """The line that made a node.

    Attributes:
        file, line, text: the user's own line when one is on the stack, else the innermost one outside torch.
        module: qualified name of the innermost nn.Module ("encoder.layer.0"), "" for the root or none.
        inner: the innermost line outside torch (inside a model library, say) when it differs from the user's.
    """

    file: str
    line: int
    text: str
    module: str = ""
    inner: Frame | None = None

    @property
    def where(self) -> str:
        """`model.py:41`: the most telling place; a library's line inside the model before the user's call of it."""
        frame = self.inner or self
        return f"{Path(frame.file).name}:{frame.line}"

    def __str__(self) -> str:
        return f"{self.where}  {(self.inner or self).text}".rstrip()


@cache
def is_torch_file(file: str) -> bool:
    """Whether a file is torch's (stack traces may hold relative paths: torch/fx/...), this compiler's, or generated."""
    return file.startswith((_TORCH, "torch/", "<", *_OWN_DIRS)) and not file.startswith(_TYPED_IN)


@cache
def is_user_file(file: str) -> bool:
    """Whether a file is neither torch's, nor the standard library's, nor an installed package's."""
    return not is_torch_file(file) and not file.startswith(_LIBRARY_DIRS) and "/site-packages/" not in file


@cache
def _parse(stack_trace: str) -> tuple[Frame, ...]:
    frames: list[Frame] = []
    lines = stack_trace.splitlines()
    for i, line in enumerate(lines):
        if match := _FRAME.match(line):
            text = lines[i + 1].strip() if i + 1 < len(lines) and not _FRAME.match(lines[i + 1]) else ""
            frames.append(Frame(match["file"], int(match["line"]), match["function"], text))
    return tuple(frames)


def pick(frames: Sequence[Frame]) -> tuple[Frame, Frame] | None:
    """(the user's own innermost line, the innermost line outside torch) of a stack whose innermost frame is last."""
    outside = [f for f in frames if not is_torch_file(f.file)] or [f for f in frames if f.file == _STRING]
    if not outside:
        return None
    own = [f for f in outside if is_user_file(f.file)]
    return (own or outside)[-1], outside[-1]


def user_frame(frames: Sequence[Frame]) -> Frame | None:
    """The line to name in a message: the user's own innermost line, else the innermost one outside torch."""
    found = pick(frames)
    return found[0] if found else None


def pick_user_line(stack: Sequence[FrameSummary]) -> str:
    """`model.py:41  y = f(x)` for a stack of Python's, whose innermost frame is last; "" without a line."""
    frame = user_frame([_frame(summary) for summary in stack])
    return f"{frame.file}:{frame.line}  {frame.text}".rstrip() if frame else ""


def origin(node: fx.Node) -> Origin | None:
    """Where a node comes from; None when torch or the compiler made it up."""
    found = pick(_parse(node.meta.get("stack_trace") or ""))
    if found is None:
        return None
    user, inner = found
    return Origin(user.file, user.line, user.text, module_of(node), None if inner == user else inner)


def place_of(node: fx.Node) -> str:
    """Where a node comes from, for a message: the user's line, else its module, else nothing."""
    if where := origin(node):
        return str(where)
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    kind = getattr(stack[-1][1], "__name__", str(stack[-1][1])).rpartition(".")[2] if stack else ""
    module = module_of(node)
    return f"in module '{module}' ({kind})" if module else ""


def modules_of(node: fx.Node) -> list[tuple[str, str]]:
    """(qualified name, class) of the modules around a node, the outermost first; the root's name is ""."""
    found = []
    for path, kind in (node.meta.get("nn_module_stack") or {}).values():
        if not path.startswith("_empty_nn_module_stack"):
            name = getattr(kind, "__name__", str(kind)).rpartition(".")[2]
            found.append((str(path).removeprefix(ROOT).removeprefix("."), name))
    return found


def module_of(node: fx.Node) -> str:
    """The qualified name of the innermost nn.Module that made a node ("encoder.layer.0"); "" for the root or none."""
    stack = modules_of(node)
    return stack[-1][0] if stack else ""


def frames_of_exception(error: BaseException) -> list[Frame]:
    """The frames of an exception and of those it was raised from, outermost first, the root cause's last."""
    return [_frame(f) for e in _causes(error) for f in _summaries(e.__traceback__)]


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _summaries(traceback: TracebackType | None) -> list[FrameSummary]:
    return list(extract_tb(traceback)) if traceback is not None else []


def _frame(summary: FrameSummary) -> Frame:
    line = summary.lineno or 0
    text = summary.line or linecache.getline(summary.filename, line)
    return Frame(summary.filename, line, summary.name, text.strip())


@contextmanager
def recording_lines() -> Iterator[None]:
    """While it lasts torch's tracers note all lines of the model on a node's stack.

    By default they note only those in functions called `forward`, so that a plain function, or a method that forward
    calls, would have no line. And they take the whole stack for each node, which is a third of the time of an export
    that is called from deep within a program: here they get the model's part of it.
    """
    names = {"_filter_traceback_frames": TracerBase, "CapturedTraceback": fx.proxy}
    if not all(hasattr(owner, name) for name, owner in names.items()):
        yield  # a torch that filters elsewhere: its own choice of lines is good enough
        return
    with ExitStack() as stack:
        stack.enter_context(patch.object(TracerBase, "_filter_traceback_frames", lambda *_: _model_stack()))
        stack.enter_context(patch.object(fx.proxy, "CapturedTraceback", _NotTaken))
        yield


class _NotTaken:
    """Stands for the stack that torch would take, which the filter of frames leaves aside."""

    @staticmethod
    def extract(**_: Any) -> _NotTaken:
        return _NotTaken()

    @staticmethod
    def summary() -> bool:
        return True  # there is something to filter


def _model_stack() -> StackSummary:
    """The lines of the model on the stack, outermost first: those within the innermost call by this compiler."""
    found: list[FrameSummary] = []
    frame: FrameType | None = sys._getframe(2)  # what asks the filter
    while frame is not None and not _calls_model(file := frame.f_code.co_filename):
        if not is_torch_file(file) or file == _STRING:
            found.append(FrameSummary(file, frame.f_lineno, frame.f_code.co_name, lookup_line=False))
        frame = frame.f_back
    return StackSummary.from_list(found[::-1])


@cache
def _calls_model(file: str) -> bool:
    """Whether a file is this compiler's, and no form of a function of torch's that models call."""
    return file.startswith(_OWN_DIRS) and file not in _CALLED_BY_MODELS

"""What torch.export says when it fails, in short, with the user's line."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from torch.fx.experimental.symbolic_shapes import DimConstraints

from ...runtime.errors import CompileError, Error
from ..model.source_lines import Frame, frames_of_exception, is_torch_file, pick, user_frame

__all__ = ["export_failure", "place", "quiet_export", "whole_suggestions"]

SHAPES_LOG = "torch.fx.experimental.symbolic_shapes"
_LOGS = (SHAPES_LOG, "torch.export", "torch._export", "torch._dynamo", "torch._subclasses.fake_tensor")
_SIZE_OF = re.compile(r"L\['(?P<argument>\w+)'\](?:\[(?P<index>\d+)\])?\.size\(\)\[(?P<axis>\d+)\]")
_SPECIALISED = re.compile(
    r"You marked (?P<name>.+?) as dynamic but your code specialized it to be a constant \((?P<value>\d+)\)"
)
_FIXED = re.compile(r"set_replacement \w+ = (?P<value>\d+)\b")
_CREATED = re.compile(r"create_symbol (?P<symbol>\w+) = \d+ for (?P<source>\S+) ")
_ADDED = re.compile(r"^(?P<condition>.+?) \[guard added\]")
_NOT_ALL = re.compile(
    r"^Not all values of (?P<name>\w+)(?: = .*?)? in the specified range(?: .*?)? satisfy the generated guard "
)
_VIOLATED = re.compile(r"Not all values of \w+ = (?P<source>\S+) in the specified range")
_TRACED = "from user code:"  # before the lines of a branch's or loop's body
_FAKE_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\w+)\n\s*(?P<text>.*)')

_ON_TENSORS = (
    "Write it without a Python `if` or a loop that depends on a tensor's values, for example with torch.where, "
    "torch.cond or torch.while_loop (docs/control-flow.md)."
)
#: what torch says of tensors that its trace has lost sight of
_UNTRACED = ("fake tensor in the exported program constant's list", "'Tensor' object has no attribute 'constant'")
_ON_DERIVATIVES = (
    "Write x.detach() for x.data. Derivatives in forward (torch.autograd.grad, torch.func.grad) are traced beforehand: "
    "compile what torch.fx.experimental.proxy_tensor.make_fx(model, tracing_mode='symbolic', "
    "_allow_non_fake_inputs=True)(*args) gives."
)
_IN_BODIES = (
    "In a branch or loop, read places that are tensors by x.index_select(0, i), write by x.index_copy(0, i, rows), and "
    "do without Python `if`, `int()` and `.item()` on tensors."
)


#: what torch.export says of nn.GRU, nn.LSTM and nn.RNN, which assign these to themselves while they are exported
_FLAT_WEIGHTS = r"The tensor attributes? (self\.[\w.]*_flat_weights\[\d+\](, )?)+ (was|were) assigned during export"


@contextlib.contextmanager
def quiet_export() -> Iterator[None]:
    """Keeps torch's logs, deprecation warnings and half-made graphs off the terminal; the user's own output stays."""
    loggers = [logging.getLogger(name) for name in _LOGS]
    loggers = [logger for logger in loggers if not any(h in _listeners for h in logger.handlers)]
    levels = [logger.level for logger in loggers]
    captured = io.StringIO()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(captured):
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.filterwarnings("ignore", message=_FLAT_WEIGHTS)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        text = captured.getvalue()
        if text and "def forward(self" not in text:
            sys.stderr.write(text)


@contextlib.contextmanager
def whole_suggestions() -> Iterator[None]:
    """torch fails where the smallest size that it would suggest is a fraction (5/2 <= n): it suggests nothing then."""
    own = DimConstraints.prettify_results

    def suggestions(self: DimConstraints, *args: Any, **kwargs: Any) -> str:
        try:
            return own(self, *args, **kwargs)
        except AssertionError:
            return ""

    with mock.patch.object(DimConstraints, "prettify_results", suggestions):
        yield


class FixedSizes(logging.Handler):
    """Listens to torch's log for sizes that it takes for constants, and remembers the line of the model at work."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: dict[int, Frame] = {}  # size -> where it was fixed first
        self.symbols: dict[str, str] = {}  # torch's name of a dimension -> its symbol
        self.conditions: dict[str, Frame] = {}  # on sizes -> where they were asked first

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if match := _CREATED.search(message):
            self.symbols[match["source"]] = match["symbol"]
        fixed, added = _FIXED.search(message), _ADDED.search(message)
        if fixed or added:
            called = [f for f in traceback.extract_stack()[:-1] if f.filename != logging.__file__]
            stack = [Frame(f.filename, f.lineno or 0, f.name, f.line or "") for f in called]
            inside = [i for i, f in enumerate(stack) if f.function == "forward"]
            frame = user_frame(stack[inside[0] :]) if inside else None
            if fixed and frame:
                self.lines.setdefault(int(fixed["value"]), frame)
            if added and frame:
                self.conditions.setdefault(added["condition"], frame)

    def asked_about(self, source: str) -> list[str]:
        """The lines that asked for a condition on a dimension."""
        symbol = self.symbols.get(source)
        frames = [f for text, f in self.conditions.items() if symbol and re.search(rf"\b{symbol}\b", text)]
        return list(dict.fromkeys(map(place, frames)))


_listeners: list[logging.Handler] = []


@contextlib.contextmanager
def listening(handler: logging.Handler) -> Iterator[None]:
    """torch's log of sizes goes to the handler."""
    logger = logging.getLogger(SHAPES_LOG)
    level, propagate, handlers = logger.level, logger.propagate, logger.handlers[:]
    logger.setLevel(logging.INFO)
    logger.propagate, logger.handlers = False, [handler]
    _listeners.append(handler)
    try:
        yield
    finally:
        _listeners.remove(handler)
        logger.propagate, logger.handlers = propagate, handlers
        logger.setLevel(level)


def place(frame: Frame | None) -> str:
    """`model.py:41  h = h.view(2, -1)`"""
    return f"{Path(frame.file).name}:{frame.line}  {frame.text}".rstrip() if frame else ""


def export_failure(error: Exception, names: Sequence[str], retry: Callable[[], object]) -> Error:
    """The CompileError for an exception out of torch.export.

    Args:
        error: what was raised.
        names: names of the tensor inputs, in order.
        retry: does the export again; used to learn at which line a size was fixed.
    """
    if isinstance(error, Error):
        return error
    text = _rename(str(error), names)
    if specialised := list(_SPECIALISED.finditer(text)):
        return _specialised(text, specialised, retry)
    if "Constraints violated" in text:
        return _constraints(text, str(error), retry)
    frames = frames_of_exception(error)
    lines = _quoted_places(text.partition(_TRACED)[2]) or _places(frames) or _quoted_places(text)
    if "data-dependent" in text or type(error).__name__ == "GuardOnDataDependentSymNode":
        return CompileError(
            "the model cannot be exported: its control flow or a size depends on the values of a tensor",
            details=lines,
            hint=_IN_BODIES if _TRACED in text else _ON_TENSORS,
        )
    if "Encountered input mutation" in text:
        return CompileError(
            "the model cannot be exported: the body of a map, scan or associative_scan writes to memory from outside",
            details=lines,
            hint="Return the new value from it, or write a torch.while_loop, whose body may write.",
        )
    if any(sign in text for sign in _UNTRACED):
        return CompileError(
            "the model cannot be exported: torch.export takes a tensor of the trace for a constant",
            details=lines,
            hint=_ON_DERIVATIVES,
        )
    return CompileError(f"the model cannot be exported: {_first_lines(error, text)}", details=lines)


def _rename(text: str, names: Sequence[str]) -> str:
    """torch's `L['tensors'][0].size()[1]` as `x dimension 1`."""

    def readable(match: re.Match[str]) -> str:
        index = int(match["index"]) if match["index"] else None
        name = names[index] if index is not None and index < len(names) else match["argument"]
        return f"{name} dimension {match['axis']}"

    return _SIZE_OF.sub(readable, text)


_FIXES = "the model fixes a dimension that was asked to be dynamic"
_SIZES = "Take sizes from x.shape instead of constants on these lines, or leave the dimension fixed."


def fixes_a_size(error: Error) -> bool:
    """Whether a refusal says that the model makes a constant of a dynamic size, or takes fewer than it is asked to."""
    return error.message == _FIXES or "but the model works for" in error.message


def check_dynamic(shapes: Sequence[Sequence[object]], names: Sequence[str], dims: Sequence[Mapping[int, Any]]) -> None:
    """torch.export may take the example's size for a named dimension without a word: where the model makes a size of 1
    of it in several steps.

    Raises:
        CompileError: a dimension of an input is a number that was asked to have a range.
    """
    for shape, name, by_axis in zip(shapes, names, dims, strict=True):
        for axis, dim in by_axis.items():
            root = getattr(dim, "root", dim)
            named = hasattr(root, "__name__") and root.min != root.max
            if named and isinstance(shape[axis], int):
                raise CompileError(
                    _FIXES,
                    details=[f"{root.__name__} ({name} dimension {axis}) is fixed to {shape[axis]}"],
                    hint=_SIZES,
                )


def _specialised(text: str, matches: Sequence[re.Match[str]], retry: Callable[[], object]) -> CompileError:
    fixed = _listened(retry)
    details = []
    for match in matches:
        where = re.search(rf"\b{re.escape(match['name'])} = (\w+ dimension \d+)", text)
        name = f"{match['name']} ({where[1]})" if where else match["name"]
        details.append(f"{name} is fixed to {match['value']}  {place(fixed.lines.get(int(match['value'])))}".rstrip())
    return CompileError(
        _FIXES,
        details=list(dict.fromkeys(details)),
        hint=_SIZES,
    )


def _listened(retry: Callable[[], object]) -> FixedSizes:
    fixed = FixedSizes()
    with listening(fixed), contextlib.suppress(Exception):
        retry()
    return fixed


def _constraints(text: str, original: str, retry: Callable[[], object]) -> CompileError:
    head, _, fixes = text.partition("Suggested fixes:")
    found = [line.strip().removeprefix("- ") for line in head.splitlines() if line.strip().startswith("- ")]
    details = [_NOT_ALL.sub(r"\g<name> does not always satisfy ", line).rstrip(".") for line in found]
    fixed = _listened(retry)
    sources = dict.fromkeys(match["source"] for match in _VIOLATED.finditer(original))
    lines = list(dict.fromkeys(line for source in sources for line in fixed.asked_about(source)))
    wanted = [line.strip() for line in fixes.split("\n\n")[0].splitlines() if line.strip()]
    return CompileError(
        "the model does not work for all sizes of the dynamic range",
        details=[*list(dict.fromkeys(details))[:3], *lines[:3]],
        hint=f"Sizes that work: {'; '.join(wanted)}" if wanted else None,
    )


def _places(frames: Sequence[Frame]) -> list[str]:
    """The user's line, and the library's line inside it when that is another."""
    inside = [i for i, f in enumerate(frames) if is_torch_file(f.file) and "/export" in f.file]
    found = pick(frames[inside[0] :] if inside else frames)
    if found is None:
        return []
    user, inner = found
    return [place(user)] if user == inner else [place(user), place(inner)]


def _quoted_places(text: str) -> list[str]:
    frames = [Frame(m["file"], int(m["line"]), m["function"], m["text"].strip()) for m in _FAKE_FRAME.finditer(text)]
    return _places(frames)


def _first_lines(error: Exception, text: str) -> str:
    """The first line of torch's text that says something, without its advice."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reason = lines[0] if lines else type(error).__name__
    if reason.endswith(":") and len(lines) > 1:
        reason = f"{reason} {lines[1]}"
    known = reason.startswith(type(error).__name__) or type(error).__module__.startswith("torch")
    return (reason if known else f"{type(error).__name__}: {reason}")[:400]

"""Observers of the pipeline: timing, progress and dumps are told what happens, and change nothing."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from ..runtime.errors import CompileError
from .faults import reporting_faults

__all__ = ["DumpObserver", "Observer", "StageTime", "TimingObserver", "running_stage", "warn", "warn_all"]


class Observer:
    """Told by the driver of every stage. All methods do nothing here; override what you need."""

    def stage_started(self, name: str) -> None:
        """A stage begins."""

    def stage_works_on(self, name: str, text: str) -> None:
        """What a stage that has begun works on, where that takes long and the stage's name does not say it."""

    def stage_finished(self, name: str, seconds: float, summary: str, value: object) -> None:
        """A stage ended: `summary` is one line for a person, `value` what it returned (has format() or __str__)."""

    def stage_failed(self, name: str) -> None:
        """A stage raised; the error itself goes to the caller."""

    def warning(self, text: str) -> None:
        """Something the user should know, that is no error."""


def warn(observers: Sequence[Observer], text: str) -> None:
    """Tells the observers, or without any Python's warnings."""
    for observer in observers:
        observer.warning(text)
    if not observers:
        warnings.warn(text, stacklevel=_levels_to_the_user())


def warn_all(observers: Sequence[Observer], texts: Sequence[str], strict: bool) -> None:
    """Tells warnings; strict: raises CompileError with all of them where there is one."""
    if texts and strict:
        raise CompileError(texts[0], details=texts[1:], hint="Without strict this is a warning.")
    for text in texts:
        warn(observers, text)


def _levels_to_the_user() -> int:
    """How far up the stack the code lies that called mycc: a warning names its line."""
    own = str(Path(__file__).resolve().parents[1])
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(Path(frame.f_code.co_filename).resolve()).startswith(own + "/compiler"):
        frame, level = frame.f_back, level + 1
    return level


class StageResult:
    """Filled in by the code of a stage inside running_stage: what it returned, and its line for a person."""

    def __init__(self) -> None:
        self.value: object = None
        self.summary = ""


@contextmanager
def running_stage(observers: Sequence[Observer], name: str) -> Iterator[StageResult]:
    """Tells the observers of a stage around the code that does it; what is no error for the user becomes one that names
    the stage, the node and its line.

    with running_stage(observers, "capture") as stage:
        stage.value = capture(...)
        stage.summary = "412 nodes"
    """
    for observer in observers:
        observer.stage_started(name)
    result, start = StageResult(), perf_counter()
    try:
        with reporting_faults(name):
            yield result
    except BaseException:
        for observer in observers:
            observer.stage_failed(name)
        raise
    seconds = perf_counter() - start
    for observer in observers:
        observer.stage_finished(name, seconds, result.summary, result.value)


@dataclass(frozen=True)
class StageTime:
    """One stage of a compile that ended."""

    name: str
    seconds: float
    summary: str


class TimingObserver(Observer):
    """Keeps name, seconds and summary of every stage, and the warnings."""

    def __init__(self) -> None:
        self.stages: list[StageTime] = []
        self.warnings: list[str] = []

    def stage_finished(self, name: str, seconds: float, summary: str, value: object) -> None:
        self.stages.append(StageTime(name, seconds, summary))

    def warning(self, text: str) -> None:
        self.warnings.append(text)


class DumpObserver(Observer):
    """Writes every stage's value to DIR as text: 01-capture.txt, 02-graph.txt, ...

    A value prints itself by format() or else str(); a sequence of values (several entry points) one after another.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._count = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for old in directory.glob("[0-9][0-9]-*.txt"):  # of an earlier compile
                old.unlink()
        except OSError as error:
            raise CompileError(f"cannot write dumps to '{directory}': {error.strerror}") from None

    def stage_finished(self, name: str, seconds: float, summary: str, value: object) -> None:
        self._count += 1
        stem = re.sub(r"\W+", "-", name)
        path = self.directory / f"{self._count:02}-{stem}.txt"
        try:
            path.write_text(_text(value), encoding="utf-8")
        except OSError as error:
            raise CompileError(f"cannot write the dump '{path}': {error.strerror}") from None


def _text(value: object) -> str:
    if isinstance(value, str):
        text = value
    elif isinstance(value, (list, tuple)):
        text = "\n".join(_text(part).rstrip("\n") + "\n" for part in value)
    else:
        form = getattr(value, "format", None)
        text = form() if callable(form) else str(value)
    return text if text.endswith("\n") else text + "\n"

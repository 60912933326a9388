"""What a compile shows while it works: a line per stage with its time and what it found."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from .observe import Observer

__all__ = ["ProgressObserver"]


class ProgressObserver(Observer):
    """A line per stage on `stream`, standard error by default; on a terminal a spinner while the stage runs. quiet:
    warnings alone."""

    def __init__(self, stream: TextIO | None = None, quiet: bool = False) -> None:
        self.stream = stream if stream is not None else sys.stderr
        self.quiet = quiet
        self._status: Any = None
        self._console: Any = None
        if self.stream.isatty():
            from rich.console import Console

            self._console = Console(file=self.stream, highlight=False, soft_wrap=True)

    def stage_started(self, name: str) -> None:
        if self._console is not None and not self.quiet:
            self._status = self._console.status(name, spinner="dots")
            self._status.start()

    def stage_works_on(self, name: str, text: str) -> None:
        if self._status is not None:
            self._status.update(f"{name:<8}{text}")

    def stage_finished(self, name: str, seconds: float, summary: str, value: object) -> None:
        self._stop()
        if self.quiet:
            return
        if self._console is not None:
            from rich.text import Text

            self._console.print(Text.assemble((f"{name:<10}", "bold"), (f"{seconds:5.1f} s  ", "cyan"), summary))
        else:
            print(f"{name:<10}{seconds:5.1f} s  {summary}".rstrip(), file=self.stream, flush=True)

    def stage_failed(self, name: str) -> None:
        self._stop()

    def warning(self, text: str) -> None:
        if self._console is not None:
            from rich.text import Text

            self._console.print(Text.assemble(("warning: ", "bold yellow"), text))
        else:
            print(f"warning: {text}", file=self.stream, flush=True)

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

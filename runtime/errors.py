"""The errors a user of mycc can meet.

Every error says what is wrong, where, and what to do. `str(error)` is the whole text for the user: the message, the
details below it (indented), and the hint.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["CompileError", "CompilerFault", "Error", "InputError", "LoadError", "RunError"]


class Error(Exception):
    """Base of all errors of mycc.

    Attributes:
        message: what is wrong, in one or a few lines.
        details: one line per finding, in order (which operators, where in the user's file, ...); may be empty.
        hint: what to do about it, or None.
    """

    message: str
    details: list[str]
    hint: str | None

    def __init__(self, message: str, *, details: Sequence[str] = (), hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = list(details)
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.message]
        lines += [f"  {line}" for detail in self.details for line in detail.splitlines() or [""]]
        if self.hint:
            lines += [f"  {line}" for line in self.hint.splitlines()]
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.details, self.hint)


class CompileError(Error):
    """The model, its inputs or the options cannot be compiled."""


class CompilerFault(CompileError):
    """The compiler itself is at fault: an exception that no check foresaw. The command's exit code is 3."""


class _NativeError(Error):
    """An error that libmycc.so raises too: its text has the hint behind a line end and two spaces."""

    def __init__(self, message: str, *, details: Sequence[str] = (), hint: str | None = None) -> None:
        if hint is None and not details:
            message, _, behind = message.partition("\n  ")
            hint = behind.replace("\n  ", "\n") or None
        super().__init__(message, details=details, hint=hint)


class LoadError(_NativeError):
    """A package cannot be loaded: damaged, of an unknown version, or built for another machine."""


class InputError(_NativeError):
    """A call was given inputs that do not match the package's signature.

    Attributes:
        input: the number of the input among those of the flattened arguments, where one alone is wrong and the native
            side, which does not know its name, has found it; else None.
        finding: what is wrong with that input, as the message says it behind "input N"; "" where input is None.
    """

    input: int | None = None
    finding: str = ""

    @classmethod
    def of_input(cls, input: int, finding: str, hint: str | None = None) -> InputError:
        """The error of an input that is known by its number; finding begins with a space or a comma."""
        error = cls(f"input {input}{finding}", hint=hint)
        error.input, error.finding = input, finding
        return error


class RunError(_NativeError):
    """A package failed while it ran (memory, an index out of range, ...)."""


def _rebuild(kind: type[Error], message: str, details: list[str], hint: str | None) -> Error:
    return kind(message, details=details, hint=hint)

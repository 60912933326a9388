"""Options of commands, made from the records of arguments.py."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from enum import Enum, StrEnum
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from ..arguments import Argument, arguments_of

__all__ = ["completion_of", "option_of", "with_options"]

#: a shorthand of the command line, and what it adds to --set
_TF32 = "codegen.tf32=yes"
_TF32_OPTION = typer.Option("--tf32", help="On a GPU: products of float32 may round to 10 bits of mantissa.")


def with_options(*records: type, only: Iterable[str] = (), tf32: bool = False) -> Callable[[Any], Any]:
    """Gives a command the options of records for its `**given`, between its positional and its keyword-only parameters.

    given has what was typed and is not the default, by the names of Python. only: of these names; none: all. tf32: with
    the shorthand --tf32.
    """
    arguments = {name: argument for record in records for name, (_, argument) in arguments_of(record).items()}
    wanted = tuple(only) or tuple(name for name, argument in arguments.items() if argument.option)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.kind is not p.VAR_KEYWORD]
        made = [_parameter(name, arguments[name]) for name in wanted]
        if tf32:
            hint = Annotated[bool, _TF32_OPTION]
            made.append(inspect.Parameter("tf32", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=hint))
        behind = [p for p in own if p.kind is p.KEYWORD_ONLY]
        before = [p for p in own if p.kind is not p.KEYWORD_ONLY]

        @functools.wraps(command)
        def call(**values: Any) -> None:
            if values.pop("tf32", False):
                values["options"] = [_TF32, *(values.get("options") or ())]
            for name in wanted:
                value = values.pop(name, None)
                if value not in (None, arguments[name].default):
                    values[name] = value.value if isinstance(value, Enum) else value
            command(**values)

        signature = inspect.Signature([*(p.replace(kind=p.KEYWORD_ONLY) for p in before), *made, *behind])
        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

    return decorate


def option_of(argument: Argument) -> Any:
    """What typer is told of an argument: Annotated[int | None, option_of(...)]."""
    completion = completion_of(argument.values) if argument.values else None
    return typer.Option(*argument.option, help=argument.help, metavar=argument.metavar, autocompletion=completion)


def completion_of(words: Iterable[str]) -> Callable[[str], list[str]]:
    """What typer calls for the words that a shell offers behind what is typed of a value."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def _parameter(name: str, argument: Argument) -> inspect.Parameter:
    kind: Any = argument.kind
    if get_origin(kind) is Literal:  # not every typer takes a Literal
        make: Any = StrEnum
        kind = make(name, {word: word for word in get_args(kind)})
    default = None if argument.default == () else argument.default
    hint: Any = Annotated[kind, option_of(argument)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)

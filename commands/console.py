"""What the commands share: errors and exit codes, arguments that typer cannot read by itself, help, printing."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from .. import __version__
from ..runtime.errors import CompilerFault, Error
from ..runtime.installation import NO_COMPILER, how_to_install
from ..runtime.strict_json import encode, finite
from ..runtime.text import printable

__all__ = [
    "FIRST_STEPS",
    "BisectCommand",
    "CompileCommand",
    "ErrorGroup",
    "ExplainCommand",
    "JsonFileCommand",
    "PlainCommand",
    "about",
    "print_json",
    "print_rich",
    "stdout_to_stderr",
    "write_json",
]


_ROOT = __package__.rpartition(".")[0]


class ErrorGroup(TyperGroup):
    """Turns exceptions into a message and an exit code: 2 for the user's errors, 3 for our own. Never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Error as error:
            status = 3 if isinstance(error, CompilerFault) else 2
            if _json_wanted():
                _print_error_as_json(error.message, error.details, error.hint, status)
            _print_error(error)
            if _verbose():
                _print_traceback()
            raise typer.Exit(status) from None
        except BrokenPipeError:  # the reader of a pipe has had enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(130) from None
        except Exception as error:
            if type(error).__module__.startswith(("click", "typer")):
                raise
            if (missing := _missing_part(error)) is not None:
                _print_error(missing)
                raise typer.Exit(2) from None
            if _json_wanted():
                _print_error_as_json(f"internal error: {type(error).__name__}: {error}", [], None, 3)
            _print_internal_error(error)
            raise typer.Exit(3) from None


class PlainCommand(TyperCommand):
    """A command whose usage names its arguments as they are typed: FILE, not {FILE}."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"^\{(.*)\}(\.\.\.)?$", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]


class CompileCommand(PlainCommand):
    """A command whose `--specialize` takes all the sizes that follow: --specialize batch=1,8 seq=128."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words: list[str] = []
        for i, word in enumerate(args):
            follows = i >= 2 and words[-2] == "--specialize"
            words += ["--specialize", word] if follows and re.fullmatch(r"\w+=[\d,]+", word) else [word]
        return super().parse_args(ctx, words)


class FileOptionCommand(PlainCommand):
    """A command with an option that may stand alone, where it means `alone`."""

    option, alone = "", ""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        for i in reversed(range(len(words))):
            last = i + 1 == len(words) or (words[i + 1].startswith("-") and words[i + 1] != "-")
            if words[i] == self.option and last:
                words.insert(i + 1, self.alone)
        return super().parse_args(ctx, words)


class JsonFileCommand(FileOptionCommand):
    """`--json` alone prints, `--json FILE` writes to a file."""

    option, alone = "--json", "-"


class ExplainCommand(JsonFileCommand):
    """`--json` as of JsonFileCommand."""


class BisectCommand(FileOptionCommand):
    """`--bisect` alone writes its reproducer to ./repro."""

    option, alone = "--bisect", "repro"


# -- what the help says -----------------------------------------------------------------------------------------------

#: command -> its line in the list of commands (45 letters fit into 80 columns), and examples
_HELP = {
    "compile": ("Compile a model to a package.", (
        "mycc compile model.py --out model.pkg",
        "mycc compile model.py:get_model --dynamic 'x:0=batch(1..64)'",
        "mycc compile model.py --target cpu,cuda:sm_90 --dtype bf16",
        "mycc compile ./gpt2 --task text-generation --out text.pkg",
    )),
    "check": ("Say in seconds whether a model compiles.", ("mycc check model.py", "mycc check model.py --json")),
    "run": ("Run a package.", (
        "mycc run model.pkg --size batch=4 --out out.npz",
        "mycc run model.pkg --input inputs.npz",
        'mycc run text.pkg --prompt "Once upon a time"',
    )),
    "serve": ("Answer OpenAI's requests with a package.", (
        "mycc serve text.pkg --port 8000",
        "curl -s localhost:8000/v1/models",
    )),
    "weights": (
        "Put other weights into a package.",
        ("mycc weights model.pkg weights.safetensors", "mycc weights model.pkg weights.safetensors --out new.pkg"),
    ),
    "inspect": ("Show what a package is.", ("mycc inspect model.pkg", "mycc inspect model.pkg --fusions")),
    "verify": ("Check a package's hashes and its results.", (
        "mycc verify model.pkg", "mycc verify model.py model.pkg --bisect",
    )),
    "bench": ("Measure a package, or a model beside others.", (
        "mycc bench model.pkg --kernels",
        "mycc bench model.py --against eager,aoti,ort --threads 1,2 --html report.html",
    )),
    "explain": ("Show what became of a model, as one page.", (
        "mycc explain model.pkg --measure --open",
        "mycc explain model.py --out report.html",
        "mycc explain new.pkg --against old.pkg",
    )),
    "doctor": ("Say what is installed here, what is missing.", ("mycc doctor", "mycc doctor --json")),
}  # fmt: skip

FIRST_STEPS = "\b\nFirst steps:\n  mycc doctor\n  mycc compile model.py --out model.pkg\n  mycc run model.pkg"


def about(command: str) -> dict[str, Any]:
    """What typer is told of a command: its line in the list, and the examples below its options."""
    line, examples = _HELP[command]
    return {"short_help": line, "epilog": "\n".join(["\b", "Examples:", *(f"  {text}" for text in examples)])}


# -- printing ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def stdout_to_stderr(wanted: bool) -> Iterator[None]:
    """With --json standard output is the JSON's alone: what the user's model prints goes to standard error."""
    with contextlib.redirect_stdout(sys.stderr) if wanted else contextlib.nullcontext():
        yield


def print_json(value: object, schema: str = "") -> None:
    """schema: its name and version ("run/1"): the first field "schema" of an object, or of each object of a list."""
    print(encode(finite(_named(value, schema)), indent=2, default=str))


def _named(value: object, schema: str) -> object:
    if isinstance(value, list):
        return [_named(item, schema) for item in value]
    return {"schema": f"mycc.{schema}", **value} if schema and isinstance(value, dict) else value


def write_json(value: object, file: str, schema: str = "") -> None:
    """To a file, or with "-" to standard output. schema: as of print_json."""
    if file == "-":
        print_json(value, schema)
        return
    from ..runtime.errors import InputError

    try:
        text = encode(finite(_named(value, schema)), indent=1, default=str)
        Path(file).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write '{file}': {error.strerror}") from None


def print_rich(renderable: Any) -> None:
    from rich.console import Console
    from rich.segment import Segment, Segments

    if not sys.stdout.isatty():  # into a file or pipe: no line is cut, none ends in blanks
        console = Console(highlight=False, soft_wrap=True, width=10_000, color_system=None)
        text = "".join(printable(s.text) for s in console.render(renderable) if not s.control)
        print("\n".join(line.rstrip() for line in text.rstrip("\n").split("\n")))
        return
    console = Console(highlight=False)
    parts = [Segment(printable(s.text), s.style, s.control) for s in console.render(renderable)]
    console.print(Segments(parts), end="")


def _json_wanted() -> bool:
    """Whether standard output is to hold JSON: --json without a file behind it."""
    words = sys.argv[1:]
    if "--json" not in words:
        return False
    after = words[words.index("--json") + 1 :]
    takes_file = any(word in ("bench", "explain") for word in words[:1])
    return not takes_file or not after or after[0].startswith("-")


def _print_error_as_json(message: str, details: Sequence[str], hint: str | None, status: int) -> None:
    error = {"message": message, "details": list(details), "hint": hint, "exit_code": status}
    print_json({"error": error}, "error/1")


def _missing_part(error: Exception) -> Error | None:
    """The error for a module of the compiler's part that is not installed."""
    parts = {"jinja2": "compiler", "sympy": "compiler", "torch": "compiler", "triton": "compiler", "rich": "cli"}
    parts |= {"safetensors": "compiler", "ml_dtypes": "compiler", "onnx": "bench", "psutil": "bench"}
    if isinstance(error, ModuleNotFoundError) and error.name == f"{_ROOT}.compiler":
        return Error(f"this command needs the compiler: {NO_COMPILER}")
    if not isinstance(error, ModuleNotFoundError) or (name := (error.name or "").partition(".")[0]) not in parts:
        return None
    return Error(f"this command needs {name}, which is not installed", hint=how_to_install(parts[name]))


def _verbose() -> bool:
    return "-v" in sys.argv or "--verbose" in sys.argv


def _print_error(error: Error) -> None:
    coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    label = "\033[1;31merror:\033[0m" if coloured else "error:"
    print(f"{label} {printable(str(error))}", file=sys.stderr)


def _print_traceback() -> None:
    import traceback

    traceback.print_exc()


def _print_internal_error(error: Exception) -> None:
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error).strip().splitlines()
    print(f"internal error: {type(error).__name__}: {text[0] if text else ''}", file=sys.stderr)
    print(f"  at {Path(frame.filename).name}:{frame.lineno} in {frame.name}", file=sys.stderr)
    print(f"  mycc {__version__}, Python {platform.python_version()}, {platform.machine()}", file=sys.stderr)
    if _verbose():
        _print_traceback()
    else:
        print("  A fault of mycc, not of your model: run again with -v and report what it prints.", file=sys.stderr)

"""Runs the code blocks of a page from its first to its last, as a reader would who types them.

    python tests/docs/run_page.py docs/state.md          # in the environment in which mycc is installed

A page's blocks run in one temporary folder, which has the checkout's `examples/`. What a block's language means:

    bash     commands, a line each
    console  lines `$ command`, each followed by what it prints
    python   a piece of one program
    output   what the python block before it prints
    c        statements that have to compile against the runtime's headers
    json     has to be JSON
    text, cpp, cmake, toml  shown, not run

In outputs `...` stands for anything within a line, and alone on a line for any lines. Where a page is not `exact`, each
number stands for any number, the name of a CPU level for any, and blanks for any blanks: times differ.

Comments of HTML, which no reader sees, say the rest, before the block that they are about:

    <!-- setup python              a block that runs, not shown, in any of the languages
    x = 1
    -->
    <!-- not run: why -->          the next block does not run
    <!-- output differs: why -->   the commands of the next block run, and what they print is not compared
    <!-- fails -->                 the commands of the next block end with another exit code than 0
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import traceback
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["LANGUAGES", "SHOWN", "Failure", "Step", "fits", "run", "steps"]

ROOT = Path(__file__).resolve().parents[2]
SHOWN = {"text", "cpp", "cmake", "toml"}
LANGUAGES = {"bash", "console", "python", "output", "c", "json", *SHOWN}
_PART = re.compile(
    r"^<!-- setup (?P<setup>\w+)\n(?P<code>.*?)^-->$"
    r"|^<!-- not run: (?P<why>.+?) -->$"
    r"|^<!-- output differs: (?P<differs>.+?) -->$"
    r"|^(?P<fails><!-- fails -->)$"
    r"|^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_TIMEOUT = 1200


class Failure(AssertionError):
    """A block that does not do what the page says; the text names the page and the line."""


@dataclass(frozen=True)
class Step:
    """A block: language, text, the page's line of its first line; why it does not run; whether it is to fail; whether
    what it prints is compared."""

    language: str
    text: str
    line: int
    not_run: str | None = None
    fails: bool = False
    compared: bool = True


def steps(page: Path) -> Iterator[Step]:
    """The blocks of a page, hidden ones too, with what the comments before them say."""
    content = page.read_text()
    why, fails, compared = None, False, True
    for found in _PART.finditer(content):
        line = content[: found.start()].count("\n") + 2
        if found["why"]:
            why = found["why"]
        elif found["fails"]:
            fails = True
        elif found["differs"]:
            compared = False
        elif found["setup"]:
            yield Step(found["setup"], found["code"], line)
        else:
            yield Step(found["language"], textwrap.dedent(found["text"]), line, why, fails, compared)
            why, fails, compared = None, False, True


def run(page: Path, exact: bool = False, root: Path = ROOT) -> None:
    """Runs a page in a temporary folder.

    Raises:
        Failure: a block fails, or prints something else.
    """
    with tempfile.TemporaryDirectory(prefix="mycc-page-") as folder:
        _Page(page, Path(folder).resolve(), exact, root).run()


@dataclass
class _Page:
    page: Path
    folder: Path
    exact: bool
    root: Path
    module: types.ModuleType = field(default_factory=lambda: types.ModuleType("page"))
    printed: str = ""

    def run(self) -> None:
        (self.folder / "examples").symlink_to(self.root / "examples")
        before = Path.cwd()
        os.chdir(self.folder)
        os.environ["CHECKOUT"] = str(self.root)
        sys.modules["page"] = self.module  # what pickles or traces a function asks for its module
        try:
            for step in steps(self.page):
                if step.not_run is None and step.language not in SHOWN:
                    getattr(self, f"_{step.language}")(step)
        finally:
            os.chdir(before)

    def _bash(self, step: Step) -> None:
        self._shell(step.text, step)

    def _console(self, step: Step) -> None:
        for command, expected in _commands(step.text):
            printed = self._shell(command, step)
            if expected and step.compared and not fits(printed, expected, self.exact):
                raise self._failure(step, f"`{command}` printed\n{printed}")

    def _shell(self, script: str, step: Step) -> str:
        """What a script writes to standard output and standard error, in the order of its writing."""
        environment = {
            **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120",
            "NO_COLOR": "1", "CHECKOUT": str(self.root), "BROWSER": "true",
        }  # fmt: skip
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], cwd=self.folder, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=_TIMEOUT,
        )  # fmt: skip
        if (done.returncode != 0) != step.fails:
            raise self._failure(step, f"exit code {done.returncode}\n{done.stdout}")
        return done.stdout

    def _python(self, step: Step) -> None:
        name = str(self.folder / f"line{step.line}.py")
        Path(name).write_text(step.text)  # what reads a function's source finds it
        linecache.checkcache(name)
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                exec(compile(step.text, name, "exec"), self.module.__dict__)
        except BaseException:
            raise self._failure(step, traceback.format_exc(limit=-6)) from None
        self.printed = out.getvalue()

    def _output(self, step: Step) -> None:
        if not fits(self.printed, step.text, self.exact):
            raise self._failure(step, f"printed\n{self.printed}")

    def _json(self, step: Step) -> None:
        try:
            json.loads(step.text)
        except ValueError as error:
            raise self._failure(step, str(error)) from None

    def _c(self, step: Step) -> None:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            return
        head = "".join(f"#include <{name}>\n" for name in ("mycc/model.h", "mycc/generate.h", "stdio.h", "stdlib.h"))
        tensors = "const mycc_tensor *inputs, int n_inputs, mycc_tensor *outputs, int n_outputs"
        program = f"{head}int example(mycc_model *model, int entry, {tensors}) {{\n"
        program += f"(void)model; (void)entry;\n{{\n{step.text}\n}}\nreturn 0;\n}}\n"
        command = [compiler, "-std=c11", "-fsyntax-only", "-Werror=implicit-function-declaration", "-x", "c", "-"]
        done = subprocess.run(
            [*command, f"-I{self.root / 'runtime/include'}"], input=program, capture_output=True, text=True
        )
        if done.returncode:
            raise self._failure(step, done.stderr)

    def _failure(self, step: Step, why: str) -> Failure:
        return Failure(f"{self.page}:{step.line}: {why}")


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """(command, what it prints) of a console block; a command goes on where its line ends with a backslash."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.split("\n")
        end = 1
        while lines[end - 1].endswith("\\"):
            end += 1
        yield "\n".join(lines[:end]), "\n".join(lines[end:]).strip("\n")


def fits(output: str, expected: str, exact: bool = True) -> bool:
    """Whether an output is as a page shows it."""
    pattern = ""
    for line in expected.rstrip("\n").split("\n"):
        pattern += r"(?:.*\n)*?" if line == "..." else _line(line, exact) + r"[ ]*\n"
    return re.fullmatch(pattern, output.strip("\n") + "\n" if not exact else output.rstrip("\n") + "\n") is not None


_NUMBER = r"[-+]?\d(?:\d|[.,](?=\d))*(?:e[-+]?\d+)?"  # no point at its end: "2.13.0..." is open


def _line(line: str, exact: bool) -> str:
    if exact:
        return re.escape(line).replace(r"\.\.\.", ".*")
    pieces = []
    for piece in re.split(rf"(\.\.\.|x86-64-v\d(?:\+\w+)?|{_NUMBER}|\s+)", line.strip()):
        if piece == "...":
            pieces.append(".*")
        elif piece.startswith("x86-64-v"):
            pieces.append(r"(?:x86-64-v\d|aarch64)(?:\+\w+)?")
        elif re.fullmatch(_NUMBER, piece):
            pieces.append(_NUMBER)
        else:
            pieces.append(r"\s+" if piece.isspace() else re.escape(piece))
    return r"[ ]*" + "".join(pieces)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        path = Path(argument).resolve()
        try:
            run(path, exact=path.name == "tutorial.md")
        except Failure as failure:
            sys.exit(str(failure))
        print(f"{argument}: runs")

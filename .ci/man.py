"""Manual pages of the commands, from the command line itself: `make man`.

    python .ci/man.py [FOLDER]          # mycc.1, mycc-compile.1, ...; the default is build/man

`make dist` puts them into the wheels, so that `man mycc-compile` finds them in an environment.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXIT_CODES = (
    ("0", "Done."),
    ("1", "The command worked, and the answer is no: the model does not compile, or results are not accurate."),
    ("2", "Refused. The message says what is wrong, where, and what to do; nothing is left behind."),
    ("3", "A fault of mycc itself."),
    ("130", "Interrupted."),
)
VARIABLES = (
    ("MYCC_CACHE_DIR", "Where compiled objects are kept."),
    ("CXX", "The C++ compiler, a program or a program with options."),
    ("NO_COLOR", "Print no colours."),
)


def pages() -> dict[str, str]:
    """The text of each page by its file's name."""
    import mycc
    import typer
    from mycc.cli import app

    root = typer.main.get_command(app)
    found = {"mycc.1": page("mycc", root, mycc.__version__)}
    for name, command in _commands(root, "mycc"):
        found[f"{name.replace(' ', '-')}.1"] = page(name, command, mycc.__version__)
    return found


def _commands(group: Any, prefix: str) -> list[tuple[str, Any]]:
    found = []
    for name, command in getattr(group, "commands", {}).items():
        if not command.hidden:
            found += [(f"{prefix} {name}", command), *_commands(command, f"{prefix} {name}")]
    return found


def page(name: str, command: Any, version: str) -> str:
    """One page in the macros of man."""
    text = inspect.cleandoc(command.help or "")
    first = " ".join(text.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    lines = [f'.TH "{name.replace(" ", "-").upper()}" "1" "" "mycc {version}" "mycc"', ".SH NAME"]
    lines.append(f"{escape(name.replace(' ', '-'))} \\- {escape(first)}")
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    words = [_bold(name), *(["[\\fIOPTIONS\\fR]"] if options else [])]
    words += [f"\\fI{escape(_metavar(p))}\\fR" for p in arguments]
    words += ["\\fICOMMAND\\fR"] if getattr(command, "commands", None) else []
    lines += [".SH SYNOPSIS", " ".join(words), ".SH DESCRIPTION"]
    lines += [".PP\n" + escape(" ".join(part.split())) for part in text.split("\n\n")]
    lines += _entries("ARGUMENTS", [(f"\\fI{escape(_metavar(p))}\\fR", p.help or "") for p in arguments])
    lines += _entries("OPTIONS", [(_option(p), p.help or "") for p in options])
    subcommands = getattr(command, "commands", {})
    lines += _entries(
        "COMMANDS",
        [(_bold(f"{name} {sub}"), c.get_short_help_str(200)) for sub, c in subcommands.items() if not c.hidden],
    )
    if command.epilog:
        lines += [
            ".SH EXAMPLES",
            ".nf",
            *map(escape, command.epilog.strip("\b\n").splitlines()[1:]),
            ".fi",
        ]
    lines += _entries("EXIT STATUS", [(_bold(code), meaning) for code, meaning in EXIT_CODES])
    lines += _entries("ENVIRONMENT", [(_bold(variable), meaning) for variable, meaning in VARIABLES])
    return "\n".join(lines) + "\n"


def _entries(title: str, rows: list[tuple[str, str]]) -> list[str]:
    lines = [f".SH {title}"] if rows else []
    for term, text in rows:
        lines += [".TP", term, escape(" ".join(text.split()))]
    return lines


def _option(option: Any) -> str:
    names = ", ".join(_bold(name) for name in [*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} \\fI{escape(_metavar(option))}\\fR"


def _metavar(parameter: Any) -> str:
    """What stands for the value: FILE. Without a word of its own, that of its type or its name."""
    if parameter.metavar:
        return str(parameter.metavar)
    kind = getattr(getattr(parameter, "type", None), "name", "")
    return str(parameter.name if parameter.param_type_name == "argument" or not kind else kind).upper()


def _bold(text: str) -> str:
    return f"\\fB{escape(text)}\\fR"


def escape(text: str) -> str:
    """Text as roff takes it: no line of it is a request, hyphens are those of options."""
    text = text.replace("\b", "").replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "man"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text)
    print(f"{folder}: {len(pages())} pages")


if __name__ == "__main__":
    main()

"""The `mycc` command: the list of its subcommands, each a few lines over the Python API in commands/.

Commands that are given a model's source need torch; it is imported when they run.
"""

from __future__ import annotations

from typing import Annotated

import typer

from . import __version__
from .commands.bench import bench_command
from .commands.check import check_command
from .commands.compile import compile_command
from .commands.console import (
    FIRST_STEPS,
    BisectCommand,
    CompileCommand,
    ErrorGroup,
    ExplainCommand,
    JsonFileCommand,
    PlainCommand,
    about,
)
from .commands.doctor import cache_clear_command, cache_info_command, doctor_command
from .commands.explain import explain_command
from .commands.inspect import inspect_command
from .commands.run import run_command, serve_command
from .commands.verify import verify_command
from .commands.weights import weights_command

__all__ = ["app"]

app = typer.Typer(
    name="mycc", cls=ErrorGroup, no_args_is_help=True, add_completion=True, rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]}, pretty_exceptions_enable=False,
    help="Ahead-of-time compiler for PyTorch models: PyTorch in, one small native package out.",
    epilog=FIRST_STEPS,
)  # fmt: skip
#: in the order of the help
for _name, _class, _function in (
    ("compile", CompileCommand, compile_command),
    ("check", CompileCommand, check_command),
    ("run", PlainCommand, run_command),
    ("serve", PlainCommand, serve_command),
    ("weights", PlainCommand, weights_command),
    ("inspect", PlainCommand, inspect_command),
    ("verify", BisectCommand, verify_command),
    ("bench", JsonFileCommand, bench_command),
    ("explain", ExplainCommand, explain_command),
    ("doctor", PlainCommand, doctor_command),
):
    app.command(_name, cls=_class, **about(_name))(_function)
cache_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The cache of compiled objects.")
cache_app.command("info")(cache_info_command)
cache_app.command("clear")(cache_clear_command)
app.add_typer(cache_app, name="cache")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"mycc {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


if __name__ == "__main__":
    app()

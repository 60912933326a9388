"""Shell completion: what the shells ask of the command, and the file that `mycc --install-completion` writes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..helpers.command_server import CommandServer

#: shell -> the variables by which it asks for what follows the words
ASKED = {
    "bash": lambda words: {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)},
    "zsh": lambda words: {"_TYPER_COMPLETE_ARGS": " ".join(words)},
    "fish": lambda words: {"_TYPER_COMPLETE_ARGS": " ".join(words), "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}


@pytest.mark.parametrize("shell", ASKED)
@pytest.mark.parametrize(
    ("typed", "offered", "not_offered"),
    [
        (["mycc", "ver"], ["verify"], ["compile"]),
        (["mycc", "compile", "--d"], ["--dtype", "--dynamic", "--dump"], ["--out"]),
        (["mycc", "compile", "--mode", "max"], ["max-autotune"], ["default"]),
        (["mycc", "compile", "x", "--dtype", ""], ["f32", "f16", "bf16"], ["int8"]),
        (["mycc", "check", "x", "--quantize", "int8"], ["int8", "int8-dynamic"], ["int4"]),
        (["mycc", "compile", "x", "--task", "text"], ["text-generation", "text-classification"], ["fill-mask"]),
        (["mycc", "compile", "x", "--cache-dtype", "i"], ["int8"], ["f32"]),
        (["mycc", "cache", ""], ["info", "clear"], ["verify"]),
    ],
)
def test_what_is_offered(
    server: CommandServer, shell: str, typed: list[str], offered: list[str], not_offered: list[str]
) -> None:
    done = server.mycc(env={"_MYCC_COMPLETE": f"complete_{shell}", **ASKED[shell](typed)})
    assert done.returncode == 0, done.stderr
    assert [word for word in offered if word in done.stdout] == offered
    assert not [word for word in not_offered if word in done.stdout]


@pytest.mark.parametrize("shell", ASKED)
def test_the_installed_file_completes(shell: str, tmp_path: Path) -> None:
    """The shell installs the completion in an empty home; bash reads it back and completes a word with it."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = "mycc --install-completion"
    if shell == "bash":
        script += (
            " && . ~/.bashrc && COMP_WORDS=(mycc insp) COMP_CWORD=1 && _mycc_completion mycc && echo ${COMPREPLY[@]}"
        )
    done = subprocess.run(
        [shell, "-c", f"{script}; exit $?"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert f"{shell} completion installed in {tmp_path}" in done.stdout
    assert any("mycc" in path.name for path in tmp_path.rglob("*") if path.is_file())
    if shell == "bash":
        assert done.stdout.splitlines()[-1] == "inspect"

"""Programs of users under `mypy --strict`: the names of mycc have types, and none of them is Any."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STRICT = (  # what --strict sets, for the user's module alone: mycc itself is read from the cache of `make types`
    "disallow_any_generics", "disallow_subclassing_any", "disallow_untyped_calls", "disallow_untyped_defs",
    "disallow_incomplete_defs", "check_untyped_defs", "disallow_untyped_decorators", "warn_return_any",
    "strict_equality", "extra_checks",
)  # fmt: skip

PROGRAM = """
import numpy as np

import mycc


def describe(m: mycc.Model) -> list[str]:
    signature: mycc.Signature = m.signature
    port: mycc.Port = signature.inputs[0]
    symbols: tuple[mycc.Symbol, ...] = signature.symbols
    return [port.name, port.dtype, *(str(size) for size in port.shape), *(symbol.name for symbol in symbols)]


def main() -> None:
    m = mycc.load("model.pkg", threads=2)
    state = m.new_state()
    try:
        y = m(np.zeros((2, 4), np.float32))
    except mycc.InputError as error:
        print(error)
    reveal_type(m)
    reveal_type(state)
    reveal_type(m.entries)
    reveal_type(m.manifest)
    reveal_type(mycc.explain(m))
    print(describe(m), y)


def wrong(m: mycc.Model) -> int:
    m.signatur  # a name that is not there
    mycc.load("model.pkg", thread=2)
    return m.signature
"""


EXAMPLES = ("examples/service/app.py", "examples/generate/generate.py")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What mypy says of the program and of the examples, in one run with --strict for them alone."""
    work = tmp_path_factory.mktemp("types")
    program = work / "program_of_a_user.py"
    program.write_text(PROGRAM)
    modules = ["program_of_a_user", *(Path(example).stem for example in EXAMPLES)]
    settings = (ROOT / "pyproject.toml").read_text()
    flags = "".join(f"{flag} = true\n" for flag in STRICT)
    config = work / "mypy.toml"
    config.write_text(
        f"{settings[settings.index('[tool.mypy]') :]}\n[[tool.mypy.overrides]]\nmodule = {modules!r}\n{flags}"
    )
    types = sources_as_mycc()
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(config), str(program), *(ROOT / e for e in EXAMPLES)],
        cwd=types, capture_output=True, text=True, env={**os.environ, "MYPYPATH": str(types)},
    )  # fmt: skip
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def sources_as_mycc() -> Path:
    """The folder in which mypy sees the sources under the name mycc: that of `make types`, with its cache."""
    folder = ROOT / "build/types"
    (folder / "mycc").mkdir(parents=True, exist_ok=True)
    for part in "compiler runtime templates commands arguments.py cli.py __init__.py __main__.py".split():
        link = folder / "mycc" / part
        if not link.is_symlink():
            link.symlink_to(Path("../../..") / part)
    return folder


def test_names_have_types(said: list[str]) -> None:
    revealed = [
        re.sub(r"\bmycc\.(?:\w+\.)*", "", line) for line in said if "program_of_a_user" in line and "note: Rev" in line
    ]
    kinds = [line.partition("Revealed type is ")[2].strip('"') for line in revealed]
    assert kinds == ["Model", "State", "dict[str, EntryPoint]", "dict[str, Any]", "Explanation"]


def test_faults_of_a_program_are_found(said: list[str]) -> None:
    errors = [line for line in said if "program_of_a_user" in line and ": error: " in line]
    assert len(errors) == 3, said
    for error, text in zip(errors, ("signatur", '"thread"', "return-value"), strict=True):
        assert text in error


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_have_no_faults(said: list[str], example: str) -> None:
    assert not [line for line in said if Path(example).name in line]

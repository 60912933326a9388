"""No exception leaves the compiler as it is: whatever a function of it raises, the user gets a CompileError that names
the stage, the node at work and its line, with nothing left behind.

Faults are injected by functions in the place of the compiler's own, at a node chosen by a seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc.compiler.capture.functional import FunctionalCopy
from mycc.compiler.graph import passes
from mycc.compiler.lower.core.registry import REGISTRY
from mycc.runtime.errors import CompilerFault

from ..helpers.command_server import CommandServer

HERE = Path(__file__).name


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


#: of every kind that Python code raises, those that contexts and generators treat apart among them
KINDS: list[Callable[[], BaseException]] = [
    lambda: KeyError("b"),
    lambda: ValueError("zip() argument 2 is shorter than argument 1"),
    lambda: AssertionError(),
    lambda: RuntimeError("generator raised StopIteration"),
    lambda: StopIteration(),
    lambda: RecursionError("maximum recursion depth exceeded"),
    lambda: ZeroDivisionError("division by zero"),
    lambda: NotImplementedError('"unique" not implemented'),
    lambda: OverflowError("cannot convert float infinity to integer"),
    lambda: TypeError("unhashable type: 'list'"),
    lambda: AttributeError("'NoneType' object has no attribute 'args'"),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    lambda: torch._dynamo.exc.UserError(torch._dynamo.exc.UserErrorType.INVALID_INPUT, "of torch"),
    lambda: Unprintable(),
]


class Model(torch.nn.Module):
    """A node a line."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)
        h = h.softmax(-1)
        h = h * x
        h = h.cumsum(0)
        return torch.nn.functional.hardtanh(h).flip(0)


LINES = {line.strip() for line in Path(__file__).read_text().splitlines() if line.startswith("        h = h")}


class Raised:
    """Raises at the n-th call; remembers that it did."""

    def __init__(self, error: BaseException, at: int) -> None:
        self.error, self.left, self.done = error, at, False

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0 and not self.done:
            self.done = True
            raise self.error


def _around(function: Callable[..., Any], raised: Raised) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        raised()
        return function(*args, **kwargs)

    return wrapped


def in_capture(patch: pytest.MonkeyPatch, raised: Raised) -> None:
    patch.setattr(FunctionalCopy, "_call", _around(FunctionalCopy._call, raised))


def in_a_graph_pass(patch: pytest.MonkeyPatch, raised: Raised) -> None:
    """While a pass looks at a node."""

    def looks(work: Any, context: Any) -> dict[str, int]:
        for node in work.graph.nodes:
            if node.op == "call_function":
                raised()
        return {}

    rows = list(passes.PASSES)
    where = random.Random(raised.left).randrange(len(rows))
    rows.insert(where, passes.GraphPass("injected", looks))
    patch.setattr(passes, "PASSES", tuple(rows))


def in_a_lowering(patch: pytest.MonkeyPatch, raised: Raised) -> None:
    find = REGISTRY.find
    patch.setattr(REGISTRY, "find", lambda name: None if (own := find(name)) is None else _around(own, raised))


def in_the_schedule(patch: pytest.MonkeyPatch, raised: Raised) -> None:
    from mycc.compiler.schedule import graph

    patch.setattr(graph.NodeGraph, "replace", _around(graph.NodeGraph.replace, raised))


def in_codegen(patch: pytest.MonkeyPatch, raised: Raised) -> None:
    from mycc.compiler.codegen.cpu import emit

    patch.setattr(emit.Emitter, "_print", _around(emit.Emitter._print, raised))


STAGES = {
    "capture": in_capture,
    "graph": in_a_graph_pass,
    "lower": in_a_lowering,
    "schedule": in_the_schedule,
    "codegen": in_codegen,
}


@contextmanager
def injected(stage: str, error: BaseException, at: int) -> Iterator[Raised]:
    raised = Raised(error, at)
    with pytest.MonkeyPatch.context() as patch:
        STAGES[stage](patch, raised)
        yield raised


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_a_fault_names_stage_node_and_line(stage: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(f"{stage}{seed}")
    for make in chance.sample(KINDS, 4):
        with injected(stage, make(), chance.randrange(3)) as raised, pytest.raises(mycc.CompileError) as error:
            mycc.compile(Model(), (torch.randn(3, 4),), out=tmp_path / "model.pkg", cache_dir=tmp_path / "cache")
        assert raised.done
        assert isinstance(error.value, CompilerFault)
        start = f"internal error in stage '{stage}': "
        kinds = [
            type(raised.error).__name__,
            *["RuntimeError: generator raised"] * isinstance(raised.error, StopIteration),
        ]
        assert error.value.message.startswith(tuple(start + kind for kind in kinds))
        assert f"({HERE}:" in error.value.details[0] or f"  {HERE}:" in error.value.details[0], error.value.details
        assert any(line.startswith("at ") for line in error.value.details)
        assert "Please report it" in str(error.value)
        assert error.value.__cause__ is raised.error or isinstance(raised.error, StopIteration)
        assert not (tmp_path / "model.pkg").exists()


@pytest.mark.parametrize("stage", ["build", "package", "verify"])
def test_a_fault_behind_the_nodes(stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no node at hand says the stage; a package that is half made is gone."""
    from mycc.compiler import pipeline
    from mycc.compiler.package import assemble

    def raises(*args: Any, **kwargs: Any) -> Any:
        raise KeyError("injected")

    place, name = {
        "build": (pipeline, "build"),
        "package": (assemble, "write_package"),
        "verify": (assemble, "verify"),
    }[stage]
    monkeypatch.setattr(place, name, raises)
    with pytest.raises(CompilerFault, match=rf"internal error in stage '{stage}': KeyError: 'injected'"):
        mycc.compile(Model(), (torch.randn(3, 4),), out=tmp_path / "model.pkg")
    assert not list(tmp_path.iterdir())


def test_memory_and_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no fault of anybody's code is told as what it is."""
    for error, message in (
        (MemoryError(), "there is not enough memory for stage 'lower'"),
        (
            OSError(28, "No space left on device", "/tmp/x"),
            "stage 'lower' met an error of the system: '/tmp/x': No space",
        ),
        (SystemExit(3), "the model ended the program"),
    ):
        with injected("lower", error, 1), pytest.raises(mycc.CompileError, match=message) as found:
            mycc.compile(Model(), (torch.randn(3, 4),), out=tmp_path / "model.pkg")
        assert not isinstance(found.value, CompilerFault)
    with injected("lower", KeyboardInterrupt(), 1), pytest.raises(KeyboardInterrupt):
        mycc.compile(Model(), (torch.randn(3, 4),), out=tmp_path / "model.pkg")
    assert not list(tmp_path.iterdir())


COMMAND = """
import sys
from mycc.cli import app
from mycc.compiler.lower.core.registry import REGISTRY
def raises(ctx, *args, **kwargs):
    raise KeyError("b")
REGISTRY.put("aten.cumsum.default", raises)
sys.argv = ["mycc", {command!r}, "model.py", *{options!r}]
app()
"""


@pytest.mark.parametrize(("command", "code"), [("compile", 3), ("check", 1)])
def test_the_command(command: str, code: int, server: CommandServer, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\nmodel = lambda x: x.cumsum(0) + 1\nexample_inputs = (torch.ones(3),)\n"
    )
    options = ["--out", "model.pkg"] if command == "compile" else []
    done = server.python(COMMAND.format(command=command, options=options), cwd=tmp_path)
    text = done.stdout + done.stderr
    assert done.returncode == code, text
    assert "Traceback" not in text
    for part in ("internal error in stage 'lower': KeyError: 'b'", "model.py:2", "cumsum", "report"):
        assert part in text
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["model.py"]

"""The processes that compile Triton kernels: none is left behind, and a compilation always ends."""

from __future__ import annotations

import os
import queue
import threading
import time
from pathlib import Path

import pytest
from mycc.compiler.build import triton_compile
from mycc.compiler.build.compile import BuildOptions
from mycc.compiler.build.triton_compile import CompiledKernels, compile_kernels
from mycc.compiler.codegen.cuda.kernel import TritonKernel
from mycc.compiler.machine.targets import parse_targets
from mycc.runtime.errors import CompileError

(TARGET,) = parse_targets("cuda:sm_90")

#: Answers as the worker does, and writes down its number. For a kernel whose name starts with "dies" it ends without an
#: answer; for "loud" it says more on standard error than a pipe holds.
FAKE = """
import json, os, sys
from pathlib import Path
with open("NUMBERS", "a") as numbers:
    print(os.getpid(), file=numbers)
for line in sys.stdin:
    task = json.loads(line)
    name = task["symbol"]
    if name.startswith("dies"):
        sys.exit(3)
    if name.startswith("loud"):
        print("x" * (1 << 20), file=sys.stderr)
    Path(task["out"]).write_bytes(name.encode())
    print(json.dumps({"registers": 8, "spills": 0}), flush=True)
"""


@pytest.fixture
def numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the numbers of the processes that were started."""
    worker, numbers = tmp_path / "worker.py", tmp_path / "numbers"
    worker.write_text(FAKE.replace("NUMBERS", str(numbers)))
    monkeypatch.setattr(triton_compile, "WORKER", worker)
    return numbers


def compiled(folder: Path, *names: str, optional: frozenset[str] = frozenset()) -> CompiledKernels:
    """In a thread of its own: one that hangs fails the test."""
    kernels = [TritonKernel(name, f"# {name}", ()) for name in names]
    found: list[CompiledKernels | BaseException] = []

    def run() -> None:
        options = BuildOptions(cache_dir=folder / "cache", jobs=2)
        try:
            found.append(compile_kernels(kernels, TARGET, options, optional))
        except CompileError as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert found, "the compilation does not end"
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def running(numbers: Path) -> list[int]:
    return [number for number in map(int, numbers.read_text().split()) if os.path.exists(f"/proc/{number}")]


@pytest.mark.parametrize("names", [("a",), ("a", "b", "c", "d", "e")])
def test_all_processes_end(tmp_path: Path, numbers: Path, names: tuple[str, ...]) -> None:
    result = compiled(tmp_path, *names)
    assert [image.image for image in result.images] == [name.encode() for name in names]
    assert running(numbers) == []


def test_no_process_starts_when_all_is_done(tmp_path: Path, numbers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is late finds its process ended: it must not start another one, which nobody would end."""

    class Late(queue.SimpleQueue):  # type: ignore[type-arg]
        def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
            super().put(item, block, timeout)
            if isinstance(item, tuple):
                time.sleep(0.5)  # the other side takes the last result and stops all

    monkeypatch.setattr(triton_compile.queue, "SimpleQueue", Late)
    compiled(tmp_path, "a", "b", "c")
    assert running(numbers) == []
    assert len(numbers.read_text().split()) <= 2


def test_much_on_standard_error_stops_nothing(tmp_path: Path, numbers: Path) -> None:
    assert len(compiled(tmp_path, "loud_a", "b").images) == 2


def test_a_process_that_dies_is_an_error(tmp_path: Path, numbers: Path) -> None:
    with pytest.raises(CompileError, match="dies_b: a generated kernel did not compile"):
        compiled(tmp_path, "a", "dies_b", "c")
    assert running(numbers) == []


def test_one_that_may_fail_is_left_out(tmp_path: Path, numbers: Path) -> None:
    result = compiled(tmp_path, "dies_a", "b", "dies_c", "d", optional=frozenset({"dies_a", "dies_c"}))
    assert [image.symbol for image in result.images] == ["b", "d"]
    assert running(numbers) == []

"""Fixtures of all tests."""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .helpers.builds import quick_builds
from .helpers.x87 import X87Stack
from .slow_cases import long_files, slow_cases

Golden = Callable[[str], None]
SLOW_SECONDS = 1800
ROOT = Path(__file__).resolve().parents[1]
# Objects of compilers, by all that they are made of: what has not changed since the last run is not compiled again.
# Not the user's cache; subprocesses of tests and the workers of pytest-xdist have it too. `make clean` empties it.
os.environ.setdefault("MYCC_CACHE_DIR", str(ROOT / "build" / "tests" / "cache"))
# Each worker has a core: the threads of eager torch would spin there and wait for those of the other workers.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Processes that tests start find the bytecode of mycc: to make it takes a quarter of its import.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
DURATIONS = ROOT / "build" / "tests" / "durations.json"
FIXTURES = DURATIONS.with_name("fixtures.json")
QUICK = (
    "backend", "capture", "generation", "models", "ops", "package", "property", "quantize", "refusals", "training",
    "verify",
)  # fmt: skip
AS_USERS = ("test_operators.py",)  # the samples of every operator are built as users' models are
MANY = 500  # tests of a run that says where its time went
LEFT_OUT = pytest.StashKey["Counter[str]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the texts that golden tests find as their goldens"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = slow_cases()
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))
    places = long_files()
    items.sort(key=lambda item: places.get(item.nodeid.split("::")[0], len(places)))


def folder_of(name: str) -> str:
    """The folder of a test below tests/, or the file that lies there itself."""
    return "/".join(name.split("::")[0].split("/")[:2])


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Counts the slow tests that are left out; a worker of pytest-xdist tells the process that it works for."""
    left_out = Counter(folder_of(item.nodeid) for item in items if item.get_closest_marker("slow"))
    config = items[0].config
    config.stash[LEFT_OUT] = left_out
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = dict(left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the seconds that the tests of each folder took, of all processes together, the longest tests, and how
    many slow ones were left out. The seconds of all tests without their fixtures go into build/tests/durations.json,
    those of the fixtures by file into fixtures.json beside it."""
    folders: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    fixtures: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                folders[folder_of(report.nodeid)] += report.duration  # type: ignore[assignment]
                tests[report.nodeid] += report.duration  # type: ignore[assignment]
                if report.when == "call":
                    calls[report.nodeid] += report.duration  # type: ignore[assignment]
                else:
                    fixtures[report.nodeid.split("::")[0]] += report.duration  # type: ignore[assignment]
    if left_out := terminalreporter.config.stash.get(LEFT_OUT, Counter()):
        rows = ", ".join(f"{name} {count}" for name, count in left_out.most_common())
        terminalreporter.section(f"{left_out.total()} slow tests were left out; make test-all runs them")
        terminalreporter.line(rows)
    if len(tests) > MANY:
        terminalreporter.section("seconds by folder")
        terminalreporter.line(", ".join(f"{name} {seconds:.0f}" for name, seconds in folders.most_common()))
        longest = (f"{seconds:.0f} {name}" for name, seconds in tests.most_common(40))
        terminalreporter.line("\n".join(longest))
        DURATIONS.parent.mkdir(parents=True, exist_ok=True)
        for path, seconds in ((DURATIONS, calls), (FIXTURES, fixtures)):
            path.write_text(json.dumps(dict(seconds.most_common()), indent=1), encoding="utf-8")


@pytest.fixture(autouse=True, scope="module")
def _quick_builds(request: pytest.FixtureRequest) -> Iterator[None]:
    """In folders that look at what the graph says, not at machine code."""
    if request.path.parent.name in QUICK and request.path.name not in AS_USERS:
        yield from quick_builds()
    else:
        yield


@pytest.fixture(scope="session")
def x87_stack() -> X87Stack | None:
    return X87Stack() if X87Stack.available else None


@pytest.fixture(autouse=True)
def _x87_stack_is_left_empty(x87_stack: X87Stack | None) -> Iterator[None]:
    """Names the test whose code leaves values on the x87 stack, and saves the tests that follow from them."""
    yield
    if x87_stack is not None and (depth := x87_stack.depth()):
        x87_stack.empty()
        warnings.warn(f"this test left {depth} values on the x87 stack", stacklevel=1)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """golden(text) compares with the file golden/<test file>/<test name>.txt beside the test.

    `pytest --update-golden` writes the file instead; read the diff before you commit it.
    """
    test = Path(str(request.path))
    name = re.sub(r"[^\w.-]+", "_", request.node.name).strip("_")
    path = test.parent / "golden" / test.stem.removeprefix("test_") / f"{name}.txt"

    def check(text: str) -> None:
        text = text if text.endswith("\n") else text + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no golden {path}; run pytest --update-golden and look at what it writes", pytrace=False)
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            lines = difflib.unified_diff(expected.splitlines(), text.splitlines(), str(path), "this run", lineterm="")
            pytest.fail("\n".join(lines), pytrace=False)

    return check

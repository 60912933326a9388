"""Tests that `make test` leaves out because quicker ones guard the same file's subject.

slow_cases.txt names them, a node id a line; a test that is slow by design is marked `slow` where it stands. After a run
of `make test` or `make test-all` that nothing disturbed,

    python -m tests.slow_cases

chooses them again from the durations of that run: the longest first, until the rest takes so many seconds of all
processes together. At least the shortest test of each file stays, and the shortest case of each test that takes no more
than LAST. The files that then take longest with their fixtures go into long_files.txt: they are begun first, so that no
process waits for one at the end.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

__all__ = ["choose", "long_files", "slow_cases"]

LIST = Path(__file__).with_suffix(".txt")
LONG_FILES = Path(__file__).with_name("long_files.txt")
DURATIONS = Path(__file__).resolve().parents[1] / "build" / "tests" / "durations.json"
#: Tests that stay whole: each case guards an operator or a pass of its own, or all are compiled together, so that
#: without the first one the next takes its time, or the project promises them in `make test`.
WHOLE = (
    "tests/backend/test_training.py::test_gradient_of_a_pool_over_padding",
    "tests/codegen/test_kernels.py::test_kernel",
    "tests/gpu/test_library_kernels.py::test_library_operators",
    "tests/gpu/test_plans.py::test_a_changed_plan_changes_the_code_and_not_the_values",
    "tests/gpu/test_routine_kernels.py::test_factorisations_against_float64",
    "tests/gpu/test_routine_kernels.py::test_long_rows_are_merged_from_runs",
    "tests/gpu/test_routine_kernels.py::test_special_functions_against_float64",
    "tests/graph/test_decompose.py::test_image",
    "tests/graph/test_decompose.py::test_sequence",
    "tests/graph/test_passes.py::test_pass",
    "tests/ir/test_evaluate.py::test_operators",
    "tests/kernels/test_quantised.py::test_products_by_tiles_are_exact_where_cpp_stands_for_their_instructions",
    "tests/ops/test_library_operators.py::test_library_operators",
    "tests/ops/test_linalg.py::test_linear_algebra",
    "tests/ops/test_op_table.py::test_cpp_matches_reference",
    "tests/ops/test_operators.py::test_operator",
    "tests/property/test_alias_programs.py::test_random_programs",
    "tests/schedule/test_pass_values.py::test_values_stay",
)
SHORT = 0.3  # seconds; leaving out a shorter case gains too little
LAST = 2.0  # seconds of a test or of its last case: what it guards no other one does
LONG = 10.0  # seconds of a file that is begun early


def _rows(path: Path) -> tuple[str, ...]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and line[0] != "#")


@cache
def slow_cases() -> frozenset[str]:
    """The node ids of the list."""
    return frozenset(_rows(LIST))


@cache
def long_files() -> Mapping[str, int]:
    """The files that take longest, each with its place in the order, the longest first."""
    return {name: place for place, name in enumerate(_rows(LONG_FILES))}


def choose(durations: Mapping[str, float], listed: frozenset[str], seconds: float) -> list[str]:
    """The node ids to leave out, sorted: those of `listed` whose time is not known, and the longest of the known ones
    until the others take at most `seconds`, or every test that is left is short or the last one of its file or, within
    LAST, of its cases.

    durations: seconds of each test without its fixtures, which the next test of the file would pay.
    """
    chosen = frozenset(name for name in listed - durations.keys() if _test(name) not in WHOLE)
    left = Counter(_file(name) for name in durations)
    cases = Counter(_test(name) for name in durations)
    total = sum(durations.values())
    for name, duration in sorted(durations.items(), key=lambda item: -item[1]):
        if total <= seconds or duration < SHORT:
            break
        if cases[_test(name)] == 1 and duration < LAST:
            continue
        if left[_file(name)] > 1 and _test(name) not in WHOLE:
            left[_file(name)] -= 1
            cases[_test(name)] -= 1
            total -= duration
            chosen |= {name}
    return sorted(chosen)


def _file(name: str) -> str:
    return name.split("::", 1)[0]


def _test(name: str) -> str:
    return name.split("[", 1)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=900.0, help="of the tests that stay")
    parser.add_argument("--durations", type=Path, default=DURATIONS)
    options = parser.parse_args()
    durations = json.loads(options.durations.read_text(encoding="utf-8"))
    chosen = choose(durations, slow_cases(), options.seconds)
    head = "# Tests that `make test` leaves out; `python -m tests.slow_cases` chooses them."
    LIST.write_text("\n".join([head, *chosen]) + "\n", encoding="utf-8")
    left = {name: seconds for name, seconds in durations.items() if name not in chosen}
    fixtures = options.durations.with_name("fixtures.json")
    files: Counter[str] = Counter(json.loads(fixtures.read_text(encoding="utf-8")) if fixtures.exists() else {})
    for name, seconds in left.items():
        files[_file(name)] += seconds  # type: ignore[assignment]
    head = "# Files of tests that take longest, the longest first; `python -m tests.slow_cases` writes them."
    longest = [name for name, seconds in files.most_common() if seconds > LONG]
    LONG_FILES.write_text("\n".join([head, *longest]) + "\n", encoding="utf-8")
    print(f"{len(chosen)} tests are left out; the others took {sum(left.values()):.0f} s")


if __name__ == "__main__":
    main()

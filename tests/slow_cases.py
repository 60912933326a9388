"""Cases of tests that `make test` leaves out because other cases of the same test take less time.

slow_cases.txt names them, a node id a line; a test of one case is marked `slow` where it stands. After a run of
`make test` or `make test-all` that nothing disturbed,

    python -m tests.slow_cases --seconds 1700

chooses them again from the durations of that run: the longest first, until the rest takes so many seconds of all
processes together. At least one case of each test stays.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

__all__ = ["choose", "slow_cases"]

LIST = Path(__file__).with_suffix(".txt")
DURATIONS = Path(__file__).resolve().parents[1] / "build" / "tests" / "durations.json"
#: Tests whose cases all stay: each guards an operator or a pass of its own, or all are compiled together, so that
#: without the first one the next takes its time.
WHOLE = (
    "tests/gpu/test_routine_kernels.py::test_factorisations_against_float64",
    "tests/graph/test_decompose.py::test_image",
    "tests/graph/test_decompose.py::test_sequence",
    "tests/graph/test_passes.py::test_pass",
    "tests/ops/test_library_operators.py::test_library_operators",
    "tests/ops/test_linalg.py::test_linear_algebra",
    "tests/ops/test_op_table.py::test_cpp_matches_reference",
    "tests/ops/test_operators.py::test_operator",
    "tests/schedule/test_pass_values.py::test_values_stay",
)
SHORT = 1.0  # seconds; leaving out a shorter case gains too little


@cache
def slow_cases() -> frozenset[str]:
    """The node ids of the list."""
    return frozenset(line for line in LIST.read_text(encoding="utf-8").splitlines() if line and line[0] != "#")


def choose(durations: Mapping[str, float], listed: frozenset[str], seconds: float) -> list[str]:
    """The node ids to leave out, sorted: those of `listed` whose time is not known, and the longest of the known ones
    until the others take at most `seconds`, or every case that is left is short or the last one of its test."""
    chosen = frozenset(name for name in listed - durations.keys() if _test(name) not in WHOLE)
    cases = Counter(_test(name) for name in durations)
    total = sum(durations.values())
    for name, duration in sorted(durations.items(), key=lambda item: -item[1]):
        if total <= seconds or duration < SHORT:
            break
        if cases[_test(name)] > 1 and _test(name) not in WHOLE:
            cases[_test(name)] -= 1
            total -= duration
            chosen |= {name}
    return sorted(chosen)


def _test(name: str) -> str:
    return name.split("[", 1)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1700.0, help="of the tests that stay")
    parser.add_argument("--durations", type=Path, default=DURATIONS)
    options = parser.parse_args()
    durations = json.loads(options.durations.read_text(encoding="utf-8"))
    chosen = choose(durations, slow_cases(), options.seconds)
    head = "# Cases that `make test` leaves out; `python -m tests.slow_cases` chooses them."
    LIST.write_text("\n".join([head, *chosen]) + "\n", encoding="utf-8")
    left = sum(seconds for name, seconds in durations.items() if name not in chosen)
    print(f"{len(chosen)} cases are left out; the others took {left:.0f} s")


if __name__ == "__main__":
    main()

"""Numbers that kernels of CPUs are cut by stand in compiler/machine/: the headers of kernels/ have none.

A number above 4 that a header compares with, or names, has a line here which says why it is no fact of a machine.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import fields, replace
from pathlib import Path

import pytest
from mycc.compiler.codegen.cpu.machine_header import MACHINE, render_machine, render_numbers
from mycc.compiler.machine.cpu import CPUS
from mycc.compiler.machine.cpu_kernels import KERNEL_NUMBERS

from ..helpers.kernel_numbers import constants

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "kernels"
SMALL = 4
#: vectors are the instruction set itself, math and random are tables and definitions of functions
LEFT_OUT = ("vec", "math", "random")
TYPES = "what a type holds, or how its bits lie"
FORMATS = "a format of weights, of tiles of instructions, or an algorithm's definition"
EXACT = "up to where an arithmetic is exact, or how long a search for an answer takes"
SPELLED = "which loops are spelled for a size"
#: file -> text of a constant or a comparison -> why it stays
REASONS: dict[str, dict[str, str]] = {
    "attention/softmax.h": {"kBound": EXACT},
    "conv/winograd.h": {"kWinogradTaps": FORMATS},
    "conv/winograd_forms.h": {"edge": FORMATS},
    "gemm/amx.h": {"kRows": FORMATS},
    "gemm/integer.h": {"MYCC_LANES == 16": TYPES, "MYCC_LANES == 8": TYPES, "Bits == 8": FORMATS},
    "gemm/integer_rows.h": {"takes_plain_rows": FORMATS, "Bits == 8": FORMATS},
    "gemm/quads.h": {
        "kLineVectors": TYPES, "kFloat8": FORMATS, "raised": FORMATS, "kLeft": FORMATS, "Left == 8": FORMATS,
        "i == 7": FORMATS, "I == 7": FORMATS,
    },
    "gemm/quantised.h": {"run >= 8": SPELLED, "p.run < 8": SPELLED},
    "gemm/tiles.h": {"i < 6": FORMATS, "i < 8": FORMATS},
    "linalg/core.h": {"sweep < 60": EXACT, "sweep < 80": EXACT},
    "linalg/fft.h": {
        "kLargestRadix": SPELLED, "kRadices": SPELLED, "R <= 5": SPELLED, "s == 8": SPELLED, "W > 8": SPELLED,
    },
    "linalg/general.h": {"steps > 300": EXACT, "value.im) <= 16": EXACT},
    "linalg/linalg.h": {"halvings < 1000": EXACT, "k <= 18": EXACT},
    "loops/lookup.h": {"i < 160": TYPES},
    "loops/sliding_window.h": {"line": TYPES},
    "loops/transpose.h": {"PIECE": TYPES},
    "sort/keys.h": {"bits": TYPES, "kLast": TYPES, "digits": TYPES, "digit < 256": TYPES},
    "sort/sort.h": {"counts": TYPES, "kCounts": TYPES},
}  # fmt: skip

NUMBER = re.compile(r"(?<![\w.])(\d+)(?![\w.])")
CONSTANT = re.compile(r"\bconstexpr [^()]*?(\w+)(?:\[\])? = ([^;]*)")
COMPARED = re.compile(r"([\w.)]+) (?:[<>]=?|[=!]=) (\d+)(?![\w.])")
BOUND = re.compile(r"\b(?:min64|max64|smaller|larger)\((?:[^();]*, )?(\d+)(?![\w.])[^;]*")


def code(text: str) -> str:
    """A header without its comments and its preprocessor's lines."""
    return re.sub(r"^\s*#.*$", "", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL), flags=re.MULTILINE)


def findings(text: str) -> set[str]:
    """Names of constants with numbers, comparisons with numbers, and bounds that are numbers."""
    found = {m[1] for m in CONSTANT.finditer(code(text)) if any(int(n) > SMALL for n in NUMBER.findall(m[2]))}
    found |= {m[0] for m in COMPARED.finditer(code(text)) if int(m[2]) > SMALL}
    return found | {m[0] for m in BOUND.finditer(code(text)) if int(m[1]) > SMALL}


def test_kernels_have_no_numbers_of_machines() -> None:
    files = [p for p in KERNELS.rglob("*.h") if p.relative_to(KERNELS).parts[0] not in LEFT_OUT]
    assert len(files) > 40
    found = {p.relative_to(KERNELS).as_posix(): findings(p.read_text()) for p in files}
    assert {name: texts for name, texts in found.items() if texts} == {n: set(r) for n, r in REASONS.items()}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("constexpr int64_t kBlock = 128 << 10; /* 5 */", {"kBlock"}),
        ("constexpr int64_t kTwice = 2 * kBlock;", set()),
        ("if (rows >= 64 && columns < kWide) return;", {"rows >= 64"}),
        ("const int64_t n = min64(rows, 256), m = max64(1, n);", {"min64(rows, 256), m = max64(1, n)"}),
        ("x <<= 16; /* rows > 64 */", set()),
    ],
)
def test_what_is_a_finding(text: str, wanted: set[str]) -> None:
    assert findings(text) == wanted


def test_every_number_is_a_constant_that_kernels_read() -> None:
    assert set(KERNEL_NUMBERS) == set(CPUS)
    numbers = KERNEL_NUMBERS["x86-64-v3"]
    names = [f.name for row in fields(numbers) for f in fields(getattr(numbers, row.name))]
    assert len(set(names)) == len(names)
    written = constants(render_machine("x86-64-v3"))
    assert len(written) == len(names)
    sources = [*KERNELS.rglob("*.h"), *(ROOT / "templates" / "cpu").rglob("*.j2")]
    read = {name for p in sources for name in re.findall(r"\bk[A-Z]\w+", p.read_text())}
    assert [name for name in written if name not in read] == []


def test_values_are_spelled_in_cpp() -> None:
    numbers = KERNEL_NUMBERS["x86-64-v4"]
    written = constants(render_numbers("x86-64-v4", numbers))
    assert written["kTaskElements"] == str(numbers.loops.task_elements)
    assert written["kNchwVectors"] == "{8, 8, 6, 5}"
    with pytest.raises(ValueError, match="no numbers of kernels for 'mips'"):
        render_machine("mips")


PROGRAM = """
#include "kernels/loops/loops.h"
int main() { return (int)mycc::rows_per_task(100); }
"""


@pytest.mark.parametrize("elements", [800, 2400])
def test_a_changed_number_changes_the_code(elements: int, tmp_path: Path) -> None:
    numbers = KERNEL_NUMBERS["x86-64-v2"]
    changed = replace(numbers, loops=replace(numbers.loops, task_elements=elements))
    (tmp_path / MACHINE).write_text(render_numbers("x86-64-v2", changed))
    (tmp_path / "main.cpp").write_text(PROGRAM)
    include = ("-I.", f"-I{ROOT}", f"-I{ROOT / 'runtime' / 'include'}")
    command = ["g++", "-std=c++17", "-O1", "-Wno-psabi", *include, "main.cpp", "-o", "main"]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert subprocess.run([tmp_path / "main"]).returncode == elements // 100

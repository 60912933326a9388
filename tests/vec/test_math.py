"""math.h against mpmath: its rows of the operator table that have a tolerance, on every ISA level that runs here.

aarch64 runs under qemu where it and the cross compiler are installed.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from mycc.compiler.ir.ops import ANY, OPS, Printed, spell

from ..helpers.libraries import compiled
from .exact import MEANING, exact, operands_of
from .harness import FLAGS, INCLUDES, WARNINGS, builds, numbers, ulps, window

ROWS = [op.name for op in OPS.values() if op.ulps > 0 and op.domain == ANY and not op.cpp.startswith("special_")]
AARCH64 = "aarch64-linux-gnu-g++:armv8-a"
CAN_AARCH64 = bool(shutil.which("qemu-aarch64-static") and shutil.which("aarch64-linux-gnu-g++"))
BUILDS = [*(b for b in builds() if not b.endswith(":x86-64")), AARCH64]

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/math/math.h"
using namespace mycc;
typedef void (*Row)(int64_t n, float *out, const float *a, const float *b);
%s
int main(int argc, char **argv) {  /* program ROW COUNT < operands > results */
  static const struct { const char *name; Row row; int arity; } rows[] = {%s};
  if (argc != 3) return 2;
  const int64_t n = atoll(argv[2]);
  float *memory = (float *)aligned_alloc(64, (size_t)n * 3 * sizeof(float));
  for (const auto &r : rows) {
    if (strcmp(r.name, argv[1])) continue;
    if (fread(memory, sizeof(float), (size_t)(n * r.arity), stdin) != (size_t)(n * r.arity)) return 3;
    r.row(n, memory + 2 * n, memory, memory + n);
    return fwrite(memory + 2 * n, sizeof(float), (size_t)n, stdout) != (size_t)n;
  }
  return 4;
}
"""


def source() -> str:
    functions, table = [], []
    for name in ROWS:
        op = OPS[name]
        printed = spell(op, "cpp", [Printed("load(a + i)"), Printed("load(b + i)")][: op.arity]).text
        unused = "" if op.arity == 2 else " (void)b;"
        body = f"for (int64_t i = 0; i < n; i += W) store(out + i, {printed});"
        functions.append(
            f"static void row_{name}(int64_t n, float *out, const float *a, const float *b) {{{unused} {body} }}"
        )
        table.append(f'{{"{name}", row_{name}, {op.arity}}}')
    return PROGRAM % ("\n".join(functions), ", ".join(table))


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The command of each build, made on demand."""
    return {}


def command(build: str, folder: Path) -> list[str]:
    compiler, isa = build.split(":")
    flags = [*FLAGS.split(), *WARNINGS.split(), f"-march={isa}", *INCLUDES]
    static = ["-static"] if build == AARCH64 else []
    program = compiled([compiler, *flags, *static], source(), numbers(isa), folder / "rows", ("-lm",))
    return [*(["qemu-aarch64-static"] if build == AARCH64 else []), str(program)]


@functools.cache
def _expected(name: str) -> tuple[list[np.ndarray], np.ndarray]:
    operands = operands_of(name)
    return operands, exact(name, operands)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", ROWS)
def test_within_tolerance(
    name: str, build: str, programs: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    if build == AARCH64 and not CAN_AARCH64:
        pytest.skip(
            "needs qemu-aarch64-static and aarch64-linux-gnu-g++ (Debian: qemu-user-static, g++-aarch64-linux-gnu)"
        )
    if build not in programs:
        programs[build] = command(build, tmp_path_factory.mktemp("rows"))
    operands, want = _expected(name)
    data = b"".join(o.tobytes() for o in operands)
    done = subprocess.run([*programs[build], name, str(len(want))], input=data, capture_output=True, check=True)
    got = np.frombuffer(done.stdout, np.float32)
    error = ulps(got, want)
    signs = (want == 0) & (got == 0) & (np.signbit(want) != np.signbit(got))
    error = np.where(signs, np.inf, error)
    bad = int(error.argmax())
    assert error[bad] <= OPS[name].ulps, f"error {error[bad]}\n{window(name, build, bad, operands, got, want)}"


def test_every_row_has_a_meaning() -> None:
    assert set(ROWS) == set(MEANING)


def test_tolerances() -> None:
    """2 units in the last place; 4 where the exponent or a pole magnifies the argument's rounding."""
    wide = {name for name in ROWS if OPS[name].ulps > 2}
    assert wide <= {"pow", "tan", "lgamma"}
    assert all(OPS[name].ulps <= 4 for name in ROWS)

"""Numbers that loops, products and programs are planned by stand in compiler/machine/: schedule/ and lower/ have none.

A number above 4 that stays in another place has a line here which says why it is no fact of a machine.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

COMPILER = Path(__file__).parents[2] / "compiler"
SMALL = 4
TYPES = "what a type holds, or how its bits lie"
FORMATS = "a format of weights, or an operator's definition"
EXACT = "up to where an arithmetic is exact, or how long a search for an exact answer takes"
MODELS = "sizes of models that are not known: what is assumed of them"
KERNELS = "which kernels there are in kernels/ or templates/"
UNITS = "units"
TORCH = "how torch does it: the same numbers are to be drawn"
RANKS = "ranks"
#: file -> text of a constant, a comparison or a bound -> why it stays
REASONS: dict[str, dict[str, str]] = {
    "lower/contract/conv_algorithm.py": {
        "x.rank == 5": RANKS, "x.rank < 5": RANKS, "GROUPED": KERNELS,
    },
    "lower/contract/direct_conv.py": {"x.rank == 5": RANKS, "TILED": KERNELS},
    "lower/contract/float8.py": {"(MANTISSA, BIAS, NAN)": TYPES},
    "lower/contract/quantised.py": {"bits == 8": FORMATS},
    "lower/contract/quantised_conv.py": {"RAISED": TYPES, "-128 <= zero <= 127": TYPES},
    "lower/contract/quantised_gpu.py": {"RUNS": FORMATS, "bits == 8": FORMATS},
    "lower/contract/quantised_loops.py": {"bits == 8": FORMATS},
    "lower/core/constants.py": {"self.bits == 8": FORMATS},
    "lower/core/context.py": {"index.constant >= 2 ** 62": TYPES},
    "lower/core/fraction_sizes.py": {
        "top * near.numerator < 2 ** 50": EXACT, "_DENOMINATORS": EXACT, "TRIED": EXACT, "_EXACT": EXACT,
    },
    "lower/indexing/gather.py": {"layout.bits == 8": FORMATS},
    "lower/indexing/strided.py": {"min(size.hi or size.lo, size.lo + 4096)": EXACT},
    "lower/linalg/fourier.py": {"LONGEST": MODELS},
    "lower/pointwise/bits.py": {"max(old, new) == 8": TYPES},
    "lower/pointwise/special.py": {"_ROOM": TYPES},
    "lower/pointwise/table.py": {"UNARY": FORMATS},
    "lower/random/mersenne.py": {"STATE": TORCH, "WIDE_RANGE": TORCH, "BLOCK": TORCH},
    "lower/random/philox.py": {"THREADS": TORCH},
    "lower/random/random.py": {"limit > 1 << 62": TYPES},
    "lower/reduce/reduce.py": {"SMALL_NUMBERS": TYPES},
    "schedule/cost/estimates.py": {"max(64, size.lo)": MODELS},
    "schedule/fusion/rows.py": {"size.constant * 8 > local_bytes": TYPES},
    "schedule/gpu/row_plans.py": {"KEYED_INDICES": TYPES},
    "schedule/gpu/width.py": {"INT32_MAX": TYPES, "SLACK": TYPES},
    "schedule/loops/lane_bounds.py": {"MOST_APART": KERNELS},
    "schedule/loops/sliding_window.py": {"MOST_APART": KERNELS},
    "schedule/loops/vertical_reductions.py": {"NEIGHBOURS": KERNELS},
    "schedule/matrix/matrix_plan.py": {"how.bits == 8": TYPES},
    "schedule/matrix/seen_keys.py": {"_FAR": TYPES},
    "schedule/passes.py": {"GPU_PASSES": TYPES},
}  # fmt: skip


def numbers(node: ast.AST) -> bool:
    """Whether a number above SMALL stands in an expression, outside of the calls in it."""
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float) and abs(node.value) > SMALL
    inside = (n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.Call))
    return any(map(numbers, inside))


def findings(path: Path) -> Iterator[str]:
    """Comparisons with numbers, bounds by min and max that are numbers, and constants of the module with numbers."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        compares = isinstance(node, ast.Compare)
        bounds = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max")
        if (compares or bounds) and numbers(node):
            yield ast.unparse(node)
    for statement in tree.body:
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        if value is not None and any(numbers(n) for n in ast.walk(value) if isinstance(n, ast.Constant)):
            assert isinstance(statement, ast.Assign | ast.AnnAssign)
            yield ast.unparse(statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0])


def test_schedule_and_lowering_have_no_numbers_of_machines() -> None:
    files = [p for room in ("schedule", "lower") for p in (COMPILER / room).rglob("*.py")]
    found = {p.relative_to(COMPILER).as_posix(): set(findings(p)) for p in files}
    assert len(found) > 150
    assert {name: texts for name, texts in found.items() if texts} == {n: set(r) for n, r in REASONS.items()}


def test_a_number_is_found() -> None:
    path = COMPILER / "machine" / "cpu.py"
    assert {"L1", "PANEL", "STREAM_PREFETCH"} <= set(findings(path))

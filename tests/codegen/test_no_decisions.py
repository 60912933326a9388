"""Code generation of loop kernels spells plans: it compares no size with a number, and has no thresholds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
FOLDER = Path(__file__).parents[2] / "compiler" / "codegen" / "cpu"
#: files of register tiles, of epilogues and of whole kernels, which are held elsewhere
OTHERS = {"conv_tiles.py", "micro.py", "epilogue_terms.py", "render.py", "lift.py"}
#: comparisons and numbers that stay, by file: each is about text or about a value of the model
REASONS = {
    "emit.py": {
        "DTYPES[s.buffer.dtype].size <= widest": "which rows have a statement that moves them",
        "self._uses[e] > 1": "what is read twice gets a name",
        "self._uses[e] <= 1": "likewise",
        "len(printed.text) > MAX_INLINE": "long lines are cut",
        "MAX_INLINE = 72": "likewise",
        "2 <= number <= MOST_APART": "loads that have a spelling as whole vectors",
        "real > 0": "the text of a constant",
        "real >= 0": "likewise",
        "number >= 0": "likewise",
        "t[1] < 0": "the sign of a term",
        "c < 0": "likewise",
    },
    "pipeline_views.py": {"i < 2": "names of loops"},
    "statements.py": {"len(group) > 1": "stores that are one statement", "LONGEST_VECTOR = 16": "lanes of a whole row"},
    "chain_views.py": {"i < len(chain.locals)": "which links have a local result"},
    "structured_views.py": {
        "0 <= value.constant <= 1": "numbers that stay in the text",
        "form.stride > 1": "template arguments that are not the default",
        "groups > 1": "a run of channels is that of a group",
    },
    "tile_views.py": {"WIDEST = 8": "rows that have a statement that moves them"},
    "reductions.py": {
        "end > self.streams": "whether a row goes on behind its streams",
        "int(self.row.extent) <= self.rows": "whether one block of rows is all of them",
    },
    "window_taps.py": {
        "(tap.extent.constant or 0) < PAIR": "loads that have a spelling as pairs",
        "PAIR = 2": "likewise",
    },
}


def findings(path: Path) -> Iterator[str]:
    """Comparisons of sizes, and thresholds: module constants that are numbers."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(op, ORDERS) for op in node.ops):
            yield ast.unparse(node)
    for statement in tree.body:
        constant = isinstance(statement, ast.Assign) and not isinstance(statement.value, ast.Dict | ast.DictComp)
        if constant and any(isinstance(x, ast.Constant) and type(x.value) in (int, float) for x in ast.walk(statement)):
            yield ast.unparse(statement)


def test_code_generation_of_loops_compares_no_size() -> None:
    found = {p.name: set(findings(p)) for p in FOLDER.rglob("*.py") if p.name not in OTHERS}
    assert {name: texts for name, texts in found.items() if texts} == {n: set(r) for n, r in REASONS.items()}


def test_code_generation_of_loops_asks_no_pass_of_the_schedule() -> None:
    """What it takes of schedule/ is how a plan is read: which stages it has, what a load or a store is made of."""
    allowed = {
        *(
            "Stage",
            "stages_of",
            "running_value",
            "is_stream",
            "keeps_indices",
            "SCALAR_REDUCTIONS",
        ),  # what a node is made of
        *("inside", "Inside", "MOST_APART", "DIVISIONS", "fma_factors", "groups", "trim"),  # spellings of expressions
        *("whole_lines", "only_moves", "NARROW", "LINE", "widest", "in_memory", "row_piece", "BLOCK_ROWS"),
        *("prefetches", "stream_prefetches", "NOWHERE"),  # for epilogues and scatters
        *("vector_loop", "collapse"),  # of a scatter, which has no plan yet
        *("map_expressions", "Schedule"),
    }
    taken = set()
    for path in FOLDER.glob("*.py"):
        if path.name in OTHERS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("schedule."):
                taken |= {alias.name for alias in node.names}
    assert taken <= allowed

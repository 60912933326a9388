"""Code generation and templates spell plans: they compare no size with a number, and have no thresholds.

A comparison that stays has a line here which says why. A new one fails the test: decide in schedule/, put the decision
into the plan, and read it here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "compiler" / "codegen"
ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
TEXT = "how the text reads: signs, parentheses, what is a factor or a term of its own"
TERM = "a term that would be times one, or plus nothing, is not written"
SHARED = "a value that is read more than once gets a name"
OPERATORS = "the tables of operators and reductions: where each starts, how tightly it binds"
TESTS = "of kernels that tests and benches make, not of a model's"
#: comparisons and numbers that stay, by file: each is about text or about a value of the model
REASONS: dict[str, dict[str, str]] = {
    "cpu/blocking.py": {"STRUCTS": "what the C++ structs hold by themselves, which a test compares with kernels/"},
    "cpu/chain_views.py": {
        "i < len(chain.locals)": "which links have a local result", "i == 0": "the name of the first link",
    },
    "cpu/emit.py": {
        "DTYPES[s.buffer.dtype].size <= widest": "which rows have a statement that moves them",
        "self._uses[e] > 1": SHARED, "len(printed.text) > MAX_INLINE": TEXT,
        "MAX_INLINE": TEXT, "2 <= number <= MOST_APART": "loads that have a spelling as whole vectors",
        "divisor.value != 0": "a quotient by a number", "len(moving) != 1": "one term moves with the lanes",
        "moving[0][1] != 1": "likewise", "len(moving[0][0]) != 1": "likewise",
        "e.other.value == 0": "lanes that are zero elsewhere have a load of their own",
        "real > 0": TEXT, "real >= 0": TEXT, "number >= 0": TEXT, "t[1] < 0": TEXT, "c < 0": TEXT, "abs(c) != 1": TEXT,
        "len(whole.terms) <= max(1, sum((len(s.terms) for s in sizes)))": TEXT,
    },
    "cpu/epilogue_terms.py": {"number < 0": TEXT},
    "cpu/indentation.py": {"depth == 0": TEXT},
    "cpu/lift.py": {"abs(c) > 1": "0 and 1 are no arguments", "c > 0": TEXT},
    "cpu/ordered_views.py": {"_CODES": "DLPack's codes"},
    "cpu/pipeline_views.py": {"i < 2": "names of loops"},
    "cpu/prefetch_nests.py": {"plan.stage == 0": "the stage that the plan names is the first one"},
    "cpu/prefetch_rows.py": {"per_vector == 1": TERM},
    "cpu/reduction_views.py": {"REDUCTIONS": OPERATORS, "OPERANDS": OPERATORS},
    "cpu/row_pipeline_views.py": {"i == 0": "the first stage"},
    "cpu/statements.py": {
        "len(group) > 1": "stores that are one statement",
        "extent.constant % WIDEST_LANES == 0": "a row of whole vectors on every level has no tail",
    },
    "cpu/structured_views.py": {
        "0 <= value.constant <= 1": "numbers that stay in the text",
        "form.stride > 1": "template arguments that are not the default",
        "groups > 1": "a run of channels is that of a group",
        "run.constant % WIDEST_LANES == 0": "a row of whole vectors on every level has no tail",
    },
    "cpu/tile_views.py": {"WIDEST": "rows that have a statement that moves them"},
    "cpu/views/reductions.py": {
        "end > self.streams": "whether a row goes on behind its streams",
        "int(self.row.extent) <= self.rows": "whether one block of rows is all of them",
    },
    "cpu/window_taps.py": {
        "(tap.extent.constant or 0) < PAIR": "loads that have a spelling as pairs", "PAIR": "likewise",
        "len(odd) != 1": "likewise", "factor != 1": "likewise", "len(monomial) != 1": "likewise",
    },
    "cuda/attention.py": {"LOWEST": "a number that powers of two hold"},
    "cuda/attention_gradient.py": {"rows.group > 1": TERM},
    "cuda/attention_rows.py": {"self.group > 1": TERM},
    "cuda/conv.py": {
        "self.taps > 1": TERM, "window.kernel[axis] > 1": TERM, "n > 1": TERM, "n == 1": TERM, "dilation == 1": TERM,
        "sum((n > 1 for n in kernel)) > 1": TERM, "chunks == 1": TERM, "behind == 1": TERM,
        "math.prod(kernel[:axis]) == 1": TERM,
    },
    "cuda/conv_gradient.py": {"extent > 1": TERM, "window.stride[axis] == 1": TERM},
    "cuda/custom.py": {
        "layout.offset.constant == 0": "Triton's own rule for pointers",
        "top <= INT32_MAX": "Triton's own rule for sizes",
        "c % 16 == 0": "likewise",
    },
    "cuda/data_sizes.py": {
        "len(parts) > 1": "the parts of the plan", "len(parts) == 1": "likewise", "i == 0": "the first part",
        "i % 2 == 1": "halves of the scratch memory take turns",
    },
    "cuda/emit.py": {
        "len(index.terms) == 1": TEXT, "printed.precedence >= _ATOM": TEXT,
        "printed.precedence > Precedence.COMPARE": TEXT,
        "printed.precedence >= Precedence.PRODUCT": TEXT, "a.precedence >= Precedence.PRODUCT": TEXT,
        "o.precedence >= needed": TEXT, "p.precedence < _ATOM": TEXT, "real == 0": TEXT, "real > 0": TEXT,
        "real >= 0": TEXT, "math.copysign(1.0, real) < 0": TEXT, "number >= 0": TEXT, "c < 0": TEXT, "c > 0": TEXT,
        "t[1] < 0": TEXT, "abs(c) != 1": TEXT, "len(factors) > 1": TEXT, "MAX_INLINE": TEXT,
        "len(printed.text) > MAX_INLINE": TEXT, "self._uses[e] > 1": SHARED,
        "spelling.pattern.count(f'{{{i}}}') > 1": SHARED,
        "set(self.axes(top)) < set(self.axes(value))": "a row's value beside the elements of the row",
        "set(axes) <= whole == set(self.index_axes(moved))": "a mask that spans the axes of what it masks",
        "0 < value < LEAST_NORMAL": "numbers that Triton would round to zero", "LEAST_NORMAL": "likewise",
        "abs(float(text)) > largest": "a decimal that Triton takes for a float64",
        "value <= -limit": "numbers that a type does not hold", "value >= limit": "likewise",
        "FLOAT_FORMS": OPERATORS, "INTEGER_FORMS": OPERATORS, "LOG2_E": "the number",
    },
    "cuda/facts.py": {"_MEANING": "what comparisons say"},
    "cuda/fourier.py": {
        "len(found) > 1": "the passes of the plan", "len(steps) > 1": "likewise", "number_ == 0": "the first pass",
    },
    "cuda/gemm.py": {
        "len(cuts) == 1": "the name of the one accumulator",
        "width * step > run": "a mask that masks nothing is not written",
    },
    "cuda/gemm_planes.py": {
        "how.group % how.run == 0": "how weights of 4 bits lie", "p % alike == 0": "likewise", "runs == 1": TERM,
        "(p + 1) % alike == 0": "likewise",
    },
    "cuda/matrix.py": {"len(factors) == 1": TEXT, "number > 1": TERM},
    "cuda/probe.py": {"window.groups > 1": TESTS, "COMPUTED": TESTS},
    "cuda/reductions.py": {"_FLOAT": OPERATORS, "_STARTS": OPERATORS},
    "cuda/routines.py": {
        "i % 2 == 0": "halves of the scratch memory take turns", "SCRATCH": "how much a routine works in",
    },
    "cuda/row_pieces.py": {"len(found_at) == 1": TEXT},
    "cuda/row_printer.py": {
        "wanted <= set(emit.axes(e))": "a value that spans the tile needs no spreading", "self.stems < 12": "names",
    },
    "cuda/scans.py": {"len(own) > 1": TEXT},
    "cuda/vision.py": {"len(flags) == 3": "which of two routines it is"},
    "generate.py": {
        "UNIT_COST": "C++ files that compile side by side, on which no kernel depends", "MAX_UNITS": "likewise",
        "ONE_UNIT": "likewise", "sum((k.cost for k in kernels)) <= ONE_UNIT": "likewise",
    },
    "host/cuda_program.py": {
        "distance.constant == 0": TERM, "p.known == 0": "what is known before the first kernel",
        "_BYTES": "sizes of types",
        "DEPENDENT": "a flag of the runtime", "IMAGE_ALIGNMENT": "a rule of the driver",
    },
    "host/program.py": {"p.known == 0": "what is known before the first kernel"},
    "host/size_formulas.py": {
        "top <= _COUNTED": "numbers that 64 bits hold", "_COUNTED": "likewise", "len(one.terms) > LONG": TEXT,
    },
    "host/size_text.py": {"len(index.terms) <= LONG": TEXT, "LONG": TEXT, "self.key > other.key": "an order of texts"},
}  # fmt: skip
#: conditions with numbers in templates
TEMPLATES = {
    "cpu/conv_tiles.cpp.j2": {
        "t.pixels > reach": "further pixels have a pointer of their own", "r >= reach": "likewise",
        "ahead % t.every == 0": "the tile says how often it fetches",
        "t.unrolled and width > 1": "one vector alone multiplies what it broadcasts from memory", "unroll > 1": TERM,
        "unroll == 1": TERM,
    },
    "cpu/conv_tiles.h.j2": {"columns <= 16 * widest": "which tiles there are"},
    "cpu/columns.j2": {"suffixes | length > 1": TERM},
    "cpu/depthwise_tiles.h.j2": {"0 <= j - t * stride < width": "which pixels a tap has"},
    "cpu/gemm_tiles.cpp.j2": {
        "p < 3": "distances that an address has for nothing",
        "tile.in_place and p == 1": "where the compiler is held back",
        'fetches == "second" and ahead % 2 == 0': "a line has two rows of 16 bits",
        "l.prefetch_every > 1": TERM,
    },
    "cpu/loops.j2": {"rows | length == 1": TEXT},
    "cpu/pipelined_columns.cpp.j2": {"p.number == 0": "the first stage"},
    "cuda/gemm.py.j2": {'loop.index0 == 0 or line.startswith("b_tile")': "the first line"},
}  # fmt: skip


def is_number(e: ast.expr) -> bool:
    return isinstance(e, ast.Constant) and type(e.value) in (int, float)


def findings(path: Path) -> Iterator[str]:
    """Comparisons by order, comparisons with a number, and module constants that have numbers in them, by name."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            ordered = any(isinstance(op, ORDERS) for op in node.ops)
            if ordered or any(is_number(e) for e in (node.left, *node.comparators)):
                yield ast.unparse(node)
    for statement in tree.body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            continue
        inside = [n for n in ast.walk(statement.value) if not isinstance(n, ast.Subscript)]
        paths = any(isinstance(n, ast.Name) and n.id in ("Path", "__file__") for n in inside)
        if not paths and any(isinstance(n, ast.expr) and is_number(n) for n in inside):
            target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
            yield ast.unparse(target)


def test_code_generation_compares_no_size() -> None:
    found = {str(p.relative_to(FOLDER)): set(findings(p)) for p in FOLDER.rglob("*.py")}
    assert len(found) > 70
    assert {name: texts for name, texts in found.items() if texts} == {n: set(r) for n, r in REASONS.items()}


def conditions(text: str) -> Iterator[str]:
    """The conditions of a template's statements and expressions that compare with a number."""
    tags = [m[1] for m in re.finditer(r"\{%-?\s*(?:el)?if\b(.*?)-?%\}", text)]
    marks = re.findall(r"\{[{%]-?(.*?)-?[}%]\}", re.sub(r"\{%-?\s*(?:el)?if\b.*?%\}", "", text))
    tags += [part for mark in marks for part in re.findall(r"\bif\b(.*?)(?:\belse\b|$)", mark)]
    for tag in tags:
        if re.search(r"[<>]|[!=]=\s*\d", tag):
            yield tag.strip()


def test_templates_compare_no_size() -> None:
    """What a template asks of a view is a name."""
    folder = ROOT / "templates"
    kernels = (p for side in ("cpu", "cuda", "host") for p in (folder / side).glob("*.j2"))
    found = {str(p.relative_to(folder)): set(conditions(p.read_text())) for p in kernels}
    assert len(found) > 80
    assert {name: texts for name, texts in found.items() if texts} == {n: set(r) for n, r in TEMPLATES.items()}


#: what code generation takes of schedule/: how a plan is read, and what a node or an expression is made of
READ = {
    *("Schedule", "Step", "ChooseStep", "RepeatStep", "MemoryPlan", "Lifetime", "ALIGNMENT", "Context", "Remarks"),
    *("plan_kernel", "plan_with_tile"),  # a tile that a lock chooses takes the place of the schedule's
    *("Stage", "stages_of", "running_value", "is_stream", "keeps_indices", "SCALAR_REDUCTIONS", "filling"),
    *("inside", "Inside", "MOST_APART", "DIVISIONS", "fma_factors", "groups", "trim"),
    *("whole_lines", "only_moves", "NARROW", "widest", "in_memory", "row_piece"),
    *("TILE_SETS", "TileSet", "widths", "RUN_TILE_SETS", "RunTileSet"),  # what a level's registers hold
    *("blocks", "whole", "divides", "Axes", "key_group", "element"),  # arithmetic of blocks
    *("fits_int32", "INT32_MAX", "size_bound", "MATRICES", "SOLVERS"),  # facts of a size or a routine
}


def test_code_generation_asks_no_pass_of_the_schedule() -> None:
    taken = set()
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "schedule":
                taken |= {alias.name for alias in node.names}
    assert taken == READ

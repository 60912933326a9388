"""The field's words: names that mycc had of its own stay away."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACES = ("compiler", "kernels", "templates", "runtime", "commands", "arguments.py", "cli.py")

#: a name that is not to come back, as a regular expression of a whole word -> the field's
STANDARD = {
    r"turned_rows|turn_(rows|back|tile|panel|operands)|TurnRows|TurnBack|kTurned\w+": "transpose",
    r"each_turn|rows_in_turn|load_turn|store_in_turn|known_turns|fold_turns": "iteration, strided load",
    r"fetch_(near|far|row|row_near|lines|share|share_near|vectors|ahead|every|behind_\w+)": "prefetch to L1 or L2",
    r"AHEAD_BYTES|k\w+Ahead|ahead_view": "prefetch",
    r"past_the_caches|goes_past|writes_past": "non-temporal store",
    r"weave\w*|woven|store_woven\w*": "interleave",
    r"WholeLines|GatheredRow|kGathered\w*": "write combining",
    r"PhaseKernel|PhaseView|RowPhase\w*|row_phases|in_phases": "pipeline stages",
    r"conv_planes|conv_turned|PlaneTaps|PlaneResults|in_planes|planes_pay|GroupedPixels": "NCHW, NHWC",
    r"gemm_free|GemmFree\w*|gemm-free": "GEMM with unpacked B",
    r"gemm_pairs?|gemm-pairs|FinishPairs|fuse_pairs": "GLU",
    r"join_folds|join_equal_folds": "horizontal fusion, CSE of reductions",
    r"join_keys|joined_keys": "elimination of the KV cache's concat",
    r"split_at_pieces": "distribution of a concat",
    r"split_moments|moment_pairs": "blocked variance",
    r"split_exponentials": "online softmax",
    r"fold_as_read|order_moves|order_loops": "loop interchange",
    r"walk_samples|split_sample_folds": "pipelining across samples",
    r"write_out_folds": "full unrolling",
    r"fused_factors|with_fused_products": "FMA contraction",
    r"fold_spreads|spreads_in_order|spread_columns|SpreadColumns|kSpreadRows": "Welford's combination",
    r"_turned|turns_of": "transposed, permuted; iterations",
    r"roll_products": "sliding window",
    r"true_places": "nonzero",
    r"split_long_products|long_products": "split-K",
    r"Fold(View|Form)|(Row|Lane|Column|Arg)Fold|(row|lane|column|arg)_fold(_view)?|folds_(whole|columns)": "reduction",
    r"(load|store|copy|value|load_inside|load_round|gather_at|store_interleaved)_part|end_part": "tail",
    r"written_out|_written_out": "unrolled, materialised",
    r"fold_(vector|lanes|row|rows_in_order|neighbours|iterations|prod|max|min|add|view|form)": "reduction, combine",
}  # fmt: skip


@cache
def texts() -> dict[str, str]:
    """The sources: file -> text."""
    paths = [p for place in PLACES for p in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*"))]
    sources = [p for p in paths if p.suffix in (".py", ".h", ".cpp", ".j2") and "build" not in p.parts]
    return {
        str(p.relative_to(ROOT)): p.read_text()
        for p in sources
        if p != ROOT / "compiler/tune/search/lock.py"  # knows the names of earlier locks
    }


def lines() -> list[tuple[str, int, str]]:
    """Every line of the sources: file, number and text."""
    return [(path, i, line) for path, text in texts().items() for i, line in enumerate(text.splitlines(), 1)]


@pytest.mark.parametrize("private", STANDARD)
def test_private_names_stay_away(private: str) -> None:
    """A name of the table is to be the standard word beside it."""
    word = re.compile(rf"(?<![A-Za-z0-9_])(?:{private})(?![A-Za-z0-9_])")
    found = [
        f"{path}:{text.count(chr(10), 0, m.start()) + 1}: {m[0]} is {STANDARD[private]}"
        for path, text in texts().items()
        for m in word.finditer(text)
    ]
    assert not found


#: words of prose, in comments, docstrings and the documentation
PROSE = {
    r"past\s+the\s+caches": "non-temporal",
    r"fetched (ahead|near|far)": "prefetched",
    r"written out": "unrolled",
    r"(convolutions?|results?|operands?|stays?|comes|lies?) in planes": "NCHW; planes are of weights of 4 bits",
    r"\bfolds?\b(?! (batch|constants|padding|the weights))": "reduction",
}


@pytest.mark.parametrize("private", PROSE)
def test_prose_has_the_fields_words(private: str) -> None:
    texts = [(path, i, line) for path, i, line in lines()]
    for page in (ROOT / "docs").rglob("*.md"):
        texts += [(str(page.relative_to(ROOT)), i, line) for i, line in enumerate(page.read_text().splitlines(), 1)]
    found = [f"{path}:{i}: {line.strip()}" for path, i, line in texts if re.search(private, line)]
    assert not [row for row in found if not row.startswith(EXCEPTIONS)], PROSE[private]


#: where the words mean something else: constant folding, rich's way to break lines, an argument of old
EXCEPTIONS = (
    "docs/decisions/0119-",
    "compiler/graph/",
    "docs/architecture.md",
    "runtime/render.py",
    "compiler/lower/core/builder.py",
    "compiler/options.py",
)

"""Greedy tokens of small random models of all architectures beside transformers' generate, as a table.

    python bench/generation_equality.py --jobs 8              # all, 200 tokens each
    python bench/generation_equality.py llama gemma2 --tokens 64

The columns say how many tokens are transformers' before the first other one, of the worst of three prompts of 36, 1
and 17 tokens: `alone` in a cache with a row for the text, `chunked` so with the prompt read in pieces of 16, `paged`
alone in a cache in blocks, `ragged` all three side by side in blocks. The models are those of
tests/generation/test_architectures.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.generation.equality import Equality, compare_tokens
from tests.generation.test_architectures import KINDS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help="model_types; default: all")
    parser.add_argument("--tokens", type=int, default=200, help="of each answer")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time, each in a process of its own")
    asked = parser.parse_args()
    print(f"{'architecture':18}" + "".join(f"{name:>10}" for name in (*Equality._fields, "seconds")), flush=True)
    kinds, good = asked.kinds or sorted(KINDS), True
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for row, right in pool.map(row_of, kinds, repeat(asked.tokens)):
            print(row, flush=True)
            good &= right
    return 0 if good else 1


def row_of(kind: str, tokens: int) -> tuple[str, bool]:
    """The line of a model, and whether all its tokens are transformers'."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = compare_tokens(kind, KINDS.get(kind, {}), tokens, Path(folder))
        except Exception as error:  # the others are still of interest
            return f"{kind:18}  {type(error).__name__}: {str(error).splitlines()[0]}", False
    figures = (*found, round(time.perf_counter() - start))
    return f"{kind:18}" + "".join(f"{n:10}" for n in figures), found.least == tokens


if __name__ == "__main__":
    sys.exit(main())

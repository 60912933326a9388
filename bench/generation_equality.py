"""Greedy tokens of small random models of all architectures beside transformers' generate, as a table.

    python bench/generation_equality.py --jobs 8              # all, 200 tokens each
    python bench/generation_equality.py llama gemma2 --tokens 64
    python bench/generation_equality.py --json bench/generation-equality.json   # rows are stored as they come
    python bench/generation_equality.py --page                # the table of docs/generation.md, of what is stored

The columns say how many tokens are transformers' before the first other one, of the worst of three prompts of 36, 1
and 17 tokens: `alone` in a cache with a row for the text, `chunked` so with the prompt read in pieces of 16, `paged`
alone in a cache in blocks, `ragged` all three side by side in blocks. The models are those of
tests/generation/test_architectures.py.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import transformers

from tests.generation.equality import Equality, compare_tokens
from tests.generation.test_architectures import KINDS

#: what a run stores, and the page that shows it
STORED = Path(__file__).with_name("generation-equality.json")
PAGE = Path(__file__).parents[1] / "docs" / "generation.md"
#: what stands before and behind the table of the page
MARKS = ("<!-- made by bench/generation_equality.py --page -->\n", "<!-- end of what is made -->\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help="model_types; default: all")
    parser.add_argument("--tokens", type=int, default=200, help="of each answer")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time, each in a process of its own")
    parser.add_argument("--json", type=Path, help="a file whose rows of these models are written anew")
    parser.add_argument("--page", action="store_true", help=f"write the table of {PAGE.name} from {STORED.name}")
    asked = parser.parse_args()
    if asked.page:
        PAGE.write_text(with_table(PAGE.read_text(), json.loads(STORED.read_text())))
        return 0
    print(f"{'architecture':18}" + "".join(f"{name:>10}" for name in (*Equality._fields, "seconds")), flush=True)
    kinds, good = asked.kinds or sorted(KINDS), True
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        running = {pool.submit(row_of, kind, asked.tokens): kind for kind in kinds}
        for done in as_completed(running):
            kind, row = running[done], done.result()
            print(line_of(kind, row), flush=True)
            good &= min(row.get(name, 0) for name in Equality._fields[:4]) == asked.tokens
            if asked.json:
                store(asked.json, kind, row)
    return 0 if good else 1


def row_of(kind: str, tokens: int) -> dict[str, Any]:
    """The figures of a model; or its `error`, so that the others are still compared."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = compare_tokens(kind, KINDS.get(kind, {}), tokens, Path(folder))
        except Exception as error:
            return {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    return {"tokens": tokens, **found._asdict(), "seconds": round(time.perf_counter() - start)}


def line_of(kind: str, row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{kind:18}  {row['error']}"
    return f"{kind:18}" + "".join(f"{row[name]:10}" for name in (*Equality._fields, "seconds"))


def store(file: Path, kind: str, row: dict[str, Any]) -> None:
    """Writes the row of a model into the file of all rows, with what it was compared with."""
    rows = json.loads(file.read_text()) if file.exists() else {}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "machine": platform.machine()}
    rows[kind] = {**row, **versions}
    file.write_text(json.dumps(dict(sorted(rows.items())), indent=1) + "\n")


def with_table(page: str, rows: dict[str, Any]) -> str:
    """The page with the table of these rows between its MARKS."""
    names = Equality._fields
    lines = [f"| model_type | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    lines += [f"| `{kind}` | " + " | ".join(str(row.get(n, "-")) for n in names) + " |" for kind, row in rows.items()]
    before, rest = page.split(MARKS[0])
    return before + MARKS[0] + "\n" + "\n".join(lines) + "\n\n" + MARKS[1] + rest.split(MARKS[1])[1]


if __name__ == "__main__":
    sys.exit(main())

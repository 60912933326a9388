"""Greedy tokens of small random models of all architectures beside transformers' generate, as a table.

    python bench/generation_equality.py                       # all, 200 tokens each
    python bench/generation_equality.py llama gemma2 --tokens 64

Each model is compiled once for three texts. `alone` and `together` say how many tokens are transformers' before the
first other one, of the worst of three prompts of 36, 1 and 17 tokens: one text at a time, and all three side by side.
The models are those of tests/generation/test_architectures.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.generation.equality import compare_tokens
from tests.generation.test_architectures import KINDS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help="model_types; default: all")
    parser.add_argument("--tokens", type=int, default=200, help="of each answer")
    asked = parser.parse_args()
    other = 0
    print(f"{'architecture':16}{'alone':>8}{'together':>10}{'distinct':>10}{'seconds':>9}")
    for kind in asked.kinds or sorted(KINDS):
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            found = compare_tokens(kind, KINDS.get(kind, {}), asked.tokens, Path(folder))
        other += min(found.alone, found.together) < asked.tokens
        spent = time.perf_counter() - start
        print(f"{kind:16}{found.alone:8}{found.together:10}{found.distinct:10}{spent:9.0f}", flush=True)
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())

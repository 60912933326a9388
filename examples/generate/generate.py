"""Streams tokens from a package of build.py: `python generate.py gpt2.pkg 464 2068 7586`.

Needs mycc and numpy, no torch.

Prints the numbers of the tokens as they come; a tokenizer would make text of them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import mycc
import numpy as np


class TextModel:
    """A package with `prefill` and `decode`, for one caller: texts of several callers have a state each."""

    def __init__(self, package: str, threads: int | None = None) -> None:
        self.model = mycc.load(package, threads)
        self.decode = self.model.entry("decode")
        self.state = self.model.new_state()
        self.length = next(row["shape"][3] for row in self.model.manifest["state"] if row["name"].endswith("keys"))

    def tokens(self, prompt: Sequence[int], count: int, heat: float = 0.0, seed: int = 0) -> Iterator[int]:
        """The tokens that follow a prompt of at least 2: the likeliest ones, or with heat > 0 drawn at random."""
        random = np.random.default_rng(seed)
        logits = self.model(np.array([prompt], np.int64), state=self.state)
        for _ in range(min(count, self.length - len(prompt))):
            token = choose(logits[0], heat, random)
            yield token
            logits = self.decode(np.array([[token]], np.int64), state=self.state)


def choose(logits: Any, heat: float, random: np.random.Generator) -> int:
    """The place of the largest logit, or one drawn by softmax(logits / heat)."""
    if heat <= 0:
        return int(logits.argmax())
    weights = np.exp((logits - logits.max()).astype(np.float64) / heat)
    return int(random.choice(len(weights), p=weights / weights.sum()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package")
    parser.add_argument("prompt", type=int, nargs="+", help="numbers of at least two tokens")
    parser.add_argument("--count", type=int, default=200, help="how many tokens to generate (default 200)")
    parser.add_argument("--heat", type=float, default=0.0, help="0 (default): always the likeliest token")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    model = TextModel(options.package, options.threads)
    start, times = time.perf_counter(), []
    for token in model.tokens(options.prompt, options.count, options.heat):
        times.append(time.perf_counter())
        print(token, end=" ", flush=True)
    print()
    if len(times) > 2:
        rate = (len(times) - 1) / (times[-1] - times[0])
        print(f"prompt {1e3 * (times[0] - start):.1f} ms, then {rate:.1f} tokens/s", file=sys.stderr)


if __name__ == "__main__":
    main()

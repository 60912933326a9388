"""Streams tokens from a package of build.py: `python generate.py gpt2.pkg 464 2068 7586`.

Needs mycc and numpy, no torch. Prints the numbers of the tokens as they come; with a package of a folder, which holds
its tokenizer, `model.generate("a text")` gives pieces of text instead.
"""

from __future__ import annotations

import argparse
import sys
import time

import mycc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package")
    parser.add_argument("prompt", type=int, nargs="+", help="numbers of tokens")
    parser.add_argument("--count", type=int, default=200, help="how many tokens to generate (default 200)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 (default): always the likeliest token")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    try:
        generate(options)
    except mycc.Error as error:  # a package that cannot be loaded, a token that the model does not know
        parser.exit(2, f"error: {error}\n")


def generate(options: argparse.Namespace) -> None:
    """Prints the tokens, and at the end how fast they came."""
    model = mycc.load(options.package, options.threads)
    start, times = time.perf_counter(), []
    for token in model.generate_tokens(
        options.prompt, max_new_tokens=options.count, temperature=options.temperature, ignore_eos=True
    ):
        times.append(time.perf_counter())
        print(token, end=" ", flush=True)
    print()
    if len(times) > 2:
        rate = (len(times) - 1) / (times[-1] - times[0])
        print(f"prompt {1e3 * (times[0] - start):.1f} ms, then {rate:.1f} tokens/s", file=sys.stderr)


if __name__ == "__main__":
    main()

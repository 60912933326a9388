"""Compiles a language model that generates text: `python build.py gpt2 --out gpt2.pkg`.

Needs mycc with its extra `compiler`, and transformers.
"""

from __future__ import annotations

import argparse

import mycc
from language_models import CONFIGS, Generator, entry_points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=CONFIGS)
    parser.add_argument("--out", required=True, metavar="FILE", help="the package to write")
    parser.add_argument("--length", type=int, default=1024, help="tokens that the cache holds (default 1024)")
    parser.add_argument("--target", default="cpu", help='such as "cpu:x86-64-v3"; default: this machine')
    options = parser.parse_args()
    generator = Generator(options.model, options.length)
    mycc.compile(entry_points(generator), out=options.out, target=options.target, progress=True)


if __name__ == "__main__":
    main()

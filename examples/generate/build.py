"""Compiles a language model of random weights that generates text: `python build.py gpt2 --out gpt2.pkg`.

Needs mycc with its extra `compiler`, and transformers. For trained weights name a model's folder instead:
`mycc compile DIR --task text-generation --out text.pkg`.
"""

from __future__ import annotations

import argparse

import mycc
from language_models import CONFIGS, make_network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=CONFIGS)
    parser.add_argument("--out", required=True, metavar="FILE", help="the package to write")
    parser.add_argument("--length", type=int, default=None, help="tokens that the cache holds (default: the model's)")
    parser.add_argument("--target", default="cpu", help='such as "cpu:x86-64-v3"; default: this machine')
    options = parser.parse_args()
    network = make_network(options.model)
    mycc.compile_generation(network, out=options.out, max_length=options.length, target=options.target, progress=True)


if __name__ == "__main__":
    main()

"""What `python model.pkg` does: tells what the package is, checks it, or runs it. Plain text, numpy only."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .archive import Archive
from .errors import Error
from .text import printable

__all__ = ["main"]


def main(path: str, arguments: Sequence[str] | None = None) -> int:
    """Runs the command line of the package at `path`; returns the exit code (1: not accurate, 2: a refusal).

    Python runs a package's `__main__.py` before anything can look at it. What has changed by accident is refused here.
    """
    options = _parser(path).parse_args(arguments)
    try:
        Archive(path).check_members()  # this file and those beside it too: Python has started them unseen
        if options.run or options.input or options.out:
            _run(path, options)
        elif options.verify:
            return _verify(path)
        else:
            _describe(path, options.json)
    except Error as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return 2
    return 0


def _parser(path: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python {path}", description="A model compiled by mycc.")
    parser.add_argument("--json", action="store_true", help="print everything the package says of itself as JSON")
    parser.add_argument("--verify", action="store_true", help="check all hashes and the accuracy certificate")
    parser.add_argument("--run", action="store_true", help="run it, on generated inputs unless --input gives some")
    parser.add_argument("--input", action="append", default=[], metavar="FILE", help=".npz, or .npy files in order")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=SIZE", help="a size for generated inputs")
    parser.add_argument("--out", metavar="FILE", help="write the outputs to this .npz")
    parser.add_argument("--entry", help="the entry point to run (default: the first)")
    parser.add_argument("--threads", type=int, help="threads (default: one per core)")
    return parser


def _describe(path: str, as_json: bool) -> None:
    from .inspect import describe, inspect_package

    information = inspect_package(path)
    if as_json:
        from .strict_json import encode, finite

        print(encode(finite(information), indent=1))
    else:
        print(printable(describe(information)))
        print(f"\npython {path} --run runs it; --help shows more.")


def _verify(path: str) -> int:
    from .verify import verify_package

    report = verify_package(path)
    print(printable(report.text()))
    return 0 if report.ok else 1


def _run(path: str, options: argparse.Namespace) -> None:
    from .execute import parse_sizes, run_package

    result = run_package(
        path, options.input, sizes=parse_sizes(options.set), entry=options.entry, threads=options.threads,
        out=options.out,
    )  # fmt: skip
    print(printable(result.text()))

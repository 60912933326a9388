"""All figures that the project promises, measured on this machine, each beside its goal and its peers.

    python bench/figures.py [--only accuracy,speed,...] [--models mlp,bert] [--threads 1,2] [--json FILE] ...

Use a quiet machine: times mean nothing while others use its cores. See bench/README.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
import tempfile
import time
from pathlib import Path

from mycc import Error
from sections.common import Figure, Settings

# In this order: compile makes the static packages that the others measure.
SECTIONS = {
    "compile": "compile_time", "compile-gpu": "compile_gpu", "size": "size", "kernels": "kernels",
    "memory": "memory", "load": "load", "call": "call",
    "speed": "speed", "shapes": "shapes", "scaling": "scaling", "decode": "decode", "accuracy": "accuracy",
}  # fmt: skip
MODELS = ("mlp", "resnet50", "bert", "vit", "gpt2", "llama", "mobilenetv2", "whisper_enc")
PEERS = ("aoti", "ort", "openvino")


def main() -> int:
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="mycc-figures-") as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        settings = Settings(
            arguments.models, arguments.threads, folder, arguments.peers, arguments.full, arguments.seconds,
            arguments.turns,
        )  # fmt: skip
        figures = [figure for section in arguments.only for figure in measure(section, settings)]
    goals = [figure for figure in figures if figure.met is not None]
    missed = [figure for figure in goals if not figure.met]
    print(f"\n{len(goals) - len(missed)} of {len(goals)} goals met")
    for figure in missed:
        print(f"  {figure.section}: {figure.name}")
    if arguments.json:
        arguments.json.write_text(json.dumps(report(figures, settings), indent=1) + "\n")
    return 1 if missed else 0


def measure(section: str, settings: Settings) -> list[Figure]:
    """Runs a section, prints its figures as they come."""
    print(f"\n{section}", flush=True)
    start = time.perf_counter()
    figures: list[Figure] = []
    try:
        for figure in importlib.import_module(f"sections.{SECTIONS[section]}").run(settings):
            print(figure.line(), flush=True)
            figures.append(figure)
    except (RuntimeError, Error) as error:  # a compile or a process failed: the other sections still tell something
        figures.append(Figure(section, f"{section} could not be measured further", None, met=False, note=str(error)))
        print(figures[-1].line(), flush=True)
    print(f"  ({time.perf_counter() - start:.0f} s)", flush=True)
    return figures


def report(figures: list[Figure], settings: Settings) -> dict[str, object]:
    from importlib.metadata import version

    from mycc.runtime.roof import machine_facts

    versions = {name: version(name) for name in ("mycc-aot", "torch", "numpy")} | {"python": platform.python_version()}
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine_facts(), "versions": versions, "models": settings.models, "threads": settings.threads,
        "figures": [figure.as_dict() for figure in figures],
    }  # fmt: skip


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_names(SECTIONS), default=tuple(SECTIONS), help=", ".join(SECTIONS))
    parser.add_argument("--models", type=_names(MODELS), default=MODELS, help=", ".join(MODELS))
    parser.add_argument("--peers", type=_names(PEERS), default=PEERS, help=f"beside eager: {', '.join(PEERS)} or none")
    parser.add_argument("--threads", type=_numbers, default=(1, 2), help="for speed; default 1,2")
    parser.add_argument("--seconds", type=float, default=1.0, help="of timed runs per peer and turn")
    parser.add_argument("--turns", type=int, default=3, help="how often the peers take turns")
    parser.add_argument("--full", action="store_true", help="accuracy at all pairs of batch and sequence")
    parser.add_argument("--folder", type=Path, help="where packages are kept for the next run; else a temporary one")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    return parser.parse_args()


def _names(known: object) -> object:
    def parse_names(text: str) -> tuple[str, ...]:
        names = tuple(name for name in text.split(",") if name not in ("", "none"))
        wrong = [name for name in names if name not in known]  # type: ignore[operator]
        if wrong:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(wrong)}")
        return names

    return parse_names


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())

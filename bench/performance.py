"""Writes docs/performance.md and the table of the README from the results in bench/results.

    python bench/performance.py                        # writes both
    python bench/performance.py --check                # exit code 1 where they are not what this would write
    python bench/figures.py --only speed --json F && python bench/performance.py --add F --machine "AMD Zen 5, AVX-512"
                                                       # takes a run of this machine over, then writes both

A result is entered once, in a table `NAME.json` of bench/results: its columns, the command, and rows of cells with the
machine (the family of its CPU, no host's name) and the day. `performance.md.in` is the page around them:

    {table NAME}     the table          {notes NAME}     its notes as a list          {command NAME}     its command
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
README_ROWS = ("AMD Zen 5, AVX-512", "Intel Emerald Rapids")
README_COLUMNS = ("ResNet-50", "BERT-base", "ViT-B", "GPT-2", "MobileNetV2", "geometric mean")
MARK, END = "<!-- from bench/results/cpu-models.json by bench/performance.py -->", "<!-- end of the table -->"
# Names of bench/figures.py, and the columns of cpu-models.
COLUMNS = {
    "mlp": "MLP", "resnet50": "ResNet-50", "bert": "BERT-base", "vit": "ViT-B", "gpt2": "GPT-2", "llama": "small Llama",
    "mobilenetv2": "MobileNetV2", "whisper_enc": "Whisper encoder",
}  # fmt: skip


def load(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """A table: command, columns, rows of machine, date and cells, and perhaps notes of date and text."""
    return json.loads((folder / f"{name}.json").read_text())  # type: ignore[no-any-return]


def table(result: dict[str, Any]) -> str:
    """The rows as a table of Markdown, the day last."""
    columns = result["columns"]
    by_machine = len({row["machine"] for row in result["rows"]}) > 1
    head = [*(["machine"] if by_machine else []), *columns, "entered"]
    lines = [head, ["---"] * len(head)]
    for row in result["rows"]:
        if len(row["cells"]) != len(columns):
            sys.exit(f"a row of {row['machine']} has {len(row['cells'])} cells for {len(columns)} columns")
        lines.append([*([row["machine"]] if by_machine else []), *row["cells"], row["date"]])
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)


def notes(result: dict[str, Any]) -> str:
    texts = [f"- {note['text']} ({note['date']})" for note in result.get("notes", [])]
    wrapper = textwrap.TextWrapper(125, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrapper.fill(text) for text in texts)


def page(folder: Path = RESULTS) -> str:
    """docs/performance.md."""
    parts = {"table": table, "notes": notes, "command": lambda result: result["command"]}
    text = (folder / "performance.md.in").read_text()
    text = re.sub(r"\{(table|notes|command) ([\w-]+)\}", lambda m: parts[m[1]](load(m[2], folder)), text)
    return text.rstrip("\n") + "\n"


def readme(text: str, folder: Path = RESULTS) -> str:
    """The README with its table anew."""
    result = load("cpu-models", folder)
    picked = [result["columns"].index(column) for column in README_COLUMNS]
    rows = {row["machine"]: row["cells"] for row in result["rows"]}
    lines = [["", *README_COLUMNS[:-1], "mean of eight models"], ["---"] * (len(README_COLUMNS) + 1)]
    lines += [[machine.split(",")[0], *(rows[machine][at] for at in picked)] for machine in README_ROWS]
    written = "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)
    before, _, rest = text.partition(MARK)
    return f"{before}{MARK}\n\n{written}\n\n{END}{rest.partition(END)[2]}"


def add(run: dict[str, Any], machine: str, result: dict[str, Any]) -> None:
    """Puts the speeds of a run of bench/figures.py into the row of a machine, for all models or for some."""
    found: dict[str, dict[int, str]] = {}
    for figure in run["figures"]:
        said = re.match(r"(\w+), (\d+) threads?, .*/ mycc$", figure["name"])
        mean = re.match(r"geometric mean of \d+ models, (\d+) threads?$", figure["name"])
        if figure["section"] != "speed" or figure["value"] is None or not (said or mean):
            continue
        if said and said[1] not in COLUMNS:
            continue
        name, threads = (COLUMNS[said[1]], int(said[2])) if said else ("geometric mean", int(mean[1]))  # type: ignore[index]
        found.setdefault(name, {})[threads] = f"{figure['value']:.2f}"
    if not found:
        sys.exit("the run holds no figures of the section speed")
    row = next((row for row in result["rows"] if row["machine"] == machine), None)
    if row is None:
        row = {"machine": machine, "cells": [""] * len(result["columns"])}
        result["rows"].append(row)
    row["date"] = run.get("date") or date.today().isoformat()
    for at, column in enumerate(result["columns"]):
        if column in found:
            row["cells"][at] = ", ".join(text for _, text in sorted(found[column].items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--add", type=Path, metavar="FILE", help="what bench/figures.py --only speed --json wrote")
    parser.add_argument("--machine", help="with --add: the family of the CPU")
    arguments = parser.parse_args()
    if arguments.add:
        if not arguments.machine:
            parser.error("--add needs --machine, the family of the CPU: 'AMD Zen 5, AVX-512'")
        result = load("cpu-models")
        add(json.loads(arguments.add.read_text()), arguments.machine, result)
        (RESULTS / "cpu-models.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    old = (ROOT / "README.md").read_text()
    for path, text in ((ROOT / "docs/performance.md", page()), (ROOT / "README.md", readme(old))):
        if arguments.check and path.read_text() != text:
            sys.exit(f"{path.name} is not what the results say: run python bench/performance.py")
        if not arguments.check:
            path.write_text(text)


if __name__ == "__main__":
    main()

"""Results of the kinds edges and modules: a line for each entry, by source and dtype.

    "abs": {"reference": {"float32": 5}, "special": {"float32": 130, "bfloat16": {"status": "wrong", ...}}}

A number says that so many programs are right, and no other was tried. `runs` says when the rows of a dtype were made,
`torch` with which version; rows of another one say it themselves.

python -m tests.conformance.compact FOLDER FILE    puts the files of a folder, parts of a run, into one
"""

from __future__ import annotations

import datetime
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
EDGES, EDGES_CUDA = _HERE / "results_edges.json", _HERE / "results_edges_cuda.json"
MODULES, MODULES_CUDA = _HERE / "results_modules.json", _HERE / "results_modules_cuda.json"
GRADIENTS, GRADIENTS_CUDA = _HERE / "results_gradients.json", _HERE / "results_gradients_cuda.json"
_REASON = 240  # characters
Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    """Rows with entry, dtype, source, status, samples, right, reason and the version of torch; none without a file."""
    if not path.exists():
        return []
    whole = json.loads(path.read_text())
    return [
        {"entry": entry, "dtype": dtype, "source": source, "torch": whole["torch"][dtype], **_whole(value)}
        for entry, sources in whole["results"].items()
        for source, dtypes in sources.items()
        for dtype, value in dtypes.items()
    ]


def runs(path: Path) -> dict[str, str]:
    """When the rows of each dtype were made."""
    return json.loads(path.read_text())["runs"] if path.exists() else {}


def versions(rows: Iterable[Row]) -> dict[str, str]:
    """Of torch, by dtype: that of most of its rows."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        found.setdefault(row["dtype"], Counter())[row["torch"]] += 1
    return {dtype: counts.most_common(1)[0][0] for dtype, counts in found.items()}


def _whole(value: int | Row) -> Row:
    if isinstance(value, int):
        return {"status": "right" if value else "none", "samples": value, "right": value, "reason": ""}
    return value


def _short(row: Row, torch: str) -> int | Row:
    own = {} if row["torch"] == torch else {"torch": row["torch"]}
    if row["status"] in ("right", "none") and not own:
        return row["right"]
    return {**{key: row[key] for key in ("status", "samples", "right")}, "reason": row["reason"][:_REASON], **own}


def write(path: Path, rows: Iterable[Row], order: Sequence[str], made: dict[str, str] | None = None) -> None:
    """The last row of each entry, dtype and source; `made`: when, by dtype; today for those that are new."""
    import torch

    last = {(r["entry"], r["dtype"], r["source"]): {"torch": torch.__version__, **r} for r in rows}
    rows, of_torch = list(last.values()), versions(last.values())
    today = datetime.date.today().isoformat()
    dates = {**dict.fromkeys((r["dtype"] for r in rows), today), **runs(path), **(made or {})}
    table: dict[str, dict[str, dict[str, int | Row]]] = {name: {} for name in order}
    for row in rows:
        table.setdefault(row["entry"], {}).setdefault(row["source"], {})[row["dtype"]] = _short(
            row, of_torch[row["dtype"]]
        )
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in table.items() if found)
    whole = path.with_suffix(".part")  # what interrupts this leaves the old file
    head = f'"torch": {json.dumps(of_torch)}, "runs": {json.dumps(dates)}'
    whole.write_text(f'{{{head}, "results": {{\n{lines}\n}}}}\n')
    whole.replace(path)


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    parts = sorted(folder.rglob("*.json"))
    rows = [row for part in [out, *parts] for row in read(part)]
    dates = {dtype: date for part in parts for dtype, date in runs(part).items()}
    write(out, rows, list(dict.fromkeys(row["entry"] for row in rows)), dates)


if __name__ == "__main__":
    main()

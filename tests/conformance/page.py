"""docs/operators.md from results.json: what is right, what is refused and why.

python -m tests.conformance.page
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from . import page_edges
from .run import RESULTS, RESULTS_CUDA, Row, read

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
STATUSES = ("right", "refused", "wrong", "crash")
MARKS = {"right": "yes", "refused": "no", "wrong": "WRONG", "crash": "CRASH", "none": ""}
#: rows of results_cuda.json
ON_GPU = "float32 on a GPU"
DTYPES = ("float32", ON_GPU, "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool", "complex64")


def page(rows: Sequence[Row], torch_version: str, taken: Mapping[str, int]) -> str:
    """The page as text; `taken`: how many entries torch has for each element type."""
    of_op_db = {dtype: count for dtype, count in taken.items() if dtype != ON_GPU}
    parts = (
        _head(torch_version),
        _counts(rows, taken),
        _reasons(rows),
        page_edges.edges(_cell, of_op_db),
        _entries(rows),
    )
    return "\n".join(line for part in parts for line in part) + "\n"


def _head(torch_version: str) -> Iterator[str]:
    yield from (
        "# Operators",
        "",
        "This page says which operators compile for CPUs and GPUs. It is measured with torch's own list of "
        f"operators (`op_db`, torch {torch_version}): up to six of torch's sample inputs for each entry and element "
        "type are exported, compiled, run, and compared with eager. The column torch gives the version that entries "
        "were measured with, and how many. `make conformance` makes this page; do not edit it.",
        "",
        "An entry is right when all of its samples are right: within 1e-4 of eager in float32 (relative or "
        "absolute, or as close to what eager computes in float64), within torch's tolerances in other floats, and "
        "equal in integers. Random results are compared by statistics and uninitialised ones by shape. An entry is "
        "refused when mycc refuses one of its samples with an error that says why. Bessel functions are compared "
        "with mpmath where torch's own results are further off than its tolerances.",
        "",
        f"The row {ON_GPU} is the same entries as Triton kernels, run by Triton's interpreter or on an H200.",
        "",
    )


def _counts(rows: Sequence[Row], taken: Mapping[str, int]) -> Iterator[str]:
    head = ("type", "entries", "measured", *STATUSES, "right of measured", "torch")
    yield from ("| " + " | ".join(head) + " |", "|---|" + "---|" * (len(head) - 1))
    for dtype in DTYPES:
        count = Counter(r["status"] for r in rows if r["dtype"] == dtype and r["status"] != "none")
        total = sum(count.values())
        if total:
            measured = sum(r["dtype"] == dtype for r in rows)  # with those whose samples torch itself refuses
            share = f"{100 * count['right'] / total:.0f} %"
            counts = " | ".join(str(count[s]) for s in STATUSES)
            made = Counter(r["torch"] for r in rows if r["dtype"] == dtype).most_common()
            versions = ", ".join(f"{version} ({n})" for version, n in made)
            yield f"| {dtype} | {taken[dtype]} | {measured} | {counts} | {share} | {versions} |"
    yield ""


def _reasons(rows: Sequence[Row]) -> Iterator[str]:
    yield from (
        "## Why entries are refused",
        "",
        "The entries of a reason are counted over all element types.",
        "",
        "| reason | entries |",
        "|---|---|",
    )
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["status"] in ("refused", "wrong", "crash"):
            found.setdefault(row["reason"], {})[row["entry"]] = None
    for reason, names in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        shown = ", ".join(f"`{n}`" for n in list(names)[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        yield f"| {_cell(reason)} | {shown} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _entries(rows: Sequence[Row]) -> Iterator[str]:
    short = {
        d: d.replace("float", "f").replace("uint", "u").replace("int", "i").replace("complex", "c") for d in DTYPES
    }
    measured = [d for d in DTYPES if any(r["dtype"] == d for r in rows)]
    yield from (
        "## All entries",
        "",
        "An empty cell means that torch has no samples of this type, or that they were not measured. `3/6` means "
        "that three of six samples are right and the others are refused.",
        "",
    )
    yield "| entry | " + " | ".join(short[d] for d in measured) + " |"
    yield "|---|" + "---|" * len(measured)
    table: dict[str, dict[str, Row]] = {}
    for row in rows:
        table.setdefault(row["entry"], {})[row["dtype"]] = row
    for name in sorted(table):
        yield f"| `{name}` | " + " | ".join(_mark(table[name].get(d)) for d in measured) + " |"


def _mark(row: Row | None) -> str:
    if row is None:
        return ""
    partly = row["status"] == "refused" and row["right"]
    return f"{row['right']}/{row['samples']}" if partly else MARKS[row["status"]]


def main() -> None:
    import torch

    from . import catalog

    taken = {name: sum(e.takes(d) for e in catalog.entries().values()) for name, d in catalog.DTYPES.items()}
    taken[ON_GPU] = taken["float32"]
    on_gpu = [{**row, "dtype": ON_GPU} for row in read(RESULTS_CUDA)]
    PAGE.write_text(page([*read(RESULTS), *on_gpu], torch.__version__.partition("+")[0], taken))


if __name__ == "__main__":
    main()

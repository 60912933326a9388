"""The kernels of an entry point on a target: what each comes from, does, moves and, where measured, takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.errors import LoadError
from ...runtime.formula import evaluate
from .code import Code

__all__ = ["folder_of", "kernel_rows"]

_WORK = ("flops", "bytes", "writes", "weights")
_LAUNCH = ("grid", "threads", "shared", "registers", "spills", "accesses")
_TIMES = ("us", "share", "gflops", "gbytes", "percent", "bound")


def folder_of(target: Mapping[str, Any]) -> str:
    """The folder of a target's sources: x86-64-v4, cuda-sm_90."""
    return str(target["library"]).split("/")[1]


def kernel_rows(
    entry: Mapping[str, Any],
    target: Mapping[str, Any],
    schedule: Mapping[str, Any] | None,
    code: Code,
    sizes: Mapping[str, int],
    times: Sequence[Mapping[str, Any]] | None,
) -> list[dict[str, Any]]:
    """A row for each kernel of a CPU, or for each launch of a GPU, in order of execution.

    entry, target: rows of the manifest; schedule: of src/model.json; times: of bench_package.
    """
    launches = entry.get("launches", {}).get(target["target"])
    rows = entry["kernels"] if launches is None else launches
    folder = folder_of(target)
    found = []
    for i, row in enumerate(rows):
        number = row.get("node", i)
        known = schedule["kernels"][number] if schedule and number < len(schedule["kernels"]) else {}
        found.append(
            {
                "index": i,
                **{key: row[key] for key in ("name", "kind", "ops", "sources")},
                "nodes": known.get("nodes", []),
                "loops": known.get("loops", ""),
                "plan": row.get("plan", {}),
                "buffers": row.get("buffers", []),
                **{key: _value(row.get(key), sizes) for key in _WORK},
                "formulas": {key: str(row[key]) for key in _WORK if key in row},
                "launch": {key: row[key] for key in _LAUNCH} if launches is not None else None,
                "code": code.show(folder, row["name"]),
                "arguments": code.arguments(folder, row["name"], entry["position"], i),
                **({key: times[i].get(key) for key in _TIMES} if times else {}),
            }
        )
    return found


def _value(formula: int | str | None, sizes: Mapping[str, int]) -> int | None:
    if formula is None or formula == "":
        return None
    try:
        return evaluate(formula, sizes)
    except (LoadError, ArithmeticError):
        return None

"""The launches of a package on a GPU: what each takes of the chip, and how long it would take at the chip's limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .formula import evaluate

__all__ = ["LaunchFacts", "launch_facts", "programs", "typical_sizes"]

#: what a kernel takes that does nothing, and the share of the limits that a good kernel reaches
LAUNCH_US = 1.2
REACHED = 0.75
TYPICAL = 64


@dataclass(frozen=True)
class LaunchFacts:
    """One launch at given sizes.

    programs: thread blocks. warps, registers (of a thread), spills and shared (bytes): of the kernel. loads: the widest
    access to global memory in bits, 0 for copies by the hardware. floor_us: the longer of its operations and its bytes
    at the chip's limits; expected_us: an estimate. ops, sources: where it comes from. form:
    of its kernel's plan, "" where the package does not say it.
    """

    name: str
    programs: int
    warps: int
    registers: int
    spills: int
    shared: int
    loads: int
    floor_us: float
    expected_us: float
    ops: tuple[str, ...]
    sources: tuple[str, ...]
    form: str = ""


def typical_sizes(entry: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, int]:
    """A value of every size symbol, those that the run finds too: the given one, else 64 within its range."""
    found = {}
    for row in (*entry["symbols"], *entry.get("computed", ())):
        top = row["max"] if row["max"] is not None else TYPICAL
        found[row["name"]] = sizes.get(row["name"], min(max(TYPICAL, row["min"] or 0), top))
    return found


def programs(row: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Thread blocks of a launch (a row of the manifest) at sizes by symbol name; 0: it is not launched."""
    return math.prod(evaluate(extent, sizes) for extent in row["grid"])


def launch_facts(entry: Mapping[str, Any], target: Mapping[str, Any], sizes: Mapping[str, int]) -> list[LaunchFacts]:
    """The launches of an entry point (rows of the manifest) on a target at sizes by symbol name, but for those that
    have no programs at these sizes."""
    roof = target["roof"]
    found = []
    for row in entry["launches"][target["target"]]:
        count = programs(row, sizes)
        if count == 0:
            continue
        compute = evaluate(row.get("flops", 0), sizes) / (roof["tflops"] or math.inf) / 1e6
        memory = evaluate(row.get("bytes", 0), sizes) / (roof["tbytes"] or math.inf) / 1e6
        floor = max(compute if row["kind"] in ("gemm", "conv", "attention") else 0.0, memory)
        found.append(
            LaunchFacts(
                row["name"], count, row["threads"] // 32, row["registers"], row["spills"], row["shared"],
                max((_bits(kind) for kind in row["accesses"]), default=0), floor, floor / REACHED + LAUNCH_US,
                tuple(row["ops"]), tuple(row["sources"]), _form(row),
            )
        )  # fmt: skip
    return found


def _form(row: Mapping[str, Any]) -> str:
    """The form that the plan of a launch's kernel names."""
    plan = row.get("plan")
    return str(plan.get("form", "")) if isinstance(plan, dict) else ""


def _bits(access: str) -> int:
    """`ld.v4.b32` is 128 bits wide."""
    parts = access.split(".")
    if parts[0] not in ("ld", "st"):
        return 0
    width = int("".join(ch for ch in parts[-1] if ch.isdigit()))
    return width * (int(parts[1][1:]) if parts[1].startswith("v") else 1)

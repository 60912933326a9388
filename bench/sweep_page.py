"""docs/sweep.md, from the results of bench/sweep.py alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

CASES = ("static", "dynamic")
#: what a result may be off by, beside what eager torch is off by
FACTOR, FLOOR = 4.0, 1e-5
#: "torch": torch.export itself gives no program
STATUSES = ("right", "refused", "torch", "wrong", "crash")


@dataclass(frozen=True)
class Result:
    """What became of one architecture in one case; `error` and `eager` are the largest ones of all outputs.

    `seconds` passed, `cpu` of them were computed, by the process and the C++ compilers that it ran, `stages` by each
    stage of the compile. `torch` is its version.
    """

    name: str
    case: str
    status: str
    reason: str = ""
    error: float = 0.0
    eager: float = 0.0
    seconds: float = 0.0
    cpu: float = 0.0
    kind: str = ""
    torch: str = ""
    stages: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Words:
    """What a page calls itself and its rows, and says of how they were made."""

    title: str
    what: str
    made: str


ARCHITECTURES = Words(
    "Architectures",
    "architectures ({versions}) in small configurations with random weights (`bench/sweep_models.py`)",
    "with fixed sizes, and with a dynamic batch at batches of 2, 1 and 3. Made by `python bench/sweep.py`; "
    "do not edit.",
)
LIBRARIES = Words(
    "Models of libraries",
    "models of libraries ({versions}) with random weights (`bench/library_models.py`)",
    "with fixed sizes, and with dynamic sizes (the batch, and for images, sounds and graphs others too) at three sets "
    "of them. Made by `python bench/sweep.py --table libraries` in an environment of its own "
    "(`bench/library_requirements.txt`); do not edit.",
)


def page(
    results: Sequence[Result],
    versions: Mapping[str, str],
    notes: Mapping[str, str],
    words: Words,
    peers: Sequence[Result] = (),
) -> str:
    """The page as text; `notes` say of architectures, by name, why they are not right, in plain words.

    peers: what other compilers, named by `kind`, made of those that are not right.
    """
    by_name: dict[str, dict[str, Result]] = {}
    for r in results:
        by_name.setdefault(r.name, {})[r.case] = r
    known = [f"{name} {version}" for name, version in versions.items() if version]
    named = " and ".join([", ".join(known[:-1]), known[-1]] if len(known) > 1 else known)
    lines = [
        f"# {words.title}",
        "",
        f"{len(by_name)} {words.what.format(versions=named)}, each exported, compiled for the CPU and compared with "
        f"itself in float64: {words.made}",
        "",
        f"A result is right when its error, relative to float64, is at most {FACTOR:.0f} times eager torch's plus "
        f"{FLOOR:g}, at every output; where float32 overflows, it is compared with eager torch itself. *torch* means "
        "that torch.export itself gives no program.",
        "",
        *_counts(results, versions),
        "",
        *_table(by_name),
    ]
    other = [r for r in results if r.status != "right"]
    if other:
        lines += ["", "## Why the others are not", "", *_reasons(other, notes)]
    if peers:
        lines += ["", "## What other compilers make of them", "", *_peers(other, peers)]
    timed = [r for r in results if r.stages]
    if timed:
        lines += ["", "## The slowest compiles", "", *_slowest(timed)]
    return "\n".join(lines) + "\n"


def _slowest(timed: Sequence[Result], count: int = 10) -> list[str]:
    """The compiles that computed longest, by stage."""
    most = sorted(timed, key=lambda r: -sum(r.stages.values()))[:count]
    names = list(dict.fromkeys(name for r in most for name in r.stages))
    lines = [
        f"Of {len(timed)} compiles whose stages were timed, the {len(most)} that computed longest: seconds of one "
        "core, the C++ compiler's included.",
        "",
        "| architecture | sizes | all | " + " | ".join(names) + " |",
        "|---|---|---|" + "---|" * len(names),
    ]
    for r in most:
        seconds = [sum(r.stages.values()), *(r.stages.get(name, 0.0) for name in names)]
        lines.append(f"| {r.name} | {r.case} | " + " | ".join(f"{s:.1f}" for s in seconds) + " |")
    return lines


def _counts(results: Sequence[Result], versions: Mapping[str, str]) -> list[str]:
    lines = ["| sizes | " + " | ".join(STATUSES) + " |", "|---|" + "---|" * len(STATUSES)]
    for case in CASES:
        count = Counter(r.status for r in results if r.case == case)
        lines.append(f"| {case} | " + " | ".join(str(count[s]) for s in STATUSES) + " |")
    made = Counter(r.torch for r in results)
    if "" not in made or len(made) > 1:
        known = [f"{made[version]} with torch {version}" for version in sorted(filter(None, made))]
        others = [v for v in versions.get("torch", "").split("/") if v not in made]
        rest = [f"{made['']} with {' or '.join(others)}; their results do not say which"] if made[""] else []
        lines += ["", f"Of these programs {', '.join([*known, *rest])}."]
    return lines


def _table(by_name: Mapping[str, Mapping[str, Result]]) -> list[str]:
    lines = [
        "| architecture | kind | static | error | dynamic | error | eager |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, cases in by_name.items():
        cells = [name, next(iter(cases.values())).kind]
        for case in CASES:
            r = cases.get(case)
            cells += [r.status if r else "", f"{r.error:.1e}" if r and r.status == "right" else ""]
        eager = [r.eager for r in cases.values() if r.status == "right"]
        cells.append(f"{max(eager):.1e}" if eager else "")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _reasons(other: Sequence[Result], notes: Mapping[str, str]) -> list[str]:
    """Cases that fail alike are one row."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for r in other:
        rows.setdefault((r.name, r.status, r.reason), []).append(r.case)
    lines = ["| architecture | sizes | status | why | message |", "|---|---|---|---|---|"]
    for (name, status, reason), cases in rows.items():
        message = reason.replace("|", "\\|")
        lines.append(f"| {name} | {', '.join(cases)} | {status} | {notes.get(name, '')} | {message} |")
    return lines


def _peers(other: Sequence[Result], peers: Sequence[Result]) -> list[str]:
    """A column for each of the other compilers, and how many of these programs each takes."""
    names = list(dict.fromkeys(r.kind for r in peers))
    by_case = {(r.name, r.case, r.kind): r for r in peers}
    right = Counter(r.kind for r in peers if r.status == "right")
    counts = ", ".join(f"{name} takes {right[name]}" for name in names)
    lines = [
        f"Of these {len(other)} programs {counts}. AOTInductor is torch.export and "
        "`torch._inductor.aoti_compile_and_package`; ONNX is `torch.onnx.export(dynamo=True)` and ONNX Runtime, by "
        "trace with `dynamo=False`. The same inputs are compared; *wrong* are results at other sizes or images than "
        "the example's too; empty is not tried. Made by `python bench/sweep.py --table libraries --peers`.",
        "",
        "| architecture | sizes | " + " | ".join(names) + " |",
        "|---|---|" + "---|" * len(names),
    ]
    for r in other:
        found = [by_case.get((r.name, r.case, name)) for name in names]
        cells = [_cell(f) for f in found]
        lines.append(f"| {r.name} | {r.case} | " + " | ".join(cells) + " |")
    return lines


def _cell(found: Result | None) -> str:
    if found is None:
        return ""
    reason = re.sub(r"\x1b\[\d*m", "", found.reason).replace("|", "\\|")[:160]
    return f"{found.status}: {reason}" if reason else found.status

"""docs/gradients.md from results_gradients.json: whose gradients are right, whose are refused and why.

python -m tests.conformance.page_gradients
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import compact
from .tally import STATUSES

PAGE = Path(__file__).parents[2] / "docs" / "gradients.md"


def page(rows: Sequence[compact.Row], torch_version: str) -> str:
    return "\n".join([*_head(rows, torch_version), *_reasons(rows), *_entries(rows)]) + "\n"


def _head(rows: Sequence[compact.Row], torch_version: str) -> Iterator[str]:
    count = Counter(r["status"] for r in rows)
    traced = sum(count[s] for s in STATUSES if s != "untraced")
    yield from (
        "# Gradients of operators",
        "",
        f"Every entry of op_db, torch {torch_version}, torch's own list, with derivatives in float32, up "
        "to four sample inputs each, with a random cotangent of each result. AOTAutograd traces forward and backward, "
        "mycc compiles that graph, and the gradients are compared with torch.autograd's: within 1e-4, relative or "
        "absolute, or as close to what it computes in float64. Of eigenvalues, which have no order, sums of powers are "
        "compared. Made by `python -m tests.conformance.run --kind gradients`; do not edit.",
        "",
        "| entries | " + " | ".join(reversed(STATUSES)) + " | right of those that are traced |",
        "|---|" + "---|" * (len(STATUSES) + 1),
        f"| {len(rows)} | " + " | ".join(str(count[s]) for s in reversed(STATUSES))
        + f" | {100 * count['right'] / max(traced, 1):.1f} % |",
        "",
        "Untraced: AOTAutograd makes no graph of them, for any backend; or, where its graph has further inputs, one "
        "that takes tokens for the order of torch's checks, which this run does not give."
        + _of_others(rows, torch_version),
        "",
    )  # fmt: skip


def _of_others(rows: Sequence[compact.Row], torch_version: str) -> str:
    """What says that rows were made with other versions of torch."""
    others = Counter(r["torch"].partition("+")[0] for r in rows)
    del others[torch_version]
    return "".join(f" {count} entries ran last with torch {version}." for version, count in sorted(others.items()))


def _reasons(rows: Sequence[compact.Row]) -> Iterator[str]:
    yield from ("## What is not right", "", "| entry | status | reason |", "|---|---|---|")
    for row in rows:
        if row["status"] not in ("right", "none"):
            reason = " ".join(row["reason"].split()).replace("|", "\\|")
            yield f"| `{row['entry']}` | {row['status']} | {reason} |"
    yield ""


def _entries(rows: Sequence[compact.Row]) -> Iterator[str]:
    names = [f"`{row['entry']}`" for row in rows if row["status"] == "right"]
    yield from ("## What is right", "", ", ".join(names) + ".")


def main() -> None:
    version = compact.versions(compact.read(compact.GRADIENTS))["float32"].partition("+")[0]
    PAGE.write_text(page(compact.read(compact.GRADIENTS), version))


if __name__ == "__main__":
    main()

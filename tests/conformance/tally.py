"""What became of the programs of an entry, and programs of an entry that are compiled as one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mycc.runtime.errors import CompileError, RunError

from .catalog import Call, Entry, RandomEntry, Together, disagreement
from .compile import reason

SAMPLES = "samples"  # the source that rows do not name
#: what a program may become, the worst first; untraced: torch's own AOTAutograd does not trace its gradients
STATUSES = ("crash", "wrong", "refused", "right", "untraced")


class Tally:
    """What became of the programs of one entry, by source."""

    def __init__(self, entry: Entry, dtype: str) -> None:
        self.entry, self.dtype = entry, dtype
        self._counts: dict[str, dict[str, int]] = {}
        self._reasons: dict[tuple[str, str], str] = {}

    def add(self, source: str, status: str, reason: str = "") -> None:
        self._counts.setdefault(source, dict.fromkeys(STATUSES, 0))[status] += 1
        self._reasons.setdefault((source, status), reason)

    def rows(self, sources: Sequence[str]) -> list[dict[str, Any]]:
        """A row for each source."""
        return [self._row(source) for source in sources]

    def _row(self, source: str) -> dict[str, Any]:
        """The worst that happened is the entry's status; no program at all is none."""
        counts = self._counts.get(source, {})
        status = next((s for s in STATUSES if counts.get(s)), "none")
        row = {
            "entry": self.entry.name,
            "dtype": self.dtype,
            "status": status,
            "samples": sum(counts.values()),
            "right": counts.get("right", 0),
            "reason": self._reasons.get((source, status), ""),
        }
        return row if source == SAMPLES else {**row, "source": source}


@dataclass(frozen=True)
class Group:
    """Calls of one entry that are compiled as one."""

    tally: Tally
    calls: tuple[Call, ...]
    wants: tuple[list[Any], ...]
    sources: tuple[str, ...]
    first: int = 0  # number of the first call

    @property
    def name(self) -> str:
        return f"{re.sub(r'[^A-Za-z0-9]', '_', self.tally.entry.name)}_{self.first}"

    @property
    def whole(self) -> Call | Together:
        return Together(self.calls) if len(self.calls) > 1 else self.calls[0]

    def alone(self) -> list[Group]:
        ones = enumerate(zip(self.calls, self.wants, self.sources, strict=True), self.first)
        return [Group(self.tally, (call,), (want,), (source,), i) for i, (call, want, source) in ones]

    def failed(self, error: Exception) -> list[Group]:
        """Counts the error of one call; the calls of several, to try them alone."""
        if len(self.calls) > 1:
            return self.alone()
        if isinstance(error, CompileError):
            self.tally.add(self.sources[0], "refused", reason(error))
        elif isinstance(error, RunError):
            self.tally.add(self.sources[0], "wrong", f"run: {reason(error)}")
        else:
            self.tally.add(self.sources[0], "crash", str(error))
        return []

    def compare(self, found: Sequence[Sequence[Any]], random: bool = False) -> None:
        """Counts the results; `random`: those of other random numbers than eager's."""
        entry = RandomEntry(self.tally.entry.name, self.tally.entry.op) if random else self.tally.entry
        ones = zip(self.calls, found, self.wants, self.sources, strict=True)
        for i, (call, got, want, source) in enumerate(ones, self.first):
            problem = disagreement(entry, call, got, want)
            self.tally.add(source, "wrong" if problem else "right", f"program {i}: {problem}" if problem else "")

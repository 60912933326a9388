"""What was fused and what was not, with the reason: kept for `mycc inspect --fusions`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Remark:
    """One decision about a producer and a consumer, named by their first model operator and buffer."""

    producer: str
    consumer: str
    done: bool
    reason: str


@dataclass
class Remarks:
    """Collects decisions; the last word on a pair replaces earlier ones."""

    _rows: dict[tuple[str, str], Remark] = field(default_factory=dict)

    def fused(self, producer: str, consumer: str, how: str) -> None:
        self._rows[producer, consumer] = Remark(producer, consumer, True, how)

    def refused(self, producer: str, consumer: str, reason: str) -> None:
        if not self._rows.get((producer, consumer), Remark("", "", False, "")).done:
            self._rows[producer, consumer] = Remark(producer, consumer, False, reason)

    def rows(self) -> tuple[Remark, ...]:
        return tuple(self._rows.values())

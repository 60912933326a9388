"""What was fused and what was not, with the reason: kept for `mycc inspect --fusions`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..ir.program import AnyNode


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
        """Notes that two kernels became one, and how; the last note of a pair stays."""
        self._rows[producer, consumer] = Remark(producer, consumer, True, how)

    def refused(self, producer: str, consumer: str, reason: str) -> None:
        """Notes why two kernels did not become one, unless an earlier note says that they did."""
        if not self._rows.get((producer, consumer), Remark("", "", False, "")).done:
            self._rows[producer, consumer] = Remark(producer, consumer, False, reason)

    def rows(self, nodes: Sequence[AnyNode] | None = None) -> tuple[Remark, ...]:
        """All remarks; of the refusals those that still stand in the scheduled `nodes`: a result that one kernel
        writes and another reads. What a later fusion settled is left out."""
        if nodes is None:
            return tuple(self._rows.values())
        writers = {b: node for node in nodes for b in node.writes()}
        crossing = {b.name for node in nodes for b in node.reads() if writers.get(b, node) is not node}
        return tuple(r for r in self._rows.values() if r.done or _buffer(r.producer) in crossing)


def _buffer(label: str) -> str:
    """The buffer in a label: "gelu (gelu_1)" names gelu_1."""
    return label.rpartition("(")[2].rstrip(")")

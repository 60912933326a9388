"""The order of a scheduled program: kernels by number, and what the host does between and around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..ir.buffers import Buffer
from ..ir.index import Index, Size
from ..ir.program import Branches, Define, Loop


@dataclass(frozen=True)
class ChooseStep:
    """One of two rows of steps, by the flag."""

    flag: Buffer
    then: tuple[Step, ...]
    other: tuple[Step, ...]


@dataclass(frozen=True)
class RepeatStep:
    """`body` count times, where `iteration` counts them; or for ever `test` and, while the flag holds, `body`."""

    test: tuple[Step, ...]
    flag: Buffer | None
    iteration: Size | None
    count: Index | None
    body: tuple[Step, ...]


#: the number of a kernel, a size that the host reads from a buffer, a branch or a loop
Step: TypeAlias = int | Define | ChooseStep | RepeatStep


def steps_of(kernels: int, defines: Sequence[Define], regions: Sequence[Branches | Loop] = ()) -> tuple[Step, ...]:
    """Kernels 0..kernels-1 in order, each define behind the first `after` of them, branches and loops around theirs."""
    return _Rows(defines, regions).steps(0, kernels, last=True)


class _Rows:
    def __init__(self, defines: Sequence[Define], regions: Sequence[Branches | Loop]) -> None:
        self.defines, self.regions = list(defines), list(regions)

    def steps(self, first: int, end: int, last: bool = False) -> tuple[Step, ...]:
        """The steps of kernels first..end; the next regions are those that begin there."""
        steps: list[Step] = []
        at = first
        while True:
            while self.defines and self.defines[0].after == at and (last or at < end):
                steps.append(self.defines.pop(0))
            if self.regions and self.regions[0].first == at and self.regions[0].last <= end and at < end:
                region = self.regions.pop(0)
                parts = self.steps(region.first, region.middle), self.steps(region.middle, region.last)
                if isinstance(region, Branches):
                    steps.append(ChooseStep(region.flag, *parts))
                else:
                    steps.append(RepeatStep(parts[0], region.flag, region.iteration, region.count, parts[1]))
                at = region.last
            elif at < end:
                steps.append(at)
                at += 1
            else:
                return tuple(steps)

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
    return _Rows(defines, regions).steps(0, kernels, None)


class _Rows:
    def __init__(self, defines: Sequence[Define], regions: Sequence[Branches | Loop]) -> None:
        self.defines, self.regions = list(defines), list(enumerate(regions))

    def steps(self, first: int, end: int, block: tuple[int, int] | None) -> tuple[Step, ...]:
        """The steps of kernels first..end, which are those of a block; the next regions are those that begin there."""
        steps: list[Step] = []
        at = first
        while True:
            while self.defines and self.defines[0].after == at and self.defines[0].block == block:
                steps.append(self.defines.pop(0))
            if self.regions and self.regions[0][1].first == at and self.regions[0][1].last <= end and at < end:
                place, region = self.regions.pop(0)
                steps.append(self._region(place, region))
                at = region.last
            elif at < end:
                steps.append(at)
                at += 1
            else:
                return tuple(steps)

    def _region(self, place: int, region: Branches | Loop) -> Step:
        then = self.steps(region.first, region.middle, (place, 0))
        other = self.steps(region.middle, region.last, (place, 1))
        if isinstance(region, Branches):
            return ChooseStep(region.flag, then, other)
        return RepeatStep(then, region.flag, region.iteration, region.count, other)

"""The order of a scheduled program: kernels by number, and what the host does between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ..ir.nodes import Define

#: the number of a kernel, or a size that the host reads from a buffer
Step: TypeAlias = int | Define


def steps_of(kernels: int, defines: Sequence[Define]) -> tuple[Step, ...]:
    """Kernels 0..kernels-1 in order, each define behind the first `after` of them."""
    steps: list[Step] = []
    waiting = list(defines)
    for i in range(kernels + 1):
        while waiting and waiting[0].after == i:
            steps.append(waiting.pop(0))
        if i < kernels:
            steps.append(i)
    return tuple(steps)

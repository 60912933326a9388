"""Distributes kernels over translation units, so that they compile in parallel and finish together."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["split_units"]


def split_units(kernels: Sequence[tuple[str, str, float]], parts: int) -> tuple[tuple[tuple[str, str], ...], ...]:
    """At most `parts` groups of kernels of about the same cost.

    kernels: (name, text, estimated time to compile, in any unit). A kernel goes to the group that is cheapest so far,
    the dearest kernel first (longest processing time first: within 4/3 of the best; Graham 1969). The result depends on
    the arguments alone; within a group the kernels keep their order. Groups are (name, text) pairs, the dearest first.
    """
    if parts < 1:
        raise ValueError(f"{parts} translation units")
    order = sorted(range(len(kernels)), key=lambda i: (-kernels[i][2], kernels[i][0], i))
    costs = [0.0] * min(parts, len(kernels))
    groups: list[list[int]] = [[] for _ in costs]
    for i in order:
        cheapest = min(range(len(costs)), key=lambda g: (costs[g], g))
        costs[cheapest] += kernels[i][2]
        groups[cheapest].append(i)
    dearest = sorted(range(len(costs)), key=lambda g: (-costs[g], g))
    return tuple(tuple(kernels[i][:2] for i in sorted(groups[g])) for g in dearest)

"""What torch.cond, while_loop, scan and map mean, on real tensors: for the reference and the plain run of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..model.control import operands_of

__all__ = ["run_control"]

Body = Callable[..., Sequence[torch.Tensor]]


def run_control(name: str, args: Sequence[Any]) -> list[torch.Tensor]:
    """The results of the operator; among its arguments are bodies that can be called."""
    given = operands_of(name, args)
    if name == "cond":
        return list(given.bodies[0 if bool(given.flag) else 1](*given.shared))
    if name == "while_loop":
        test, body = given.bodies
        return _while(test, body, list(given.own), given.shared)
    kept = len(given.own) - given.sliced
    return _scan(given.bodies[0], list(given.own[:kept]), given.own[kept:], given.shared)


def _while(test: Body, body: Body, carried: list[torch.Tensor], shared: Sequence[Any]) -> list[torch.Tensor]:
    while bool(test(*carried, *shared)[0]):
        carried = list(body(*carried, *shared))
    return carried


def _scan(body: Body, carried: list[torch.Tensor], sliced: Sequence[torch.Tensor], shared: Sequence[Any]) -> list[Any]:
    """Slices of the first dimension one after the other; of map, nothing is carried."""
    rows: list[Sequence[torch.Tensor]] = []
    for i in range(sliced[0].shape[0]):
        results = body(*carried, *(x[i] for x in sliced), *shared)
        carried, row = list(results[: len(carried)]), results[len(carried) :]
        rows.append(row)
    return [*carried, *(torch.stack(column) for column in zip(*rows, strict=True))]

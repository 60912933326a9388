"""The second half of a step on values: clipping, the check for finite numbers, and the optimizer's formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .plan import Group, Plan, Trained

__all__ = ["Prepared", "Updated", "clipped", "counter_name", "finite", "prepared", "slot_name", "updated"]


def slot_name(trained: Trained, slot: str) -> str:
    """Of a tensor that the optimizer keeps for a parameter, in the state of the package."""
    return f"optimizer.{trained.name}.{slot}"


def counter_name(plan: Plan, group: int, counter: str) -> str:
    """Of a number that the optimizer keeps for a parameter group."""
    return f"optimizer.{counter}" if len(plan.groups) == 1 else f"optimizer.group{group}.{counter}"


@dataclass(frozen=True)
class Updated:
    """New values: of the parameters, and by name of all that the optimizer keeps."""

    parameters: list[Tensor]
    kept: dict[str, Tensor]


def compute_type(tensor: Tensor) -> torch.dtype:
    """What an update is computed in."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def clipped(gradients: Sequence[Tensor], largest: Tensor | None, norm: Tensor | None) -> list[Tensor]:
    """Gradients with elements of at most `largest`, then of a norm over all of at most `norm`."""
    found = list(gradients)
    if largest is not None:
        found = [torch.clamp(g, -largest.to(g.dtype), largest.to(g.dtype)) for g in found]
    if norm is not None:
        wide = [g.to(compute_type(g)) for g in found]
        total = torch.stack([(g * g).sum().to(torch.float64) for g in wide]).sum().sqrt()
        factor = (norm / (total + 1e-6)).clamp(max=1.0)
        found = [(w * factor.to(w.dtype)).to(g.dtype) for w, g in zip(wide, found, strict=True)]
    return found


def finite(loss: Tensor, gradients: Sequence[Tensor]) -> Tensor:
    """Whether the loss and all gradients are finite: a bool of no dimension."""
    largest = [loss.detach().reshape([]).abs().to(torch.float64)]
    largest += [g.abs().amax().to(torch.float64) for g in gradients if g.numel()]
    return torch.isfinite(torch.stack(largest)).all()


@dataclass(frozen=True)
class Prepared:
    """What of an update does not depend on gradients: the counters' next values by name, and each group's numbers in
    the dtypes that its parameters are computed in."""

    counters: dict[str, Tensor]
    numbers: dict[tuple[int, torch.dtype], dict[str, Tensor]]


def prepared(plan: Plan, kept: Mapping[str, Tensor], hyper: Mapping[str, Tensor]) -> Prepared:
    """The first half of the optimizer's step.

    Args:
        kept: by slot_name and counter_name.
        hyper: float64, by name: of no dimension, or one for each of several groups.
    """
    new: dict[str, Tensor] = {}
    cast: dict[tuple[int, torch.dtype], dict[str, Tensor]] = {}
    for i, group in enumerate(plan.groups):
        h = _arguments(plan, group, i, hyper)
        counters = _counted(plan, i, h, kept)
        new |= {counter_name(plan, i, name): value for name, value in counters.items()}
        wide = {name: value.to(torch.float64) for name, value in counters.items()}
        numbers = plan.row.numbers(h, wide, group.flags)
        for dtype in dict.fromkeys(compute_type(t.parameter) for t in plan.trained if t.group == i):
            cast[i, dtype] = {name: value.to(dtype) for name, value in numbers.items()}
    return Prepared(new, cast)


def updated(
    plan: Plan,
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    kept: Mapping[str, Tensor],
    first: Prepared,
) -> Updated:
    """The optimizer's step; parameters and gradients in the order of plan.trained."""
    new = dict(first.counters)
    results = []
    for trained, parameter, gradient in zip(plan.trained, parameters, gradients, strict=True):
        dtype = compute_type(parameter)
        slots = {slot: kept[slot_name(trained, slot)] for slot in trained.kept}
        after, moved = plan.row.update(
            parameter.to(dtype),
            gradient.to(dtype),
            {slot: value.to(dtype) for slot, value in slots.items()},
            first.numbers[trained.group, dtype],
            plan.groups[trained.group].flags,
        )
        results.append(after.to(parameter.dtype))
        new |= {slot_name(trained, slot): value.to(slots[slot].dtype) for slot, value in moved.items()}
    return Updated(results, new)


def _arguments(plan: Plan, group: Group, number: int, hyper: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The numbers of a group; those that are no arguments of the step have the optimizer's values."""
    found = {}
    for name in plan.row.hyper:
        if name in hyper:
            found[name] = hyper[name] if len(plan.groups) == 1 else hyper[name][number]
        else:
            found[name] = torch.full([], group.values[name], dtype=torch.float64)
    return found


def _counted(plan: Plan, group: int, hyper: dict[str, Tensor], kept: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The counters after this step."""
    before = {c.name: kept[counter_name(plan, group, c.name)] for c in plan.row.counters}
    first = plan.row.counters[0].name
    after = {first: before[first] + 1}
    wide = {**before, first: after[first].to(torch.float64)}
    return {**after, **plan.row.count(hyper, wide)}

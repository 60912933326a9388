"""What a training step changes: the parameters of an optimizer, what it keeps for each, and its settings."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...runtime.errors import CompileError
from ..capture.state import memory_key
from .optimizers import TABLE, Flags, Optimizer, Slot, row_of

__all__ = ["Group", "Plan", "Trained", "named_parameters", "plan_of"]

#: numbers that a step takes only where a flag of the formula is set
_ONLY_WITH = {"momentum": "momentum", "dampening": "momentum"}


@dataclass(frozen=True)
class Group:
    """A parameter group: the flags that choose its formula, and the first values of its numbers and counters."""

    flags: Flags
    values: Mapping[str, float]
    counters: Mapping[str, float]


@dataclass(frozen=True)
class Trained:
    """A parameter that a step changes: its name in the model, its group, and first values of what is kept for it."""

    name: str
    parameter: torch.nn.Parameter
    group: int
    kept: Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Plan:
    """An optimizer over a model's parameters, by a row of the table."""

    row: Optimizer
    groups: tuple[Group, ...]
    trained: tuple[Trained, ...]

    @property
    def hyper(self) -> tuple[str, ...]:
        """The numbers that a step takes: those that the formula of some group reads."""
        return tuple(name for name in self.row.hyper if any(_is_argument(name, g.flags) for g in self.groups))

    def values(self, name: str) -> float | list[float]:
        """The optimizer's own value of a number; of several groups one each."""
        found = [group.values[name] for group in self.groups]
        return found[0] if len(found) == 1 else found


def _is_argument(name: str, flags: Flags) -> bool:
    flag = _ONLY_WITH.get(name)
    return flag is None or flag not in flags or bool(flags[flag])


def named_parameters(model: Any, loss: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """The parameters of a model and of a loss that is a module, each once, by the names that messages use."""
    seen: set[int] = set()
    for prefix, owner in (("", model), ("loss.", loss)):
        for name, parameter in owner.named_parameters() if isinstance(owner, torch.nn.Module) else ():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield prefix + name, parameter


def plan_of(optimizer: Any, model: Any, loss: Any, freeze: Sequence[str] = ()) -> Plan:
    """The plan of a torch.optim object.

    Args:
        freeze: patterns of parameters' names ("encoder.*") that do not change, as those without requires_grad.

    Raises:
        CompileError: the optimizer has no row, or does not fit the model.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise CompileError(
            f"the optimizer is a {type(optimizer).__name__}, not an object of torch.optim",
            hint="For example torch.optim.AdamW(model.parameters(), lr=1e-3).",
        )
    row = row_of(optimizer)
    if row is None:
        kind = type(optimizer)
        raise CompileError(
            f"there is no formula for the optimizer {kind.__module__}.{kind.__qualname__}",
            hint=f"These are known: {', '.join(known.name for known in TABLE)}.",
        )
    names = {id(parameter): name for name, parameter in named_parameters(model, loss)}
    _check_patterns(freeze, names.values())
    trained, groups = [], []
    for number, settings in enumerate(optimizer.param_groups):
        steps = 0.0
        for parameter in settings["params"]:
            name = names.get(id(parameter))
            if name is None:
                size = list(parameter.shape)
                raise CompileError(
                    f"the optimizer holds a parameter of shape {size} that the model does not have",
                    hint="Make the optimizer over model.parameters() of the model that is compiled.",
                )
            if not parameter.requires_grad or any(fnmatch.fnmatchcase(name, pattern) for pattern in freeze):
                continue
            state = optimizer.state.get(parameter, {})
            steps = max(steps, _steps(state))
            trained.append(_trained(row, name, parameter, number, settings, state))
        groups.append(_group(row, settings, optimizer, steps))
    if not trained:
        raise CompileError("there is nothing to train: all parameters of the optimizer are frozen")
    return Plan(row, tuple(groups), tuple(trained))


def _check_patterns(patterns: Sequence[str], names: Any) -> None:
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            raise CompileError(f"no parameter is called '{pattern}', which is to be frozen")


def _trained(
    row: Optimizer, name: str, parameter: torch.nn.Parameter, group: int, settings: Mapping[str, Any], state: Any
) -> Trained:
    if not parameter.is_floating_point():
        raise CompileError(f"parameter '{name}' is of {parameter.dtype}: only real floating-point ones are trained")
    refused = row.refuses(parameter.shape)
    if refused:
        raise CompileError(
            f"{refused}, and '{name}' has the shape {list(parameter.shape)}",
            hint="Give it to another optimizer, or freeze it.",
        )
    slots = row.slots(_flags(row, settings), parameter.shape)
    return Trained(name, parameter, group, {slot.name: _first(slot, parameter, settings, state) for slot in slots})


def _first(slot: Slot, parameter: torch.Tensor, settings: Mapping[str, Any], state: Mapping[str, Any]) -> torch.Tensor:
    known = state.get(slot.name)
    if isinstance(known, torch.Tensor):
        return known.detach()
    value = float(settings[slot.fill]) if slot.fill else 0.0
    shape = tuple(slot.shape(parameter.shape))
    if not value:
        return torch.zeros(shape, dtype=parameter.dtype)  # memory that is written by nobody takes none
    return torch.full(shape, value, dtype=parameter.dtype)


def _steps(state: Mapping[str, Any]) -> float:
    """How many steps an optimizer's state has seen; that of SGD says only whether there was one."""
    if "step" in state:
        return float(state["step"])
    return float(any(isinstance(value, torch.Tensor) for value in state.values()))


def _flags(row: Optimizer, settings: Mapping[str, Any]) -> Flags:
    return {name: settings.get(name) for name in row.flags}


def _group(row: Optimizer, settings: Mapping[str, Any], optimizer: torch.optim.Optimizer, steps: float) -> Group:
    values = {}
    for name, place in row.hyper.items():
        value = settings[place] if isinstance(place, str) else settings[place[0]][place[1]]
        if value is None:  # Adafactor's
            value = torch.finfo(settings["params"][0].dtype).eps
        values[name] = float(value)
        if not math.isfinite(values[name]):
            raise CompileError(f"the optimizer's {name} is {values[name]}")
    counters = {counter.name: float(counter.first) for counter in row.counters}
    counters[row.counters[0].name] = steps
    for counter in row.counters[1:]:
        known = [optimizer.state.get(p, {}).get(counter.name) for p in settings["params"]]
        counters[counter.name] = next((float(v) for v in known if v is not None), counter.first)
    return Group(_flags(row, settings), values, counters)


def parameter_keys(plan: Plan) -> dict[object, Trained]:
    """The trained parameters by their memory."""
    return {memory_key(trained.parameter.detach()): trained for trained in plan.trained}

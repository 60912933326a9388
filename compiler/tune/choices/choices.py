"""The values that were chosen for kernels. Light: imports nothing of the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["COST_MODEL", "NO_CHOICES", "SHARED", "Choice", "Choices", "Value"]

Value = int | str

#: in place of a target: choices of the lowering, which all targets of a package share (the layout of weights)
SHARED = "cpu"


@dataclass(frozen=True)
class Choice:
    """Parameter -> value for one kernel; a parameter that is not here has the cost model's value."""

    values: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> Choice:
        """From values by parameter."""
        return cls(tuple(sorted(values.items())))

    def get(self, parameter: str, default: Value) -> Value:
        """The value of a parameter, or `default` where the choice leaves it to the cost model."""
        return dict(self.values).get(parameter, default)

    def __or__(self, other: Choice) -> Choice:
        """Both; of a parameter that both name, the other's value."""
        return Choice.of({**dict(self.values), **dict(other.values)})

    def as_dict(self) -> dict[str, Value]:
        """The values by parameter."""
        return dict(self.values)

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.values) or "cost model"

    def __bool__(self) -> bool:
        return bool(self.values)


COST_MODEL = Choice()


@dataclass(frozen=True)
class Choices:
    """Choices by target (or SHARED) and kernel key; a kernel that is not here has COST_MODEL."""

    by_target: Mapping[str, Mapping[str, Choice]] = field(default_factory=dict)

    def of(self, target: str, key: str) -> Choice:
        """What was chosen for the kernels of this key on a target; where nothing was, the cost model's choice."""
        return self.by_target.get(target, {}).get(key, COST_MODEL)

    def alike(self, target: str, other: str) -> bool:
        """Whether two targets have the same choices."""
        return self.by_target.get(target, {}) == self.by_target.get(other, {})

    def shared(self, key: str, parameter: str, default: Value) -> Value:
        """The lowering's choice of a parameter."""
        return self.of(SHARED, key).get(parameter, default)

    def made(self) -> dict[str, dict[str, dict[str, Value]]]:
        """Target -> key -> parameters, for kernels whose choice is not the cost model's."""
        rows = {t: {key: c.as_dict() for key, c in sorted(by.items()) if c} for t, by in self.by_target.items()}
        return {target: by for target, by in sorted(rows.items()) if by}


NO_CHOICES = Choices()

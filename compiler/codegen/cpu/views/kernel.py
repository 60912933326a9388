"""What the views of all kernels have."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..scope import Param


@dataclass(frozen=True)
class Tuning:
    """What a choice sets for a kernel: fields of a C++ struct (or without one, of the template) and their values."""

    struct: str = ""
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def argument(self) -> str:
        """The struct as one more argument of a call."""
        return ", tuning" if self.struct else ""

    def value(self, name: str, default: str) -> str:
        """The text of a field; `default` where it is not set."""
        return dict(self.fields).get(name, default)

    def added(self, name: str) -> str:
        """The field as one more argument of a call; nothing when it is not set."""
        return f", {self.value(name, '')}" if name in dict(self.fields) else ""


COST_MODEL = Tuning()


@dataclass(frozen=True)
class KernelView:
    """A kernel: its template's file in templates/cpu, and the parameters of its function."""

    template: str
    params: tuple[Param, ...]


@dataclass(frozen=True)
class TunedKernel(KernelView):
    """A kernel that the tuner has choices for."""

    tuning: Tuning = field(default=COST_MODEL, kw_only=True)

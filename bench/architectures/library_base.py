"""What the rows of libraries are made of: a model, and inputs whose sizes are numbers or names.

    image("b", 3, "h", "w")         floats; the sizes that have names are dynamic

A named size has three values, for batches of 2 (the example's), 1 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import Dim

from .base import Wrapped

Size = int | str
Fill = Callable[[tuple[int, ...]], torch.Tensor]
#: batches of the runs, the example's first
BATCHES = (2, 1, 3)


@dataclass(frozen=True)
class Input:
    """A tensor: its sizes, and what it is filled with."""

    shape: tuple[Size, ...]
    fill: Fill = torch.randn


@dataclass(frozen=True)
class LibraryRow:
    """A model of a library.

    build: makes it, when its library is there. sizes: of each name besides the batch "b" the values for BATCHES.
    multiple: of which numbers they are multiples. call: arguments that stay the same. names: keywords of the inputs.
    """

    name: str
    kind: str
    build: Callable[[], torch.nn.Module]
    inputs: tuple[Input, ...]
    sizes: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    multiple: Mapping[str, int] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] | None = None

    def module(self) -> Wrapped:
        """The model with random weights."""
        return Wrapped(self.build().eval(), self.names, self.call)

    def tensors(self, batch: int) -> tuple[torch.Tensor, ...]:
        """Inputs for a batch, and the other sizes that belong to it."""
        run = BATCHES.index(batch) if batch in BATCHES else 0
        known = {"b": batch, **{name: values[run] for name, values in self.sizes.items()}}
        return tuple(i.fill(tuple(known[n] if isinstance(n, str) else n for n in i.shape)) for i in self.inputs)

    def dynamic_shapes(self) -> Any:
        """Every size with a name is dynamic."""
        dims: dict[str, Any] = {"b": Dim("batch", min=1, max=16)}
        for name, values in self.sizes.items():
            step = self.multiple.get(name, 1)
            root = Dim(name, min=max(min(values) // step, 1), max=2 * max(values) // step)
            dims[name] = step * root if step > 1 else root
        shapes = [{d: dims[n] for d, n in enumerate(i.shape) if isinstance(n, str)} for i in self.inputs]
        return (tuple(shapes),)


class Function(torch.nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def ints(high: int, low: int = 0) -> Fill:
    """Whole numbers from `low` to high - 1."""
    return lambda shape: torch.randint(low, high, shape)


def uniform(low: float = 0.0, high: float = 1.0) -> Fill:
    return lambda shape: torch.rand(shape) * (high - low) + low


def image(height: Size = 64, width: Size = 64, channels: int = 3, fill: Fill = torch.randn) -> Input:
    return Input(("b", channels, height, width), fill)

"""The header of numbers of a machine that the kernels of CPUs read: a constant of C++ for each field of its rows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ...machine.cpu_kernels import KERNEL_NUMBERS, KernelNumbers
from ..environments import environment

#: as kernels include it
MACHINE = "machine.h"


@dataclass(frozen=True)
class Constant:
    """A constant of C++: its type, its name and its value, as text."""

    type: str
    name: str
    value: str


@dataclass(frozen=True)
class Group:
    """The constants of a row, and what they are about."""

    about: str
    constants: tuple[Constant, ...]


def render_machine(isa: str) -> str:
    """The text of machine.h for an instruction set level.

    isa: one of KERNEL_NUMBERS. Raises ValueError for another level.
    """
    if isa not in KERNEL_NUMBERS:
        raise ValueError(f"no numbers of kernels for {isa!r}; there are some for {', '.join(KERNEL_NUMBERS)}")
    return render_numbers(isa, KERNEL_NUMBERS[isa])


def render_numbers(isa: str, numbers: KernelNumbers) -> str:
    """The header for numbers of one's own (tests try others than those of the rows)."""
    rows = [getattr(numbers, f.name) for f in fields(numbers)]
    groups = [Group((row.__doc__ or "").partition("\n")[0], tuple(_constants(row))) for row in rows]
    return environment("cpu").get_template("machine.h.j2").render(isa=isa, groups=groups)


def _constants(row: Any) -> list[Constant]:
    return [_constant(_name(f.name), getattr(row, f.name)) for f in fields(row)]


def _name(name: str) -> str:
    """`kTaskElements` of "task_elements"."""
    return "k" + "".join(part.capitalize() for part in name.split("_"))


def _constant(name: str, value: bool | int | tuple[int, ...]) -> Constant:
    if isinstance(value, bool):
        return Constant("bool", name, str(value).lower())
    if isinstance(value, int):
        return Constant("int64_t", name, str(value))
    return Constant("int64_t", f"{name}[{len(value)}]", "{" + ", ".join(map(str, value)) + "}")

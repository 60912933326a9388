"""What a host program does between and around its kernels, as views for its template: sizes that the run finds,
branches and loops; and where the buffers lie whose sizes become known on the way.

    const int64_t size_u0 = temp_count[0];
    if (holds(temp_flag)) { ... } else { ... }
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...ir.buffers import Buffer
from ...ir.index import Index
from ...ir.program import Check, Define
from ...schedule import Schedule
from ...schedule.steps import ChooseStep, RepeatStep, Step
from ..cpu.scope import size_name
from .size_text import SizeText

__all__ = [
    "CallStep",
    "ComputedView",
    "PointerView",
    "StepView",
    "StepViews",
    "buffer_pointer",
    "computed_views",
    "known",
    "name_of",
]


@dataclass(frozen=True)
class PointerView:
    """A buffer's address; known when the first `known` of the sizes that the run finds are."""

    name: str
    type: str
    address: str
    known: int = 0


@dataclass(frozen=True)
class CallStep:
    """Kernel `number` of the entry point; `call` is what the program's template prints."""

    number: int
    call: object
    kind: str = "call"


@dataclass(frozen=True)
class CheckView:
    """A condition, and the C++ string literal to fail with where it does not hold."""

    condition: str
    text: str


@dataclass(frozen=True)
class DefineStep:
    """Computed size `number` and its value; what is checked, and which pointers are known from then on."""

    number: int
    name: str
    value: str
    checks: tuple[CheckView, ...]
    pointers: tuple[PointerView, ...]
    kind: str = "define"


@dataclass(frozen=True)
class ChooseView:
    """A branch by the condition `flag`."""

    flag: str
    then: tuple[StepView, ...]
    other: tuple[StepView, ...]
    kind: str = "choose"


@dataclass(frozen=True)
class RepeatView:
    """A loop: count times with the number in `iteration`, or, without one, while `flag` holds behind `test`."""

    test: tuple[StepView, ...]
    flag: str
    iteration: str
    count: str
    body: tuple[StepView, ...]
    kind: str = "repeat"


StepView: TypeAlias = CallStep | DefineStep | ChooseView | RepeatView


@dataclass(frozen=True)
class ComputedView:
    """Row of mycc_size: its name, bounds and C++ string literal of what gives it."""

    name: str
    label: str
    min: int
    max: str
    what: str


@dataclass(frozen=True)
class StepViews:
    """Makes the views of a schedule's steps. condition, number: the C++ that reads a flag, or a size, by the name of
    the buffer that it lies in."""

    schedule: Schedule
    condition: Callable[[str], str]
    number: Callable[[str], str]

    def rows(
        self, pointers: Sequence[PointerView], kernels: Sequence[tuple[CallStep, ...]]
    ) -> tuple[StepView, ...]:  # fmt: skip
        """pointers: of all buffers. kernels: the calls that each kernel of the schedule becomes."""
        found = itertools.count(1)

        def define(step: Define) -> DefineStep:
            number = next(found)
            checks = tuple(_check(c) for c in self.schedule.program.checks if c.defined == number)
            new = tuple(p for p in pointers if p.known == number)
            return DefineStep(
                number - 1, size_name(step.size.name), self.number(name_of(step.buffer)), checks, new
            )  # fmt: skip

        def views(step: Step) -> tuple[StepView, ...]:
            match step:
                case int():
                    return kernels[step]
                case Define():
                    return (define(step),)
                case ChooseStep():
                    return (ChooseView(self.condition(name_of(step.flag)), rows(step.then), rows(step.other)),)
                case RepeatStep():
                    flag = "" if step.flag is None else self.condition(name_of(step.flag))
                    iteration = "" if step.iteration is None else size_name(step.iteration.name)
                    count = "" if step.count is None else SizeText(wraps=True).number(step.count)
                    return (RepeatView(rows(step.test), flag, iteration, count, rows(step.body)),)

        def rows(steps: Sequence[Step]) -> tuple[StepView, ...]:
            return tuple(view for step in steps for view in views(step))

        return rows(self.schedule.steps)


def _check(check: Check) -> CheckView:
    text = SizeText(wraps=True)
    sign = {"eq": "==", "ne": "!=", "le": "<=", "lt": "<"}[check.op]
    condition = f"{text.index(check.a)} {sign} {text.index(check.b)}"
    return CheckView(condition, json.dumps(check.text, ensure_ascii=False))


def known(schedule: Schedule, *sizes: Index) -> int:
    """How many of the sizes that the run finds have to be known for these."""
    names = [d.size.name for d in schedule.program.defines]
    return max((names.index(s.name) + 1 for size in sizes for s in size.sizes() if s.name in names), default=0)


def computed_views(schedule: Schedule) -> tuple[ComputedView, ...]:
    """The sizes that the run finds, in the order of their definitions."""
    return tuple(_computed(d) for d in schedule.program.defines)


def _computed(define: Define) -> ComputedView:
    size = define.size
    high = "INT64_MAX" if size.hi is None else str(size.hi)
    return ComputedView(size_name(size.name), size.name, size.lo, high, json.dumps(define.where, ensure_ascii=False))


def buffer_pointer(schedule: Schedule, i: int, name: str, kind: str) -> PointerView:
    """The address of arena buffer `i` of the memory plan."""
    needed = known(schedule, schedule.memory.lifetimes[i].buffer.size)
    place = f"call->buffers[{i}]" if needed else f"(call->arena + call->offsets[{i}])"
    return PointerView(name, kind, place, needed)


def name_of(buffer: Buffer | None) -> str:
    """The variable that holds a buffer's address."""
    assert buffer is not None
    buffer = buffer.root
    return f"{buffer.kind}_{''.join(ch if ch.isalnum() else '_' for ch in buffer.name)}"

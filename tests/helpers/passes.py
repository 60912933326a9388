"""Every pass of the schedule, watched: the program after it has to be lawful and to answer as the one before it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.evaluate import Undefined
from mycc.compiler.ir.plans.laws import verify_plans
from mycc.compiler.ir.program import AnyNode, Choose, Program, Repeat
from mycc.compiler.ir.verify import BrokenLaw, verify_program
from mycc.compiler.machine.gpu import DEVICES
from mycc.compiler.machine.targets import Family
from mycc.compiler.schedule import schedule
from mycc.compiler.schedule.barriers import is_keep
from mycc.compiler.schedule.passes import passes_for, same_nodes

from .evaluation import Answer, answer, difference

Nodes = tuple[AnyNode, ...]
#: elements of inputs and constants, and the sizes of a call
Call = tuple[Mapping[Buffer, np.ndarray[Any, Any]], Mapping[str, int]]

#: passes that sum in another order, or in parts: what they make differs in roundings. All others keep every bit.
REASSOCIATE = frozenset(
    {
        "blocked-variance",
        "column-sums",
        "online-softmax",
        "rfactor",
        "rfactor-samples",
        "separable-windows",
        "split-k",
        "unroll-reductions",
        "welford",
    }
)
#: how far roundings may lead apart, of the largest value; of programs with numbers of 16 bits
APART, HALVES_APART = 1e-5, 2.0**-6


class WrongPass(AssertionError):
    """A pass that changed what a program answers, or made one that breaks a law."""


def pass_names(family: Family) -> tuple[str, ...]:
    """The passes of a family, each once."""
    return tuple(dict.fromkeys(row.name for row in passes_for(DEVICES[90] if family == "cuda" else None)))


@dataclass
class Judge:
    """Follows a whole program through the passes, which see pieces of it.

    calls: what the program is evaluated with, the first one with the roundings of its types too; changed: how often
    each pass changed a program; proved: whether the verifier can prove the laws of the program before the passes, whose
    sizes may be too intricate for it.
    """

    program: Program
    calls: Sequence[Call]
    family: Family = "cpu"
    changed: Counter[str] = field(default_factory=Counter)
    wanted: list[Answer] = field(default_factory=list)
    rounded: Answer = ""
    proved: bool = True

    def __post_init__(self) -> None:
        self.wanted = [answer(self.program, given, sizes, self.family) for given, sizes in self.calls]
        self.rounded = self._rounded(self.program)
        try:
            verify_program(self.program)
        except BrokenLaw:
            self.proved = False

    def _rounded(self, program: Program) -> Answer:
        given, sizes = self.calls[0]
        return answer(program, given, sizes, self.family, roundings=True)

    def follow(self) -> Program:
        """Schedules the program; WrongPass names the first pass that was wrong. Gives the scheduled program."""
        device = DEVICES[90] if self.family == "cuda" else None
        result = schedule(self.program, device=device, observer=self._observe)
        self._check("in_a_row", result.program)
        verify_plans(result.kernels)
        return result.program

    def _observe(self, name: str, before: Sequence[AnyNode], after: Sequence[AnyNode]) -> None:
        self.changed[name] += 1
        self.program = with_piece(self.program, _kernels(before), _kernels(after))
        self._check(name, self.program)

    def _check(self, name: str, program: Program) -> None:
        try:
            if self.proved:
                verify_program(program, name)
            found = [answer(program, given, sizes, self.family) for given, sizes in self.calls]
            rounded = self._rounded(program)
        except (BrokenLaw, Undefined) as error:
            raise WrongPass(f"{name}: {error}") from error
        for (_, sizes), f, w in zip(self.calls, found, self.wanted, strict=True):
            problem = difference(f, w)
            if problem:
                raise WrongPass(f"{name} at {dict(sizes)}: {problem}")
        problem = difference(rounded, self.rounded, self._apart() if name in REASSOCIATE else 0.0)
        if problem:
            raise WrongPass(f"{name} in the types of the program: {problem}")
        self.rounded = rounded

    def _apart(self) -> float:
        dtypes = {b.dtype for n in self.program.nodes for b in (*n.reads(), *n.writes())}
        return HALVES_APART if dtypes & {"f16", "bf16"} else APART


def special(x: torch.Tensor) -> torch.Tensor:
    """A float tensor with NaN, infinities, a negative zero and a large number at some places."""
    if not x.is_floating_point() or not x.numel():
        return x
    generator, values = torch.Generator().manual_seed(x.numel()), x.clone().flatten()
    for value in (float("nan"), float("inf"), -float("inf"), -0.0, 1e30):
        values[torch.randint(0, x.numel(), (1,), generator=generator)] = value
    return values.reshape(x.shape)


def _kernels(nodes: Sequence[AnyNode]) -> Nodes:
    return tuple(n for n in nodes if not is_keep(n))


def with_piece(program: Program, before: Nodes, after: Nodes) -> Program:
    """The program with other nodes in the place of neighbouring ones, at its top or in a block of it."""
    place = _place(program.nodes, before)
    if place is None:
        inside = tuple(_with_block(n, before, after) for n in program.nodes)
        assert not same_nodes(inside, program.nodes), "the nodes that a pass changed are not in the program"
        return program.with_nodes(inside)
    end, grown = place + len(before), len(after) - len(before)
    nodes = (*program.nodes[:place], *after, *program.nodes[end:])
    defines = tuple(replace(d, after=d.after + (grown if d.after >= end else 0)) for d in program.defines)
    return replace(program, nodes=nodes, defines=defines)


def _with_block(node: AnyNode, before: Nodes, after: Nodes) -> AnyNode:
    def block(nodes: Nodes) -> Nodes:
        place = _place(nodes, before)
        if place is not None:
            return (*nodes[:place], *after, *nodes[place + len(before) :])
        inner = tuple(_with_block(n, before, after) for n in nodes)
        return nodes if same_nodes(inner, nodes) else inner

    if isinstance(node, Choose):
        then, other = block(node.then), block(node.other)
        return node if then is node.then and other is node.other else replace(node, then=then, other=other)
    if isinstance(node, Repeat):
        test, body = block(node.test), block(node.body)
        return node if test is node.test and body is node.body else replace(node, test=test, body=body)
    return node


def _place(nodes: Nodes, run: Nodes) -> int | None:
    """Where neighbouring nodes begin."""
    starts = range(len(nodes) - len(run) + 1)
    return next((i for i in starts if same_nodes(nodes[i : i + len(run)], run)), None) if run else None

"""Evaluates random programs after each pass of the schedule, for CPUs and GPUs: the answers may not change."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mycc.compiler.lower import lower
from mycc.compiler.lower.core.driver import Lowered
from mycc.compiler.machine.targets import Family
from mycc.compiler.model.graph import ModelGraph
from mycc.runtime.errors import CompileError

from ..conformance.compile import Crash, prepare, reason
from ..helpers.evaluation import given_to
from ..helpers.passes import Call, Judge, WrongPass, special
from .alias_programs import SIZES as ALIAS_SIZES
from .alias_programs import AliasProgram
from .judge import Loaded, Verdict
from .programs import LARGEST, LEAST, SIZES, Program

FAMILIES: tuple[Family, ...] = ("cpu", "cuda")
#: how often each pass has changed a program, by family
CHANGED: dict[Family, Counter[str]] = {family: Counter() for family in FAMILIES}


def judge(programs: Sequence[Program | AliasProgram], cache: Path) -> dict[Any, Verdict]:
    """What became of each program; nothing is built."""
    verdicts: dict[Any, Verdict] = {}
    for program in dict.fromkeys(programs):
        try:
            verdicts[program] = Verdict(_problem(program))
        except CompileError as error:
            verdicts[program] = Verdict(refused=reason(error))
        except Crash as error:
            verdicts[program] = Verdict(str(error))
    return verdicts


def _problem(program: Program | AliasProgram) -> str:
    """The first pass that is wrong."""
    space = program.load()
    first = program.examples(SIZES[0]) if isinstance(program, Program) else program.examples(0)
    one = prepare("program", Loaded(space["model"], first, space.get("dynamic_shapes")))
    for family in FAMILIES:
        try:
            lowered = lower(one.graph, None, family)
        except CompileError:
            continue  # refused on GPUs alone
        judged = Judge(lowered.program, list(_calls(program, one.captured, lowered)), family)
        try:
            judged.follow()
        except WrongPass as error:
            return f"{family}: {error}"
        CHANGED[family] += judged.changed
    return ""


def _calls(program: Program | AliasProgram, graph: ModelGraph, lowered: Lowered) -> list[Call]:
    """Inputs of several sizes, the least ones among them; the last ones with NaN and infinities."""
    state = [_state(change.initial) for change in graph.in_place if change.input >= graph.n_arguments]
    names = lowered.program.sizes
    calls = []
    for sizes, inputs in _examples(program):
        bound = {n: sizes[n] for n in names}
        if all(b.size.evaluate(bound) == x.numel() for b, x in zip(lowered.program.inputs, inputs, strict=True)):
            calls.append((inputs, bound))  # else the program fixes a size
    inputs, bound = calls[-1]
    calls.append((tuple(map(special, inputs)), bound))
    return [(given_to(lowered, [*inputs, *state]), bound) for inputs, bound in calls]


def _examples(program: Program | AliasProgram) -> list[tuple[dict[str, int], tuple[torch.Tensor, ...]]]:
    if isinstance(program, AliasProgram):
        return [(sizes, program.examples(call)) for call, sizes in enumerate(ALIAS_SIZES)]
    choose = random.Random(str(program))
    drawn = {s: choose.choice((2, 3, 8, 16, 17, LARGEST)) for s in ("n", "m")}
    return [(sizes, program.examples(sizes, seed)) for seed, sizes in enumerate((SIZES[0], LEAST, drawn))]


def _state(initial: torch.Tensor | None) -> torch.Tensor:
    assert initial is not None
    if not initial.is_floating_point():
        return initial
    return torch.from_numpy(np.random.default_rng(initial.numel()).integers(-24, 25, initial.shape) / 8)

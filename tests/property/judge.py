"""Compiles random programs together and compares them with eager torch in float64 at random sizes."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from mycc.compiler.verify.reference import reference
from mycc.runtime.errors import CompileError, RunError

from ..conformance.compile import Crash, Prepared, build_all, prepare, reason
from .programs import LARGEST, SIZES, Program

RUNS = 3  # sets of sizes of each program
#: allowed beside eager's own error: of the largest magnitude, in units of the type's precision
FACTOR, UNITS = 8.0, 64.0


@dataclass(frozen=True)
class Loaded:
    """The module of a program as something to prepare: see conformance.compile."""

    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    dynamic_shapes: Any


@dataclass(frozen=True)
class Verdict:
    """`problem` is empty for a right program; a refusal is no problem of its own."""

    problem: str = ""
    refused: str = ""


def judge(programs: Sequence[Program], cache: Path) -> dict[Program, Verdict]:
    """What became of each program; those that compile lie in as few packages as possible."""
    verdicts: dict[Program, Verdict] = {}
    prepared: dict[str, tuple[Program, Prepared]] = {}
    for i, program in enumerate(dict.fromkeys(programs)):
        try:
            one = _prepared(f"program{i}", program)
            prepared[one.name] = program, one
        except CompileError as error:
            verdicts[program] = Verdict(refused=reason(error))
        except Crash as error:
            verdicts[program] = Verdict(str(error))
    with tempfile.TemporaryDirectory(prefix="programs") as folder:
        for one, package in build_all([p for _, p in prepared.values()], Path(folder), cache):
            program = prepared[one.name][0]
            problem = str(package) if isinstance(package, Exception) else _problem(program, one, package)
            verdicts[program] = Verdict(problem)
    return verdicts


def _prepared(name: str, program: Program) -> Prepared:
    space = program.load()
    call = Loaded(space["model"], program.examples(SIZES[0]), space.get("dynamic_shapes"))
    return prepare(name, call)


def _problem(program: Program, one: Prepared, package: Any) -> str:
    """The first thing that is wrong, at the sizes it was drawn with and at random ones."""
    choose = random.Random(str(program))
    for run in range(RUNS):
        sizes = SIZES[1] if run == 0 else {s: choose.choice((1, 2, 3, 8, 16, 17, LARGEST)) for s in ("n", "m")}
        given = program.examples(sizes, seed=run)
        problem = _compared(one, package.entry(one.name), given)
        if problem:
            return f"{problem} at {', '.join(f'{s}={sizes[s]}' for s in program.symbols) or 'its sizes'}"
        if not program.symbols and run == 1:
            break
    return ""


def _compared(one: Prepared, entry: Any, given: Sequence[torch.Tensor]) -> str:
    try:
        with torch.no_grad():
            eager = one.call.module(*(x.clone() for x in given))
    except (RuntimeError, IndexError, ValueError):
        return ""  # sizes at which the program has no answer
    try:
        found = entry(*given)
    except RunError as error:
        return f"raises {reason(error)}"
    wide = reference(one.captured, list(given))
    results = zip([torch.as_tensor(f) for f in found], eager, wide, strict=True)
    return next((p for i, (f, e, w) in enumerate(results) if (p := _differs(i, f, e, w))), "")


def _differs(i: int, found: torch.Tensor, eager: torch.Tensor, wide: torch.Tensor) -> str:
    if (found.dtype, found.shape) != (eager.dtype, eager.shape):
        return f"result {i} is {found.dtype}{list(found.shape)}, not {eager.dtype}{list(eager.shape)}"
    if not eager.is_floating_point():
        wrong = int((found != eager).sum())
        return f"result {i}: {wrong} of {eager.numel()} elements differ" if wrong else ""
    f, e, w = found.double(), eager.double(), wide.double()
    odd = ~(torch.isfinite(e) & torch.isfinite(w))
    if not bool(((f == e) | (torch.isnan(f) & torch.isnan(e)))[odd].all()):
        return f"result {i} is not finite where eager is, or the other way round"
    f, e, w = f[~odd], e[~odd], w[~odd]
    if not f.numel():
        return ""
    allowed = FACTOR * float((e - w).abs().max()) + UNITS * torch.finfo(eager.dtype).eps * max(
        1.0, float(w.abs().max())
    )
    off = float((f - w).abs().max())
    return "" if off <= allowed else f"result {i}: off by {off:.2e}, allowed {allowed:.2e}"

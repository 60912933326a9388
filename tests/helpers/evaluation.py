"""Evaluating lowered programs: what they are given, and how two answers are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.evaluate import CallFails, evaluate
from mycc.compiler.ir.program import Program
from mycc.compiler.lower.core.driver import Lowered
from mycc.compiler.machine.targets import Family

Array = np.ndarray[Any, Any]
#: the outputs of a program in their order and then what it changed in place, or the error that it ends with
Answer = list[Array] | str
#: what random numbers are made from
RANDOM = {"random_call": 7, "random_blocks": 64}


def wide(t: torch.Tensor) -> torch.Tensor:
    """Floats in float64, other numbers as they are."""
    return t.detach().double() if t.is_floating_point() else t.detach()


def given_to(program: Lowered, inputs: Sequence[torch.Tensor]) -> dict[Buffer, Array]:
    """The elements of the inputs and of the constants, these in their layouts."""
    buffers = (*program.program.inputs, *program.program.state)
    values = {b: wide(x).contiguous().numpy() for b, x in zip(buffers, inputs, strict=True)}
    for constant, buffer in program.constants.items():
        values[buffer] = constant.layout.pack(wide(constant.tensor)).numpy()
    return values


def answer(
    program: Program,
    given: Mapping[Buffer, Array],
    sizes: Mapping[str, int],
    family: Family = "cpu",
    roundings: bool = False,
) -> Answer:
    """What a program answers: values, or its own error."""
    try:
        return list(evaluate(program, given, {**RANDOM, **sizes}, family=family, roundings=roundings).values())
    except CallFails as error:
        return f"fails: {error}"


def difference(found: Answer, wanted: Answer, relative: float = 1e-9) -> str:
    """How two answers differ, "" where they do not: floats by more than so much of the largest finite one; NaN,
    infinities, integers and bools at all."""
    if isinstance(found, str) or isinstance(wanted, str):
        same = isinstance(found, str) and isinstance(wanted, str)
        return "" if same else f"{_kind(found)}, not {_kind(wanted)}"
    if len(found) != len(wanted):
        return f"{len(found)} results, not {len(wanted)}"
    return next((d for i, (f, w) in enumerate(zip(found, wanted, strict=True)) if (d := _apart(i, f, w, relative))), "")


def _kind(a: Answer) -> str:
    return a if isinstance(a, str) else "values"


def _apart(i: int, found: Array, wanted: Array, relative: float) -> str:
    if found.shape != wanted.shape:
        return f"result {i} has {found.size} elements, not {wanted.size}"
    if wanted.dtype.kind != "f":
        wrong = int((found != wanted).sum())
        return f"result {i}: {wrong} of {wanted.size} elements differ" if wrong else ""
    finite = np.isfinite(wanted)
    odd = ~finite | ~np.isfinite(found)
    wrong = int((~((found == wanted) | (np.isnan(found) & np.isnan(wanted))) & odd).sum())
    if wrong:
        return (
            f"result {i}: {wrong} of {wanted.size} elements are not finite where they should be, or the other way round"
        )
    both = finite & ~odd
    if not both.any():
        return ""
    off, scale = np.abs(found[both] - wanted[both]).max(), np.abs(wanted[both]).max()
    return f"result {i} is off by {off:.2e} where numbers go to {scale:.2e}" if off > relative * scale else ""

"""Compiles random programs that write in place together; call after call, results, arguments and buffers are eager's.

Where eager torch refuses a call, the package or the compile has to.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from mycc.compiler.machine.targets import Family
from mycc.runtime.errors import CompileError, Error, InputError

from ..conformance.compile import Crash, Prepared, build_all, prepare, reason
from .alias_programs import SIZES, AliasProgram
from .judge import Loaded, Verdict

TOLERANCE = 1e-4  # beside numbers of few digits, whose sums are exact but for long programs


def judge(programs: Sequence[AliasProgram], cache: Path, family: Family = "cpu") -> dict[AliasProgram, Verdict]:
    """What became of each program; those that compile lie in as few packages as possible. family: cuda is this
    machine's GPU."""
    verdicts: dict[AliasProgram, Verdict] = {}
    prepared: dict[str, tuple[AliasProgram, Prepared]] = {}
    for i, program in enumerate(dict.fromkeys(programs)):
        try:
            one = prepared_as(f"p{i}", program, family)
            prepared[one.name] = program, one
        except CompileError as error:
            verdicts[program] = Verdict() if program.raises else Verdict(refused=reason(error))
        except Crash as error:
            verdicts[program] = Verdict(str(error))
    with tempfile.TemporaryDirectory(prefix="programs") as folder:
        for one, package in build_all([p for _, p in prepared.values()], Path(folder), cache, family):
            program = prepared[one.name][0]
            failed = isinstance(package, Exception)
            verdicts[program] = Verdict(str(package) if failed else problem(program, one.name, package, family))
    return verdicts


def prepared_as(name: str, program: AliasProgram, family: Family = "cpu") -> Prepared:
    """The program up to its schedule; its buffers are called after it, as packages hold many."""
    space = program.load(f"{name}_")
    return prepare(name, Loaded(space["model"], program.examples(0), space.get("dynamic_shapes")), family)


def problem(program: AliasProgram, name: str, package: Any, device: str = "cpu") -> str:
    """The first thing that is wrong in some calls, each with other arguments that lie in memory in another way."""
    eager = program.twin()
    for call in range(len(SIZES)):
        mine, given = (lying(program, call, on) for on in (device, "cpu"))
        wanted, found = called(eager, given), called(package.entry(name), mine)
        if isinstance(wanted, Exception) or isinstance(found, Exception):
            expanded = call == 3 and isinstance(found, InputError)  # of which torch refuses some writes, we all
            if expanded or (isinstance(wanted, Exception) and isinstance(found, Exception)):
                return ""  # both may have written a part
            return f"call {call}: eager gives {said(wanted)}, the package {said(found)}"
        held = dict(eager.named_buffers())
        own = package.state
        rows = [(f"result {i}", f, w) for i, (f, w) in enumerate(zip(found, wanted, strict=True))]
        rows += [(x.name, m, g) for x, m, g in zip(program.inputs, mine, given, strict=True)]
        rows += [(n, own[f"{name}_{n}"], b) for n, b in held.items() if f"{name}_{n}" in own]
        for what, f, w in rows:
            if text := differs(torch.as_tensor(f).cpu(), w):
                return f"call {call}: {what} {text}"
    return ""


#: whether these give a view or a copy depends on how a tensor lies in memory; a package decides it for dense ones
_BY_LAYOUT = re.compile(r"(?<!k0)\.(contiguous|reshape|flatten|view|as_strided)\(")


def lying(program: AliasProgram, call: int, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """The arguments of a call: dense, transposed, every second element, each row the same memory."""
    values = tuple(x.to(device) for x in program.examples(call))  # a copy to a device has no gaps
    if call and _BY_LAYOUT.search("".join(program.lines)):
        return values
    return tuple(_lying(x, call) for x in values)


def _lying(x: torch.Tensor, call: int) -> torch.Tensor:
    if call == 1:
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if call == 2:
        return torch.stack([x, torch.full_like(x, 7)], -1)[..., 0]
    return x[:1].expand(x.shape) if call == 3 else x


def called(function: Any, given: Sequence[torch.Tensor]) -> Any:
    """The results, or the error that the call raises."""
    try:
        with torch.no_grad():
            return function(*given)
    except (RuntimeError, IndexError, ValueError, Error) as error:
        return error


def said(result: Any) -> str:
    """What came of a call, for the message of a difference."""
    return f"{type(result).__name__} {reason(result)}" if isinstance(result, Exception) else "a result"


def differs(found: torch.Tensor, wanted: torch.Tensor) -> str:
    """How a tensor is not eager's, in words; empty if it is."""
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"is {found.dtype}{list(found.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    near = torch.isclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    return "" if bool(near.all()) else f"differs in {int((~near).sum())} of {near.numel()} elements"

"""Random programs that write in place together, as GPU kernels: through Triton's interpreter, or on this machine's GPU.

On a GPU the order of several writes to one element is not specified, by torch neither: programs with such writes are
left out there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from mycc.compiler.capture.export import capture_request
from mycc.compiler.capture.state import share_state
from mycc.compiler.ir.buffers import Buffer
from mycc.runtime.errors import CompileError, Error, RunError

from ..conformance.compile import SECONDS, Crash, first_line, reason, request, stage, time_limit
from ..helpers.device_programs import DeviceProgram, program_of, run_interpreted
from ..helpers.triton_interpreter import IndexOutOfRange, TritonInterpreter
from . import alias_judge
from .alias_programs import SIZES, AliasProgram
from .judge import Loaded, Verdict

#: writes of other values for each time that an index names an element
_ORDERED = re.compile(r"\[k0\] = (\w+$|.*flip)|index_copy_\(0, k0, \w+\)")
RUN_SECONDS = 120  # of the interpreter, for a call


def judge(programs: Sequence[AliasProgram], cache: Path, device: bool = False) -> dict[AliasProgram, Verdict]:
    """What became of each program."""
    if device:
        ordered = {p: Verdict(refused="the order of writes decides") for p in programs if _is_ordered(p)}
        return ordered | alias_judge.judge([p for p in programs if p not in ordered], cache, "cuda")
    verdicts: dict[AliasProgram, Verdict] = {}
    interpreter = TritonInterpreter(RUN_SECONDS)
    try:
        for program in dict.fromkeys(programs):
            if not interpreter.alive:
                interpreter.close()
                interpreter = TritonInterpreter(RUN_SECONDS)
            verdicts[program] = _verdict(program, interpreter)
    finally:
        interpreter.close()
    return verdicts


def _is_ordered(program: AliasProgram) -> bool:
    return any(_ORDERED.search(line) for line in program.lines)


def _verdict(program: AliasProgram, interpreter: TritonInterpreter) -> Verdict:
    try:
        compiled = _compiled(program)
    except CompileError as error:
        return Verdict() if program.raises else Verdict(refused=reason(error))
    except Crash as error:
        return Verdict(str(error))
    return Verdict(_problem(program, compiled, interpreter))


def _compiled(program: AliasProgram) -> DeviceProgram:
    """From capture to the kernels. Raises CompileError for a refusal, Crash for all else."""
    space = program.load()
    call = Loaded(space["model"], program.examples(0), space.get("dynamic_shapes"))
    with time_limit(SECONDS):
        (captured,) = share_state([stage(lambda: capture_request(request("program", call)))])
        return stage(lambda: program_of(captured))


def _problem(program: AliasProgram, compiled: DeviceProgram, interpreter: TritonInterpreter) -> str:
    """The first thing that is wrong in some calls; the state goes from call to call."""
    eager, planned = program.twin(), compiled.schedule.program
    left: dict[Buffer, torch.Tensor] = {}
    for call in range(len(SIZES)):
        mine, given = (program.examples(call) for _ in range(2))
        wanted = alias_judge.called(eager, given)
        found = _called(compiled, interpreter, mine, left)
        if isinstance(wanted, Exception) or isinstance(found, Exception):
            if isinstance(wanted, Exception) and isinstance(found, Error):
                return ""
            return f"call {call}: eager gives {alias_judge.said(wanted)}, the kernels {alias_judge.said(found)}"
        changes = [c for c in compiled.graph.in_place if c.initial is not None]
        held = dict(eager.named_buffers())
        rows = [(f"result {i}", f, w) for i, (f, w) in enumerate(zip(found, wanted, strict=False))]
        rows += [(x.name, left[b.root], g) for x, b, g in zip(program.inputs, planned.inputs, given, strict=True)]
        rows += [(c.name, left[b.root], held[c.name]) for c, b in zip(changes, planned.state, strict=True)]
        for what, f, w in rows:
            if text := alias_judge.differs(f.reshape(w.shape), w):
                return f"call {call}: {what} {text}"
    return ""


def _called(
    compiled: DeviceProgram, interpreter: TritonInterpreter, given: Sequence[torch.Tensor], left: dict[Buffer, Any]
) -> list[torch.Tensor] | Exception:
    before = dict(left)
    for s in compiled.graph.symbols:
        n = given[s.input].shape[s.dim]
        if not s.min <= n <= s.max:
            return RunError(f"{s.name} is {n}, which is outside of its range")
    try:
        return run_interpreted(compiled, interpreter, given, left, state=before)
    except (RunError, IndexOutOfRange) as error:
        return RunError(str(error))
    except Exception as error:
        return Crash(first_line(str(error)))

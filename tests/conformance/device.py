"""Calls of operators as GPU programs: each goes to Triton kernels alone, which Triton's interpreter runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from mycc.compiler.capture.export import capture_request
from mycc.compiler.codegen.cuda.kernel import SizeArg
from mycc.compiler.ir.random import CALL
from mycc.runtime.errors import RunError

from ..helpers.device_programs import DeviceProgram, program_of, run_interpreted
from ..helpers.triton_interpreter import IndexOutOfRange, TritonInterpreter
from .compile import SECONDS, Call, Crash, first_line, request, stage, time_limit

RUN_SECONDS = 240  # for the launches of one call


@dataclass(frozen=True)
class Launches:
    """One call as the launches of a program."""

    name: str
    call: Call
    program: DeviceProgram

    @property
    def random(self) -> bool:
        """Whether it draws random numbers, which are not the CPU's."""
        args = [arg for launch in self.program.code.entries[0].launches for arg in launch.args]
        return any(isinstance(arg, SizeArg) and CALL in arg.value.atoms() for arg in args)


def prepare(name: str, call: Call) -> Launches:
    """From capture to the kernels. Raises CompileError for a refusal, Crash for all else."""
    with time_limit(SECONDS):
        captured = stage(lambda: capture_request(request(name, call)))
        return Launches(name, call, stage(lambda: program_of(captured)))


class Runner:
    """One long-lived process of Triton's interpreter; another when it dies or takes too long."""

    def __init__(self) -> None:
        self._interpreter: TritonInterpreter | None = None

    def run(self, launches: Launches, wants: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """The results of each call, flat, with eager's for what is no tensor. Raises RunError, or Crash."""
        if self._interpreter is None:
            self._interpreter = TritonInterpreter(RUN_SECONDS)
        inputs = [x.clone() for x in launches.call.inputs]
        try:
            results = run_interpreted(launches.program, self._interpreter, inputs)
        except IndexOutOfRange as error:
            raise RunError(str(error)) from error
        except Exception as error:
            if not self._interpreter.alive:
                self.close()
            raise Crash(f"run: {first_line(str(error))}") from error
        every = len(results) == sum(len(want) for want in wants)  # numbers come as tensors too
        given = [[w if not every and not isinstance(w, torch.Tensor) else None for w in want] for want in wants]
        if len(results) != sum(g is None for values in given for g in values):
            raise Crash(f"{len(results)} results")
        left = iter(results)
        return [[next(left) if g is None else g for g in values] for values in given]

    def close(self) -> None:
        if self._interpreter is not None:
            self._interpreter.close()
            self._interpreter = None

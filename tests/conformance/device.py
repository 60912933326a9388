"""Calls of operators as GPU programs: each goes to Triton kernels alone, which Triton's interpreter runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mycc.compiler.capture.export import CaptureRequest, capture_request
from mycc.runtime.errors import RunError

from ..helpers.device_programs import DeviceProgram, program_of, run_interpreted
from ..helpers.triton_interpreter import IndexOutOfRange, TritonInterpreter
from .catalog import Call
from .compile import SECONDS, Crash, first_line, stage, time_limit

RUN_SECONDS = 60  # for the launches of one call


@dataclass(frozen=True)
class Launches:
    """One call as the launches of a program."""

    name: str
    call: Call
    program: DeviceProgram


def prepare(name: str, call: Call) -> Launches:
    """From capture to the kernels. Raises CompileError for a refusal, Crash for all else."""
    with time_limit(SECONDS):
        captured = stage(lambda: capture_request(CaptureRequest(call, call.inputs, name=name)))
        return Launches(name, call, stage(lambda: program_of(captured)))


class Runner:
    """One long-lived process of Triton's interpreter; another when it dies or takes too long."""

    def __init__(self) -> None:
        self._interpreter: TritonInterpreter | None = None

    def run(self, launches: Launches) -> list[Any]:
        """The results, flat. Raises RunError, or Crash."""
        if self._interpreter is None:
            self._interpreter = TritonInterpreter(RUN_SECONDS)
        inputs = [x.clone() for x in launches.call.inputs]
        try:
            return list(run_interpreted(launches.program, self._interpreter, inputs))
        except IndexOutOfRange as error:
            raise RunError(str(error)) from error
        except Exception as error:
            if not self._interpreter.alive:
                self.close()
            raise Crash(f"run: {first_line(str(error))}") from error

    def close(self) -> None:
        if self._interpreter is not None:
            self._interpreter.close()
            self._interpreter = None

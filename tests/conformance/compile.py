"""Calls of operators as entry points of one package: each goes to the loop IR alone, all are built and run together."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar
from unittest import mock

import mycc
import torch
from mycc.compiler import pipeline
from mycc.compiler.capture.export import CaptureRequest, capture_request
from mycc.compiler.capture.state import share_state, state_of
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.ir.verify import verify_program
from mycc.compiler.lower import lower
from mycc.compiler.machine.gpu import DEVICES
from mycc.compiler.machine.targets import Family
from mycc.compiler.options import CompileOptions
from mycc.compiler.request import CompileRequest
from mycc.compiler.schedule import schedule
from mycc.compiler.schedule.memory.laws import verify_memory
from mycc.runtime.errors import CompileError, RunError

from ..helpers.builds import QUICK
from .catalog import SEED, Together

SECONDS = 60  # for one call, from capture to schedule
FLAGS = QUICK
T = TypeVar("T")


class Call(Protocol):
    """What is compiled: a module, its example inputs, and which of their sizes are dynamic."""

    inputs: tuple[torch.Tensor, ...]

    @property
    def module(self) -> torch.nn.Module: ...

    @property
    def dynamic_shapes(self) -> Any: ...


class Crash(Exception):
    """Anything but a result or an error for the user."""


@dataclass(frozen=True)
class Prepared:
    """One call, on its way to a package: the values of the stages up to the schedule."""

    name: str
    call: Call
    captured: Any
    graph: Any
    lowered: Any
    schedule: Any


def prepare(name: str, call: Call, family: Family = "cpu") -> Prepared:
    """Capture, graph passes, lowering, schedule. Raises CompileError for a refusal, Crash for all else."""
    with time_limit(SECONDS):
        (captured,) = share_state([stage(lambda: capture_request(request(name, call)))])
        graph = stage(lambda: run_graph_passes(captured))
        lowered = stage(lambda: lower(graph, None, family))
        stage(lambda: verify_program(lowered.program, "lower"))
        planned = stage(lambda: schedule(lowered.program, device=DEVICES[90] if family == "cuda" else None))
        stage(lambda: verify_program(planned.program, "schedule"))
        stage(lambda: verify_memory(planned.program, planned.memory))
    return Prepared(name, call, captured, graph, lowered, planned)


def request(name: str, call: Call) -> CaptureRequest:
    return CaptureRequest(call.module, call.inputs, dynamic_shapes=call.dynamic_shapes, name=name)


def stage(run: Callable[[], T]) -> T:
    try:
        return run()
    except (CompileError, Crash):
        raise
    except Exception as error:
        raise Crash(f"{type(error).__name__}: {first_line(str(error))}") from error


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise Crash(f"compiling takes longer than {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)  # the process's own time: a busy machine is no fault
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def build(prepared: Sequence[Prepared], out: Path, cache: Path, target: Family) -> Any:
    """The loaded package whose entry points are these calls, for the CPU or the GPU of this machine."""
    options = CompileOptions.of(target=target, options={"build.flags": FLAGS}, verify=False, jobs=1, cache_dir=cache)
    by_name = {p.name: p for p in prepared}
    entries = tuple(request(p.name, p.call) for p in prepared)
    stages: dict[str, Callable[..., Any]] = {"capture_request": lambda wanted: by_name[wanted.name].captured}
    if not state_of([p.captured for p in prepared]):  # else its slots are numbered over all of them
        stages |= {
            "share_state": lambda graphs: graphs,
            "run_graph_passes": lambda graph, **_: by_name[graph.name].graph,
            "lower": lambda graph, *_: by_name[graph.name].lowered,
            "schedule": lambda program, *_: by_name[program.name].schedule,
        }
    with mock.patch.multiple(pipeline, **stages):
        pipeline.run(CompileRequest(entries, options, out, "conformance"))
    return mycc.load(out)


def build_all(
    prepared: Sequence[Prepared], folder: Path, cache: Path, target: Family = "cpu"
) -> Iterator[tuple[Prepared, Any]]:
    """Each call with the package that holds it, or with the error; a batch that fails is split in two."""
    if not prepared:
        return
    try:
        package = build(prepared, folder / f"{prepared[0].name}_{len(prepared)}.pkg", cache, target)
    except Exception as error:
        if len(prepared) == 1:
            yield prepared[0], Crash(_compiler_message(error))
            return
        middle = len(prepared) // 2
        yield from build_all(prepared[:middle], folder, cache, target)
        yield from build_all(prepared[middle:], folder, cache, target)
        return
    yield from ((p, package) for p in prepared)


def _compiler_message(error: Exception) -> str:
    """What went wrong behind the schedule; of generated code that does not compile, the first error."""
    lines = str(error).splitlines()
    return next((line.strip() for line in lines if " error: " in line), first_line(str(error)))


def run(prepared: Prepared, package: Any) -> list[list[Any]]:
    """The package's results for each call's own inputs, flat. Raises RunError, or Crash."""
    try:
        result = package.entry(prepared.name)(*(x.clone() for x in prepared.call.inputs), seed=SEED)
    except RunError:
        raise
    except Exception as error:
        raise Crash(f"run: {type(error).__name__}: {first_line(str(error))}") from error
    return flat_results(result, len(prepared.call.calls) if isinstance(prepared.call, Together) else 1)


def flat_results(result: Any, calls: int) -> list[list[Any]]:
    """The results of each call, flat; of several calls a package has a tuple."""
    return [[_here(v) for v in _flat(r)] for r in (result if calls > 1 else [result])]


def _here(value: Any) -> Any:
    """On the CPU: a call without inputs gives what lies on the package's device."""
    return value.cpu() if isinstance(value, torch.Tensor) else value


def _flat(value: Any) -> Iterator[Any]:
    value = value.to_tuple() if hasattr(value, "to_tuple") else value  # a result with named fields
    if isinstance(value, (tuple, list)):
        for v in value:
            yield from _flat(v)
    elif isinstance(value, dict):
        for key in sorted(value):
            yield from _flat(value[key])
    elif value is not None:
        yield value


def reason(error: Exception) -> str:
    """A refusal in one line, without places and sizes, so that equal ones are counted together."""
    text = first_line(str(error))
    details = getattr(error, "details", [])
    named = [m.group(1) for d in details if (m := re.match(r"\s*([\w:.]+::[\w.]+|[\w.]+)\(?", d))]
    if re.match(r"cannot compile \d+ operator", text) and named:
        return "no lowering of " + ", ".join(dict.fromkeys(named))
    text = re.sub(r"\(([^()]*\[[^()]*)\)", "", text)
    return re.sub(r"\s+", " ", text)[:200]


def first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")[:300]


torch.set_num_threads(1)

"""Architectures of libraries through the compiler: are they right?

    python bench/sweep.py                      transformers' (sweep_models.py): bench/sweep.json and docs/sweep.md
    python bench/sweep.py --table libraries    other libraries' (library_models.py): libraries.json and libraries.md
    python bench/sweep.py --jobs 16            so many at a time
    python bench/sweep.py --only bert,t5       some by name
    python bench/sweep.py --status wrong       again what was wrong; --status missing: what has no result yet
    python bench/sweep.py --json F --page F    results and page elsewhere
    python bench/sweep.py --only-page          the page again, from the results alone
    python bench/sweep.py --dtype bf16         in another type; printed only
    python bench/sweep.py --quick              a first look
    python bench/sweep.py --table libraries --peers    what AOTInductor and ONNX Runtime do with what mycc refuses

Each architecture is exported, compiled and compared with itself in float64, with fixed sizes and with a dynamic batch
(at batches of 2, 1 and 3), in a process of its own that has a time limit and one thread. Results are written after
each, so that a run that is stopped keeps them. The exit code is 1 when one is wrong or crashes.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import math
import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # weights are random: nothing is to be fetched

import library_models
import mycc
import sweep_models
import sweep_processes
import torch
from architectures.base import Wrapped
from mycc.compiler.observe import Observer
from mycc.compiler.verify.compare import error
from mycc.runtime.errors import CompileError
from sweep_files import AnyRow, Files, Found, Table, Task, cases_of, versions_of
from sweep_page import ARCHITECTURES, CASES, FACTOR, FLOOR, LIBRARIES, Result
from sweep_peers import PEERS
from sweep_processes import first_line
from sweep_reference import in_float64, wide_inputs, wide_model

ROOT = Path(__file__).resolve().parents[1]
BATCHES = {"static": (2,), "dynamic": (2, 1, 3)}


TABLES = {
    "transformers": Table(sweep_models.ROWS, sweep_models.NOTES, "sweep", ARCHITECTURES, ("transformers", "torch")),
    "libraries": Table(
        library_models.ROWS, library_models.NOTES, "libraries", LIBRARIES, ("torch", *library_models.LIBRARIES)
    ),
}
BY_NAME: dict[str, AnyRow] = {row.name: row for table in TABLES.values() for row in table.rows}


@dataclass(frozen=True)
class How:
    """How to compile: `dtype` as of mycc.compile; `quick`: little optimised, without the package's verification.

    peer: not with mycc, but with one of PEERS.
    """

    dtype: str | None = None
    quick: bool = False
    limit: float = 300.0
    peer: str = ""

    def options(self) -> dict[str, Any]:
        quick = {"verify": False, "options": {"build.flags": "-O1"}} if self.quick else {}
        return {"dtype": self.dtype, "jobs": 1, **quick}


class StageSeconds(Observer):
    """What each stage of a compile computes, in seconds, in this process and the C++ compilers that it runs."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self._start = 0.0

    def stage_started(self, name: str) -> None:
        self._start = _computed()

    def stage_finished(self, name: str, seconds: float, summary: str, value: object) -> None:
        self.stages[name] = round(self.stages.get(name, 0.0) + _computed() - self._start, 2)


def _computed() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def model_of(row: AnyRow) -> Wrapped:
    """The architecture with random weights; norms of batches have the statistics of random inputs."""
    torch.manual_seed(0)
    model = row.module()
    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    if norms:
        for norm in norms:
            norm.train()
            norm.momentum = 1.0
        with torch.no_grad(), contextlib.suppress(ValueError):  # of one pixel there is no variance
            model(*inputs_of(row, 4))
    return model.eval()


def inputs_of(row: AnyRow, batch: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(batch)
    return row.tensors(batch)


def measure(row: AnyRow, case: str, how: How) -> Result:
    """Compiles and compares one architecture. Raises what is no answer: a crash."""
    model = model_of(row)
    example, shapes = inputs_of(row, 2), row.dynamic_shapes() if case == "dynamic" else None
    with tempfile.TemporaryDirectory(prefix="sweep") as folder:
        times = StageSeconds()
        try:
            path = mycc.compile(
                model, example, out=f"{folder}/model.pkg", dynamic_shapes=shapes, progress=times, **how.options()
            )
        except CompileError as refusal:
            return Result(row.name, case, *_refused(model, example, shapes, refusal))
        package = mycc.load(path)
        worst, problem = (0.0, 0.0), ""
        for batch in BATCHES[case]:
            worst, problem = _compared(row, model, package, batch, worst, problem, how.dtype)
    status = "wrong" if problem else "right"
    return Result(row.name, case, status, problem, *worst, stages=times.stages)


def measure_peer(row: AnyRow, case: str, how: How) -> Result:
    """As `measure`, with one of PEERS; what it says of a model that it does not take is a refusal."""
    model, shapes = model_of(row), row.dynamic_shapes() if case == "dynamic" else None
    problem = ""
    with tempfile.TemporaryDirectory(prefix="sweep") as folder, torch.no_grad():
        try:
            package = PEERS[how.peer](model, inputs_of(row, 2), shapes, folder)
        except Exception as refusal:
            return Result(row.name, case, "refused", f"{type(refusal).__name__}: {_told(str(refusal))}")
        for batch in BATCHES[case]:
            try:
                _, problem = _compared(row, model, package, batch, (0.0, 0.0), problem, None)
            except Exception as error:
                problem = problem or f"a call at a batch of {batch}: {_told(str(error))}"
    return Result(row.name, case, "wrong" if problem else "right", problem)


def _refused(model: Wrapped, example: Any, shapes: Any, refusal: CompileError) -> tuple[str, str]:
    """Status and reason: of what torch.export refuses itself, its own."""
    text = reason(refusal)
    if "not as accurate" in text or "generated code" in text:
        return "wrong", text
    own = _own_failure(model, example, shapes)
    return ("torch", own) if own else ("refused", text)


def _own_failure(model: Wrapped, example: Any, shapes: Any) -> str:
    """What torch.export alone says to the model; empty when it gives a program."""
    try:
        with torch.no_grad():
            torch.export.export(model, example, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        return f"{type(error).__name__}: {_told(str(error))}"
    return ""


def _told(text: str) -> str:
    """The first line; of violated constraints the first that is named."""
    named = next((line.strip() for line in text.splitlines() if line.strip().startswith("- ")), "")
    return f"{first_line(text).partition(' For more information')[0]} {named}".strip()[:400]


def _compared(
    row: AnyRow, model: Wrapped, package: Any, batch: int, worst: tuple[float, float], problem: str, dtype: str | None
) -> tuple[tuple[float, float], str]:
    """The larger errors, and what is wrong at this batch, if nothing was before."""
    given = inputs_of(row, batch)
    narrow = {"bf16": torch.bfloat16, "f16": torch.float16}.get(dtype or "", torch.float32)
    taken = [x.to(narrow) if x.is_floating_point() else x for x in given]
    with torch.no_grad():
        eager = (copy.deepcopy(model).to(narrow) if dtype else model)(*taken)
        wanted = _in_float64(copy.deepcopy(model).to(narrow), taken, eager) or eager
    found = package(*taken)
    found = [torch.as_tensor(x) for x in (found if isinstance(found, (tuple, list)) else (found,))]
    if len(found) != len(eager):
        return worst, problem or f"{len(found)} results instead of {len(eager)}"
    for i, (f, e, w) in enumerate(zip(found, eager, wanted, strict=True)):
        off, own = error(f, w), error(e, w)
        if not math.isfinite(own):  # float32 overflows here: what eager torch makes of it is what has to come
            off, own = error(f, e), 0.0
        worst = max(worst[0], off), max(worst[1], own)
        if (f.dtype, f.shape) != (e.dtype, e.shape) or not off <= FACTOR * own + FLOOR:
            problem = problem or f"result {i} at a batch of {batch}: error {off:.1e}, eager {own:.1e}"
    return worst, problem


def _in_float64(model: Wrapped, given: Sequence[torch.Tensor], eager: Sequence[torch.Tensor]) -> Any:
    """The model's own results in float64; None where its code insists on float32, or makes NaN of them."""
    wide = wide_model(model)
    return in_float64(
        lambda: wide(*wide_inputs(given)),
        lambda found: all(math.isfinite(error(e, w)) for e, w in zip(eager, found, strict=True)),
    )


def reason(refusal: CompileError) -> str:
    """The refusal in a line: what, and of several details the first."""
    text = first_line(str(refusal))
    details = [re.sub(r"\s+", " ", d).strip() for d in refusal.details]
    return f"{text}: {'; '.join(details[:3])}"[:400] if details else text


# processes -----------------------------------------------------------------------------------------------------------
def in_processes(tasks: Iterable[Task], how: How, jobs: int) -> Iterator[Result]:
    """`measure` in processes, so many at a time; results as they come."""

    def work(task: Task) -> Result:
        start, (name, case) = time.monotonic(), task
        result = (measure_peer if how.peer else measure)(BY_NAME[name], case, how)
        return replace(result, seconds=round(time.monotonic() - start, 1), cpu=round(_computed(), 1))

    def crash(task: Task, reason: str, seconds: float) -> Result:
        return Result(*task, "crash", reason, seconds=seconds)

    return sweep_processes.in_processes(tasks, work, crash, how.limit, jobs)


# the command ---------------------------------------------------------------------------------------------------------
def _tasks(options: argparse.Namespace, known: dict[Task, Result]) -> list[Task]:
    own = [row.name for row in TABLES[options.table].rows]
    names = options.only.split(",") if options.only else own
    if unknown := [name for name in names if name not in own]:
        raise SystemExit(f"no architecture {', '.join(unknown)} in the table {options.table}")
    wanted = options.status.split(",") if options.status else None
    tasks = [(name, case) for name in names for case in cases_of(BY_NAME[name]) if options.case in ("", case)]
    if options.peers:
        return [t for t in tasks if t in known and known[t].status != "right"]
    return [t for t in tasks if wanted is None or (known[t].status if t in known else "missing") in wanted]


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="architectures of libraries through the compiler")
    parser.add_argument("--table", default="transformers", choices=tuple(TABLES))
    parser.add_argument("--only", default="", help="names, with commas between")
    parser.add_argument("--status", default="", help="only what has one of these statuses; missing: no result yet")
    parser.add_argument("--case", default="", choices=("", *CASES))
    parser.add_argument("--jobs", type=int, default=1, help="architectures at a time, each with one thread")
    parser.add_argument("--limit", type=float, default=How.limit, help="seconds for one architecture in one case")
    parser.add_argument("--dtype", default=None, help="bf16 or f16; the results are printed only")
    parser.add_argument("--quick", action="store_true", help="little optimised, and without the package's verification")
    parser.add_argument("--peers", action="store_true", help="AOTInductor and ONNX Runtime instead of mycc")
    parser.add_argument("--json", type=Path, help="the results")
    parser.add_argument("--page", type=Path, help="the page made of them")
    parser.add_argument("--only-page", action="store_true", help="only write the page again")
    return parser.parse_args()


def main() -> int:
    options = _parsed()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the children end too
    table = TABLES[options.table]
    results_file = options.json or Path(__file__).with_name(f"{table.stem}.json")
    files = Files(results_file, options.page or ROOT / "docs" / f"{table.stem}.md", table)
    found = files.read()
    if options.only_page:
        files.write(found)
        return 0
    whole = not (options.only or options.status or options.case or options.peers)
    found.versions = versions_of(table, {} if whole else found.versions)
    how = How(options.dtype, options.quick, options.limit)
    tasks = _tasks(options, found.results)
    if options.peers:
        return _run_peers(tasks, how, options.jobs, found, files)
    ran = []
    for result in in_processes(tasks, how, options.jobs):
        ran.append(result)
        _print(result)
        if options.dtype is None:
            kind = BY_NAME[result.name].kind
            found.results[result.name, result.case] = replace(result, kind=kind, torch=torch.__version__)
            files.write(found)
    return 1 if any(r.status in ("wrong", "crash") for r in ran) else 0


def _run_peers(tasks: Sequence[Task], how: How, jobs: int, found: Found, files: Files) -> int:
    for peer in PEERS:
        for result in in_processes(tasks, replace(how, peer=peer), jobs):
            _print(result, peer)
            found.peers[result.name, result.case, peer] = replace(result, kind=peer, torch=torch.__version__)
            files.write(found)
    return 0


def _print(result: Result, what: str = "") -> None:
    line = f"{result.name:20} {result.case:8} {what}{result.status:8} {result.seconds:6.1f} s {result.cpu:6.1f} cpu  "
    print(line + result.reason, flush=True)


if __name__ == "__main__":
    sys.exit(main())

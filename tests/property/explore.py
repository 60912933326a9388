"""Random programs in rounds: each is drawn by hypothesis, compiled together, judged, and a failure shrunk.

    python -m tests.property.explore --programs 2000 [--seed 1]      nightly
    python -m tests.property.explore --kind alias --programs 5000    those that write in place, under several names
        --jobs 16 --minutes 20       as many rounds at a time, none begun later
        --family cuda [--device]     GPU kernels through Triton's interpreter, or on this machine's GPU
    python -m tests.property.explore --kind passes --programs 5000   evaluated after each pass of the schedule

The exit code is 1 when a program is wrong, or when more than a tenth are refused. Rounds are drawn until as many
programs as asked for have run. Each failure is printed as a model file, under the seed of its round.

A round visits the same programs twice: first to collect and compile them together, then with their verdicts, so that
hypothesis shrinks what failed, a program at a time.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import math
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from . import alias_judge, alias_judge_gpu, judge, pass_judge
from .alias_programs import AliasProgram, alias_programs
from .judge import Verdict
from .programs import Program, programs

ROUND = 100  # programs that are drawn, and compiled together
REFUSED = 0.1  # the largest share of refused ones
REFUSED_GPU = 0.4  # of programs that write, for GPUs
TASKS = 4  # rounds of a process: torch keeps what it has traced

Drawn = Program | AliasProgram


@dataclass(frozen=True)
class Kind:
    """What is drawn, who says what became of it, and the largest share that may be refused."""

    drawn: st.SearchStrategy
    judge: Callable[..., dict]
    refused: float = REFUSED


KINDS = {
    "operators": Kind(programs(), judge.judge),
    "alias": Kind(alias_programs(), alias_judge.judge, 0.3),
    "passes": Kind(programs(), pass_judge.judge),
    "reduction-passes": Kind(programs(12, reducing=True), pass_judge.judge),
    "alias-passes": Kind(alias_programs(), pass_judge.judge, 0.3),
}


class Wrong(AssertionError):
    """A program whose package disagrees with eager; its text is the model file."""


@dataclass
class Found:
    """What became of the programs of some rounds."""

    right: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.run + self.refused.total()

    @property
    def run(self) -> int:
        return self.right + len(self.failures)


def _visit(kind: Kind, number: int, count: int, visit: Callable[[Drawn], None]) -> None:
    """The programs of a round, always the same; raises what `visit` raises for the smallest that it raises it for."""

    @seed(number)
    @settings(
        max_examples=count, database=None, deadline=None, report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink), print_blob=False,
    )  # fmt: skip
    @given(kind.drawn)
    def each(program: Drawn) -> None:
        visit(program)

    each()


def run_round(kind: Kind, number: int, count: int, cache: Path, shrink: bool = True) -> Found:
    """Draws, compiles and judges a round; the first failure is shrunk."""
    drawn: list[Drawn] = []
    _visit(kind, number, count, drawn.append)
    drawn = list(dict.fromkeys(drawn))
    verdicts = kind.judge(drawn, cache)
    found = Found()
    for program in drawn:
        verdict = verdicts[program]
        if verdict.refused:
            found.refused[verdict.refused] += 1
        elif not verdict.problem:
            found.right += 1
        else:
            found.failures.append(_text(program, verdict))
    if found.failures and shrink:
        found.failures[0] = _smallest(kind, number, count, verdicts, cache) or found.failures[0]
    return found


def _smallest(kind: Kind, number: int, count: int, verdicts: dict[Drawn, Verdict], cache: Path) -> str:
    def visit(program: Drawn) -> None:
        if program not in verdicts:
            verdicts.update(kind.judge([program], cache))
        if verdicts[program].problem:
            raise Wrong(_text(program, verdicts[program]))

    try:
        _visit(kind, number, count, visit)
    except Wrong as wrong:
        return str(wrong)
    return ""


def _text(program: Drawn, verdict: Verdict) -> str:
    return f"# {verdict.problem}\n{program.source()}"


def _round(number: int, options: argparse.Namespace, folder: Path) -> Found:
    """A round in a process of its own."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)  # torch's own, of programs that it refuses
    return run_round(_kind(options), number, options.round, folder, not options.no_shrink)


def _kind(options: argparse.Namespace) -> Kind:
    kind = KINDS[options.kind]
    if options.family == "cpu":
        return kind
    if options.kind != "alias":
        raise SystemExit("--family cuda is for --kind alias; --kind passes evaluates the schedules of both")
    return replace(kind, judge=partial(alias_judge_gpu.judge, device=options.device), refused=REFUSED_GPU)


def _rounds(options: argparse.Namespace, folder: Path) -> Iterator[tuple[int, Found]]:
    """Rounds as they are done, each with its seed, until enough programs have run or the time is over."""
    numbers = itertools.count(options.seed)
    end = time.monotonic() + 60 * options.minutes
    run, waiting, pool = 0, dict[Future[Found], int](), _pool(options)
    while True:
        while run < options.programs and time.monotonic() < end and len(waiting) < options.jobs:
            number = next(numbers)
            waiting[pool.submit(_round, number, options, folder)] = number
        if not waiting:
            pool.shutdown()
            return
        done = wait(waiting, return_when=FIRST_COMPLETED).done
        if any(isinstance(f.exception(), BrokenExecutor) for f in done):  # all that wait are lost with it
            for number in waiting.values():
                yield number, Found(failures=["# the process died, in this round or in one beside it"])
            run, waiting, pool = run + len(waiting), {}, _pool(options)
            continue
        for future in done:
            found = future.result()
            run += found.run
            yield waiting.pop(future), found


def _pool(options: argparse.Namespace) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(options.jobs, get_context("spawn"), max_tasks_per_child=TASKS)


def main() -> int:
    parser = argparse.ArgumentParser(description="random programs through the compiler")
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--kind", choices=list(KINDS), default="operators")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the others count on")
    parser.add_argument("--round", type=int, default=ROUND, help="programs that are compiled together")
    parser.add_argument("--jobs", type=int, default=1, help="rounds at a time, each in a process of its own")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no round later")
    parser.add_argument("--family", choices=["cpu", "cuda"], default="cpu", help="cuda: through Triton's interpreter")
    parser.add_argument("--device", action="store_true", help="with --family cuda: packages for this machine's GPU")
    parser.add_argument("--no-shrink", action="store_true")
    options = parser.parse_args()
    total, start, wrong = Found(), time.monotonic(), list[int]()
    with tempfile.TemporaryDirectory(prefix="explore") as folder:
        for number, found in _rounds(options, Path(folder)):
            total.right += found.right
            total.refused += found.refused
            total.failures += found.failures
            wrong += [number] if found.failures else []
            for failure in found.failures:
                print(f"# seed {number}\n{failure}\n", flush=True)
            print(
                f"round {number}: {found.right} right, {found.refused.total()} refused, {len(found.failures)} wrong; "
                f"{total.count} programs, {time.monotonic() - start:.0f} s",
                flush=True,
            )
    for reason, count in total.refused.most_common():
        print(f"{count:5} refused: {reason}")
    if wrong:
        print(f"seeds of rounds with wrong programs, of {options.round} each: {', '.join(map(str, sorted(wrong)))}")
    print(f"{total.right} of {total.count} programs are right, {len(total.failures)} are wrong")
    most = _kind(options).refused
    if total.refused.total() > most * total.count:
        print(f"more than {most:.0%} of the programs are refused")
        return 1
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())

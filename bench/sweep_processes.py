"""Rows of a sweep, each in a process of its own that has a time limit and one thread; so many at a time."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import connection
from typing import Generic, TypeVar

import torch
from sweep_files import Task

R = TypeVar("R")
#: makes the result of a task, in the child
Work = Callable[[Task], R]
#: makes the result of a task that has none: the reason, and the seconds that passed
Crash = Callable[[Task, str, float], R]


def first_line(text: str) -> str:
    """The first line of a message that says something; with the next one where it ends with a colon."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    count = 2 if lines and lines[0].endswith(":") else 1
    return (" ".join(lines[:count]) or "no message")[:300]


def in_processes(
    tasks: Iterable[Task], work: Work[R], crash: Crash[R], limit: float, jobs: int, end: float = math.inf
) -> Iterator[R]:
    """The results as they come. limit: seconds of a task; one that takes longer, raises or dies is a crash. end: of
    time.monotonic(), when all stops: a task that is not done then has no result.
    """
    waiting, running = list(reversed(list(tasks))), list[_Running[R]]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_Running(waiting.pop(), work, crash, limit))
            left = min(end - time.monotonic(), *(r.left for r in running))
            connection.wait([r.answers for r in running], timeout=max(0.0, left))
            for done in [r for r in running if r.answers.poll() or r.left <= 0]:
                running.remove(done)
                yield done.result()
            if time.monotonic() >= end:
                return
    finally:
        for r in running:
            r.end()


class _Running(Generic[R]):
    """A child at work, in a process group of its own: the C++ compilers end with it."""

    def __init__(self, task: Task, work: Work[R], crash: Crash[R], limit: float) -> None:
        self.task, self.work, self.crash, self.limit = task, work, crash, limit
        self.start = time.monotonic()
        self.answers, theirs = multiprocessing.Pipe(duplex=False)
        self._child = multiprocessing.get_context("fork").Process(target=self._run, args=(theirs,))
        self._child.start()
        with contextlib.suppress(OSError):  # whoever comes first, it or the child itself
            os.setpgid(self._child.pid or 0, self._child.pid or 0)
        theirs.close()

    def _run(self, answers: connection.Connection) -> None:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        try:
            answers.send(self.work(self.task))
        except Exception as problem:
            answers.send(self._crash(f"{type(problem).__name__}: {first_line(str(problem))}"))
            raise

    @property
    def left(self) -> float:
        return self.start + self.limit - time.monotonic()

    def result(self) -> R:
        """Its answer, which is there or came too late."""
        try:
            if self.answers.poll():
                found: R = self.answers.recv()
                return found
            return self._crash(f"not done after {self.limit:.0f} s")
        except EOFError:
            self._child.join()
            return self._crash(f"the process died with code {self._child.exitcode}")
        finally:
            self.end()

    def _crash(self, reason: str) -> R:
        return self.crash(self.task, reason, round(time.monotonic() - self.start, 1))

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid or 0, signal.SIGKILL)
        self._child.join()

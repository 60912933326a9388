"""Tasks in forked processes: each sees the objects of its parent, which therefore need not be pickled."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import TypeVar

__all__ = ["forked"]

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def forked(
    tasks: Iterable[tuple[Key, Callable[[], Value]]], at_once: int, processors: int = 0
) -> Iterator[tuple[Key, Value]]:
    """Keys of tasks and what each returned, as they end. A task that raised is named on standard error, and left out.

    Args:
        tasks: taken one by one, so that an iterator may make the objects of a task when its turn comes.
        at_once: processes at a time.
        processors: of each process, which then shares them with no other one; 0: all of the machine.
    """
    context = get_context("fork")
    running: dict[Connection, tuple[Key, ForkProcess, int]] = {}
    places = list(range(at_once))
    for key, task in tasks:
        if not places:
            yield from _ended(running, places)
        place = places.pop()
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(key, task, sender, place, at_once, processors))
        process.start()
        sender.close()
        running[receiver] = (key, process, place)
    while running:
        yield from _ended(running, places)


def _ended(running: dict[Connection, tuple[Key, ForkProcess, int]], places: list[int]) -> Iterator[tuple[Key, Value]]:
    """Waits for one process at least; what the processes that ended sent."""
    for receiver in wait(list(running)):
        assert isinstance(receiver, Connection)
        key, process, place = running.pop(receiver)
        places.append(place)
        with suppress(EOFError):
            yield key, receiver.recv()
        receiver.close()
        process.join()


def _work(
    key: Hashable, task: Callable[[], object], sender: Connection, place: int, at_once: int, processors: int
) -> None:
    if processors:
        own = sorted(os.sched_getaffinity(0))
        first = place * (len(own) // at_once)
        os.sched_setaffinity(0, own[first : first + processors])
    try:
        sender.send(task())
    except Exception:
        reason = traceback.format_exc().strip().splitlines()[-1]
        print(f"{key}: {reason}", file=sys.stderr, flush=True)

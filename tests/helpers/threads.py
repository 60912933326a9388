"""Work that several threads do at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["in_threads"]


def in_threads(work: Callable[[int], Any], count: int) -> None:
    """work(0), work(1), ... at the same time, each in a thread; the first exception of them is raised here."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]

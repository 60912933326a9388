"""Functions timed in turns, so that what else the machine does falls on all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

#: turns that are run and not counted
_WARM = 2


def timed(runs: dict[str, Callable[[], Any]], rounds: int, again: bool = False) -> dict[str, float]:
    """Median milliseconds of each, in turns. again: each is called twice in its turn, and the second call counts."""
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + _WARM):
        for name, run in runs.items():
            if again:
                run()
            begin = time.perf_counter()
            run()
            if turn >= _WARM:
                spent[name].append(1e3 * (time.perf_counter() - begin))
    return {name: statistics.median(values) for name, values in spent.items()}

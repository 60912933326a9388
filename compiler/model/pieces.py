"""Work on the rows of a large matrix, piece by piece on all cores: a piece stays in the caches of its core."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from ..machine.local_cpu import available_cores

__all__ = ["on_pieces"]

#: elements that are worked on at once
_PIECE = 1 << 18


def on_pieces(matrix: Tensor, work: Callable[[slice], None]) -> None:
    """Calls `work` with the rows of each piece of a matrix."""
    rows, columns = matrix.shape
    step = max(1, _PIECE // max(1, columns))
    pieces = [slice(first, first + step) for first in range(0, rows, step)]

    def run(own: slice) -> None:
        with torch.no_grad():  # which each thread has for itself
            work(own)

    with _one_thread():
        if len(pieces) < 2:
            for own in pieces:
                run(own)
            return
        with ThreadPoolExecutor(min(len(pieces), available_cores())) as pool:
            for _ in pool.map(run, pieces):
                pass


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Pieces are too small for torch's threads, which would wait for one another."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)

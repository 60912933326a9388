"""Models that fill a table on their first call: positions for the size of the image, kept as a buffer.

    if self.table.shape[1] != n: self.table = table_of(n)        # not in a second call

Such a model is captured as its first call leaves it, where this changes no result, and no further call the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch

from .second_ways import agree, other_numbers, run

__all__ = ["filled"]


class Keeping(Protocol):
    """A module whose calls leave what forward assigned only while `keeps` is set."""

    keeps: bool

    def state(self) -> dict[str, tuple[torch.nn.Module, str, torch.Tensor]]: ...


@contextmanager
def filled(call: Keeping, names: Sequence[str], examples: Sequence[torch.Tensor]) -> Iterator[bool]:
    """While it lasts, the tensors `names` are as a first call leaves them; whether that call did no more than that."""
    before = call.state()
    places = [before[name][:2] for name in names]
    call.keeps = True
    try:
        first = run(call, examples)  # type: ignore[arg-type]
        tables = [getattr(owner, attribute).detach().clone() for owner, attribute in places]
        same = agree(first, run(call, examples))  # type: ignore[arg-type]
        run(call, other_numbers(examples))  # type: ignore[arg-type]
        kept = [getattr(owner, attribute) for owner, attribute in places]
        call.keeps = False
        yield same and all(torch.equal(a, b) for a, b in zip(tables, kept, strict=True))
    finally:
        call.keeps = False
        for owner, attribute, value in before.values():
            setattr(owner, attribute, value)

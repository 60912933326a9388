"""Memory of the loop IR: flat buffers, indices in elements, and how tensors lie in them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from .index import Index

_ids = itertools.count()


@dataclass(frozen=True, eq=False)
class Buffer:
    """Flat memory of `size` elements.

    kind: input, output, const (weights), temp (arena), local (to a row); of memory that is written in place: state (of
    the model), inout (an input that is written to), carry (arena: what a loop hands on).
    of: the buffer in whose memory this one lies: it is a later value of it, written over it in part or as a whole.
    """

    name: str
    dtype: str
    size: Index
    kind: str
    slot: int = -1  # which input, output or tensor of the state; -1 otherwise
    of: Buffer | None = None
    ident: int = field(default_factory=lambda: next(_ids))

    @property
    def root(self) -> Buffer:
        """The first value in its memory."""
        return self if self.of is None else self.of

    def __str__(self) -> str:
        return self.name


#: kinds of buffers that have several values, one after the other
IN_PLACE = ("state", "inout", "carry")


@dataclass(frozen=True)
class Operand:
    """A strided operand of a structured node: buffer[offset + sum(stride * loop)]."""

    buffer: Buffer
    offset: Index
    strides: tuple[Index, ...]


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in its buffer; all in elements."""

    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    offset: Index

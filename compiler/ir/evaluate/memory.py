"""Memory of a program that is evaluated: which elements of each buffer are known, and the laws of reading and writing.

Buffers that lie over one another (Buffer.of) are one piece of memory. Of all others each element is written once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..buffers import IN_PLACE, Buffer
from ..index import Var
from .numbers import Array, Fault, Numbers, Undefined, Value, any_fault, computing, storage


@dataclass(frozen=True)
class Cells:
    """The elements of one piece of memory, and which of them are known."""

    values: Array
    written: Array

    @classmethod
    def unknown(cls, dtype: str, size: int) -> Cells:
        return cls(np.zeros(size, storage(dtype)), np.zeros(size, bool))


@dataclass
class Rows:
    """The rows of a nest while its stages are evaluated, all rows at a time: each has its own local buffers, and reads
    of what the nest writes to memory only what the same row wrote."""

    dims: tuple[Var, ...]
    count: int
    locals: Mapping[Buffer, Cells]
    writers: dict[Buffer, Array] = field(default_factory=dict)  # by root: the row that wrote each element, or -1


@dataclass
class Memory:
    """All buffers of a program, made when they are first written."""

    sizes: dict[str, int]
    numbers: Numbers
    cells: dict[Buffer, Cells] = field(default_factory=dict)

    def size(self, buffer: Buffer) -> int:
        return max(buffer.root.size.evaluate(self.sizes), 0)

    def of(self, buffer: Buffer) -> Cells:
        root = buffer.root
        if root not in self.cells:
            self.cells[root] = Cells.unknown(root.dtype, self.size(root))
        return self.cells[root]

    def give(self, buffer: Buffer, values: Array) -> None:
        """Sets all elements of a buffer from outside the program."""
        flat = np.asarray(values).reshape(-1)
        if flat.size != self.size(buffer):
            raise ValueError(f"{buffer.name} has {self.size(buffer)} elements, not {flat.size}")
        held = self.numbers.held(flat.astype(storage(buffer.dtype)), buffer.dtype)
        self.cells[buffer.root] = Cells(held, np.ones(flat.size, bool))

    def forget(self, buffers: Sequence[Buffer]) -> None:
        """The buffers hold nothing any more: another iteration of a loop begins."""
        for buffer in buffers:
            if buffer.kind not in IN_PLACE:
                self.cells.pop(buffer.root, None)

    def number(self, buffer: Buffer) -> int:
        """What the host reads: element 0."""
        return int(self.load(buffer, Value(np.asarray(0))).over(()))

    def load(self, buffer: Buffer, places: Value, rows: Rows | None = None, row: Array | None = None) -> Value:
        """Elements; rows, row: of a nest, and which of its rows each iteration belongs to."""
        cells, at, end = self._found(buffer, places.array, rows, row)
        inside = (places.array >= 0) & (places.array < end)
        safe = np.where(inside, at, 0)
        if not cells.values.size:
            empty = np.zeros(safe.shape, computing(buffer.dtype))
            return Value(empty, any_fault([places.fault, Fault(np.ones(safe.shape, bool), _outside(buffer, "read"))]))
        faults = [places.fault]
        if not inside.all():
            faults.append(Fault(~inside, _outside(buffer, "read")))
        known = cells.written[safe]
        if not known.all():
            faults.append(Fault(~known, Undefined(f"an element of {buffer.name} is read before it is written")))
        if rows is not None and row is not None and buffer.root in rows.writers:
            writer = rows.writers[buffer.root][safe]
            apart = (writer >= 0) & (writer != row)
            if apart.any():
                faults.append(Fault(apart, Undefined(f"a row reads what another row writes to {buffer.name}")))
        return Value(cells.values[safe].astype(computing(buffer.dtype)), any_fault(faults))

    def store(
        self,
        buffer: Buffer,
        places: Value,
        value: Value,
        shape: Sequence[int],
        rows: Rows | None = None,
        row: Array | None = None,
        again: bool = False,
    ) -> None:
        """Writes an element at each iteration of loops of this shape. again: elements may have been written before."""
        at = places.over(shape).reshape(-1)
        held = self.numbers.held(value.over(shape).reshape(-1), buffer.dtype)
        whose = None if row is None else np.broadcast_to(row, tuple(shape)).reshape(-1)
        cells, flat, end = self._found(buffer, at, rows, whose)
        if ((at < 0) | (at >= end)).any():
            raise _outside(buffer, "written")
        if not again:
            self._check_once(buffer, cells, flat, held)
        cells.values[flat] = held
        cells.written[flat] = True
        if rows is not None and whose is not None and buffer not in rows.locals:
            rows.writers.setdefault(buffer.root, np.full(cells.values.size, -1))[flat] = whose

    def put(self, buffer: Buffer, first: int, values: Array) -> None:
        """Writes neighbouring elements, as a routine does."""
        cells = self.of(buffer)
        flat = np.asarray(values).reshape(-1)
        if first + flat.size > cells.values.size:
            raise _outside(buffer, "written")
        cells.values[first : first + flat.size] = self.numbers.held(
            flat.astype(storage(buffer.dtype), copy=False), buffer.dtype
        )
        cells.written[first : first + flat.size] = True

    def _found(self, buffer: Buffer, at: Array, rows: Rows | None, row: Array | None) -> tuple[Cells, Array, int]:
        """The memory of a buffer, the places there, and how many elements the buffer has for a row."""
        if rows is not None and buffer in rows.locals:
            size = self.size(buffer)
            return rows.locals[buffer], at + (0 if row is None else row) * size, size
        cells = self.of(buffer)
        return cells, at, cells.values.size

    def _check_once(self, buffer: Buffer, cells: Cells, at: Array, values: Array) -> None:
        """No two iterations write different values to an element, and a temporary is written once."""
        order = np.argsort(at, kind="stable")
        places, put = at[order], values[order]
        same = places[1:] == places[:-1]
        differ = (put[1:] != put[:-1]) & ~((put[1:] != put[1:]) & (put[:-1] != put[:-1]))
        if (same & differ).any():
            raise Undefined(f"two iterations write different values to one element of {buffer.name}")
        if buffer.kind not in IN_PLACE and cells.written[at].any():
            raise Undefined(f"an element of {buffer.name} is written twice")


def _outside(buffer: Buffer, how: str) -> Undefined:
    return Undefined(f"a place outside of {buffer.name} is {how}")

"""The iterations of some loops, all at a time: indices and scalar expressions as arrays with an axis for each loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..buffers import Buffer
from ..expr import Acc, Call, Const, Expr, IndexValue, Load
from ..index import Atom, Binary, Index, Indirect, Size, Var, row_major
from ..nodes import Store
from .memory import Memory, Rows
from .numbers import Array, CallFails, Fault, Value, any_fault

FUNCTIONS = {"//": np.floor_divide, "%": np.remainder, "min": np.minimum, "max": np.maximum}


@dataclass
class Iterations:
    """Loops with the place of each at every iteration, shaped to broadcast to `shape`, and the accumulators that
    expressions may read. What an expression comes to is kept, so that it reads memory once."""

    memory: Memory
    places: Mapping[Var, Array]
    shape: tuple[int, ...]
    accs: Mapping[Acc, Value] = field(default_factory=dict)
    rows: Rows | None = None
    _done: dict[Expr | Index, Value] = field(default_factory=dict)

    @classmethod
    def over(
        cls,
        memory: Memory,
        loops: Sequence[Var],
        accs: Mapping[Acc, Value] | None = None,
        rows: Rows | None = None,
        fixed: Mapping[Var, int] | None = None,
    ) -> Iterations:
        """All iterations of loops, an axis each. fixed: loops around them that are at one place."""
        sizes = memory.sizes
        shape = tuple(max(v.extent.evaluate(sizes), 0) for v in loops)
        places: dict[Var, Array] = {v: np.asarray(at, np.int64) for v, at in (fixed or {}).items()}
        for axis, (v, n) in enumerate(zip(loops, shape, strict=True)):
            places[v] = np.arange(n, dtype=np.int64).reshape([n if a == axis else 1 for a in range(len(shape))])
        return cls(memory, places, shape, accs or {}, rows)

    def some(self, lanes: Array) -> Iterations:
        """Those iterations whose numbers, counted in row-major order, are given: one axis for all of them."""
        places = {v: np.broadcast_to(at, self.shape).reshape(-1)[lanes] for v, at in self.places.items()}
        return Iterations(self.memory, places, (len(lanes),), self.accs, self.rows)

    @property
    def row(self) -> Array | None:
        """The row of the nest that each iteration belongs to."""
        return None if self.rows is None else self.index(row_major(self.rows.dims)).array

    def store(self, store: Store, again: bool = False) -> None:
        self.put(store.buffer, store.index, self.value(store.value), again)

    def put(self, buffer: Buffer, index: Index, value: Value, again: bool = False) -> None:
        self.memory.store(buffer, self.index(index), value, self.shape, self.rows, self.row, again)

    # expressions -----------------------------------------------------------------------------------------------------
    def value(self, e: Expr) -> Value:
        """What an expression comes to."""
        if e not in self._done:
            self._done[e] = self._computed(e)
        return self._done[e]

    def _computed(self, e: Expr) -> Value:
        match e:
            case Const():
                return Value(self.memory.numbers.constant(e))
            case IndexValue():
                return self.index(e.index)
            case Load():
                return self.memory.load(e.buffer, self.index(e.index), self.rows, self.row)
            case Acc():
                return self.accs[e]
            case Call():
                return self.memory.numbers.call(e, [self.value(a) for a in e.args])
        raise TypeError(type(e).__name__)

    def index(self, index: Index) -> Value:
        """An index, in int64."""
        if index not in self._done:
            total, faults = np.asarray(0, np.int64), []
            for monomial, c in index.terms.items():
                term = np.asarray(c, np.int64)
                for atom in monomial:
                    value = self._atom(atom)
                    term = term * value.array
                    faults.append(value.fault)
                total = total + term
            self._done[index] = Value(total, any_fault(faults))
        return self._done[index]

    def _atom(self, atom: Atom) -> Value:
        match atom:
            case Size():
                return Value(np.asarray(self.memory.sizes[atom.name], np.int64))
            case Var():
                return Value(self.places[atom])
            case Indirect():
                return self._looked_up(atom)
            case Binary():
                a, b = self.index(atom.a), self.index(atom.b)
                divisor = np.where(b.array == 0, 1, b.array) if atom.op in ("//", "%") else b.array
                return Value(FUNCTIONS[atom.op](a.array, divisor), any_fault([a.fault, b.fault]))
        raise TypeError(type(atom).__name__)

    def _looked_up(self, atom: Indirect) -> Value:
        """A place that is read from memory: outside of its range it fails the call."""
        assert isinstance(atom.value, Expr)
        value, extent = self.value(atom.value), self.index(atom.extent)
        at = value.array
        if atom.wrap:
            at = np.where(at < 0, at + extent.array, at)
        inside = (at >= 0) & (at < extent.array)
        faults = [value.fault, extent.fault]
        if not inside.all():
            faults.append(Fault(~inside, CallFails("index out of range")))
        return Value(np.where(inside, at, 0), any_fault(faults))

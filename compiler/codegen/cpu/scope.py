"""Names in generated C++: buffers, loops, sizes and accumulators of one kernel, by their order of appearance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, count

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.index import Size, Var
from ...ir.nodes import Store


@dataclass(frozen=True)
class Param:
    """One parameter of a kernel function."""

    name: str
    type: str  # "const float *"
    buffer: Buffer | None = None
    size: str = ""  # what the host program passes for a size
    start: int = 0  # elements of the buffer in front of what it passes

    @property
    def declaration(self) -> str:
        """The parameter as C++ declares it: `const float *x0`, `int64_t m`."""
        return f"{self.type}{self.name}" if self.type.endswith("*") else f"{self.type} {self.name}"


@dataclass(frozen=True)
class Argument(Size):
    """A number, lo == hi, that a kernel takes as an argument of this name."""

    @property
    def key(self) -> tuple:  # type: ignore[override]
        return (0, self.name, "argument")


def size_name(symbol: str) -> str:
    """A size symbol in C++: the user's names must not meet ours, or the language's."""
    return f"size_{symbol}"


@dataclass
class Scope:
    """Hands out names; the parameters of the kernel are what was asked for."""

    written: frozenset[Buffer]
    where: str = ""  # operators and source lines, for messages at run time
    buffers: dict[Buffer, str] = field(default_factory=dict)
    sizes: dict[Size, str] = field(default_factory=dict)
    loops: dict[Var, str] = field(default_factory=dict)
    locals: dict[Buffer, str] = field(default_factory=dict)
    nontemporal: tuple[
        Buffer, ...
    ] = ()  # results that are written by non-temporal stores, where vectors are whole lines
    streamed: dict[Buffer, None] = field(default_factory=dict)  # written by non-temporal stores, in vectors
    #: results that are gathered row by row -> where a row is written, the loops within one
    combined: dict[Buffer, tuple[str, frozenset[Var]]] = field(default_factory=dict)
    peeled: set[Store] = field(default_factory=set)  # whose first vector is a part that ends where vectors are aligned
    whole_lines: bool = False  # vectors that are no whole lines are not: the parts of a line come far apart
    tables: dict[tuple[str, str, str], str] | None = None  # (indices, how many, extent) -> name; None: none

    def __post_init__(self) -> None:
        self.written = frozenset(b.root for b in self.written)

    def buffer(self, buffer: Buffer) -> str:
        """The name of a buffer's memory; given once: y0, y1, ... of results, w0, ... of weights, x0, ... of other
        operands."""
        if buffer in self.locals:
            return self.locals[buffer]
        buffer = buffer.root  # later values lie in the same memory
        if buffer not in self.buffers:
            stem = "y" if buffer in self.written else "w" if buffer.kind == "const" else "x"
            number = sum(n.startswith(stem) for n in self.buffers.values())
            self.buffers[buffer] = f"{stem}{number}"
        return self.buffers[buffer]

    def streams(self) -> tuple[str, ...]:
        """What has to hold for results to be written by non-temporal stores; nothing where none are."""
        condition = "aligned_lines" if self.whole_lines else "aligned"
        found = tuple(f"{condition}({self.buffers[b.root]})" for b in self.streamed)
        return found or ("true",) * bool(self.peeled)

    def size(self, size: Size) -> str:
        """The name of a size of the run, or of a number that is an argument."""
        return self.sizes.setdefault(size, size.name if isinstance(size, Argument) else size_name(size.name))

    def loop(self, var: Var, name: str | None = None) -> str:
        """The name of a loop; given once, by `name` or in alphabetical order."""
        if var not in self.loops:
            taken = set(self.loops.values())
            choice = name or next(n for n in _loop_names() if n not in taken)
            self.loops[var] = choice
        return self.loops[var]

    def params(self) -> tuple[Param, ...]:
        """The parameters of the function: buffers, then sizes, in the order in which they were named."""
        rows = []
        for buffer, name in self.buffers.items():
            const = "" if buffer in self.written else "const "
            rows.append(Param(name, f"{const}{DTYPES[buffer.dtype].cpp} *", buffer))
        for size, name in self.sizes.items():
            rows.append(Param(name, "int64_t", None, str(size.lo) if isinstance(size, Argument) else name))
        return tuple(rows)


def _loop_names() -> Iterator[str]:
    return chain("ijklopqrstuv", (f"i{n}" for n in count(1)))

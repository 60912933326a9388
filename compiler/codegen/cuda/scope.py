"""Names in a generated Triton kernel: buffers, sizes, and what the launch passes for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.index import Index, Size
from ...ir.nodes import Node
from ...ir.plans.gpu import GpuPlan
from ...ir.random import CALL
from ...machine.gpu import ACCESS
from ..cpu.scope import size_name
from .kernel import SIGNATURE, BufferArg, KernelParam, LaunchArg, LaunchArgument, SizeArg, StatusArg, WorkArg

STATUS, LAUNCH, WORK = "status", "launch", "work"


@dataclass
class TritonScope:
    """Hands out names; the parameters of the kernel are what was asked for.

    written: buffers that the kernel stores to (named y0, y1, ...; weights w0, ..., others x0, ...). wide: indices are
    64-bit integers.
    """

    written: frozenset[Buffer]
    wide: bool = False
    buffers: dict[Buffer, str] = field(default_factory=dict)
    sizes: dict[Size, str] = field(default_factory=dict)
    locals: dict[Buffer, str] = field(default_factory=dict)
    checks: bool = False
    #: element type (of Triton's signatures) and bytes of the scratch memory that the kernel calls `work`
    scratch: tuple[str, Index] | None = None

    @classmethod
    def of(cls, node: Node, plan: GpuPlan) -> TritonScope:
        """The scope of a node's kernel."""
        return cls(frozenset(node.writes()), wide=plan.wide)

    def __post_init__(self) -> None:
        self.written = frozenset(b.root for b in self.written)

    def buffer(self, buffer: Buffer) -> str:
        buffer = buffer.root  # later values lie in the same memory
        if buffer not in self.buffers:
            stem = "y" if buffer in self.written else "w" if buffer.kind == "const" else "x"
            count = sum(n.startswith(stem) for n in self.buffers.values())
            self.buffers[buffer] = f"{stem}{count}"
        return self.buffers[buffer]

    def size(self, size: Size) -> str:
        return self.sizes.setdefault(size, size_name(size.name))

    def params(self) -> tuple[KernelParam, ...]:
        rows = [KernelParam(name, f"*{SIGNATURE[b.dtype]}", ACCESS) for b, name in self.buffers.items()]
        rows += [KernelParam(name, "i64" if self.wide or s == CALL else "i32") for s, name in self.sizes.items()]
        if self.scratch is not None:
            rows.append(KernelParam(WORK, f"*{self.scratch[0]}", ACCESS))
        if self.checks:
            rows += [KernelParam(STATUS, "*i32", 4), KernelParam(LAUNCH, "i32")]
        return tuple(rows)

    def args(self) -> tuple[LaunchArgument, ...]:
        """What a launch passes, in the order of `params`."""
        rows: list[LaunchArgument] = [BufferArg(b) for b in self.buffers]
        rows += [SizeArg(Index({(size,): 1})) for size in self.sizes]
        if self.scratch is not None:
            rows.append(WorkArg(self.scratch[1]))
        return (*rows, StatusArg(), LaunchArg()) if self.checks else tuple(rows)


def element_size(buffer: Buffer) -> int:
    return DTYPES[buffer.dtype].size

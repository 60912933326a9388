"""What the GPU side of a package is made of: Triton kernels and their launches. Frozen; every decision is taken here.

    Launch(kernel, grid=(rows, 1, 1), args=(BufferArg(x), BufferArg(y), SizeArg(rows)))

Grids and sizes are indices over the size symbols: the host program prints them as C++, tests evaluate them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ...ir.buffers import Buffer
from ...ir.index import ONE, ZERO, Index
from ...ir.nodes import Origin

#: what stands in a rendered module for the name of its kernel, which is known when the module is known to be new
PLACEHOLDER = "KERNEL"


@dataclass(frozen=True)
class KernelParam:
    """A parameter of the @triton.jit function. type: "*bf16", "i32", "i64"; divisor: what divides its value."""

    name: str
    type: str
    divisor: int = 1


@dataclass(frozen=True)
class TritonKernel:
    """A module with one @triton.jit function, and all that its compilation depends on.

    symbol: name of the function. source: text of the module. params: its run-time parameters in order.
    constants: constexpr parameters by name; ("tl", "float32") is a type of triton.language. num_warps, num_stages,
    maxnreg: of the compiled kernel. pdl: it calls tl.extra.cuda.gdc_wait and may be launched before its predecessor
    has ended. flush: functions of libdevice take subnormal numbers for zero. widens: it may get more warps on a chip
    whose registers do not suffice. fuses: a product and a sum may be rounded once; lanes that add the same products up
    then differ in the last bit, as each has another product in full.
    """

    symbol: str
    source: str
    params: tuple[KernelParam, ...]
    constants: tuple[tuple[str, Any], ...] = ()
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    pdl: bool = False
    flush: bool = False
    widens: bool = True
    fuses: bool = True

    def named(self, symbol: str) -> TritonKernel:
        """The kernel under its own name."""
        return replace(self, symbol=symbol, source=self.source.replace(PLACEHOLDER, symbol))


@dataclass(frozen=True)
class BufferArg:
    """A pointer to element `offset` of a buffer."""

    buffer: Buffer
    offset: Index = ZERO


@dataclass(frozen=True)
class SizeArg:
    """A number known at the call."""

    value: Index


@dataclass(frozen=True)
class NumberArg:
    """A number of the model: fp32, or a bool."""

    value: float | bool


@dataclass(frozen=True)
class ZerosArg:
    """A pointer to `bytes` of zeros, which the kernel leaves zero (counters of a split reduction)."""

    bytes: Index


@dataclass(frozen=True)
class WorkArg:
    """A pointer to `bytes` of scratch memory, shared by all launches of a call: it holds what a launch leaves there
    only until the next launch of another node."""

    bytes: Index


@dataclass(frozen=True)
class StatusArg:
    """The pointer to the call's i32 status word: a kernel stores its launch's number there when an index is out of
    range."""


@dataclass(frozen=True)
class LaunchArg:
    """The i32 number of this launch within its entry point, from 1: what the status word says when it fails."""


LaunchArgument: TypeAlias = BufferArg | SizeArg | NumberArg | ZerosArg | WorkArg | StatusArg | LaunchArg


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel: programs along x, y, z, and a value for each of its parameters.

    failure: what its number in the status word says; "" for an index that is out of range. when: 1 for calls whose
    sizes it is for, else 0; the grid has that factor, and a grid of 0 programs is not launched.
    """

    kernel: TritonKernel
    grid: tuple[Index, Index, Index]
    args: tuple[LaunchArgument, ...]
    origin: Origin = field(default_factory=Origin)
    failure: str = ""
    when: Index = ONE

    def __post_init__(self) -> None:
        if len(self.args) != len(self.kernel.params):
            raise ValueError(
                f"{self.kernel.symbol}: {len(self.args)} arguments for {len(self.kernel.params)} parameters"
            )


def grid(x: Index, y: Index = ONE, z: Index = ONE) -> tuple[Index, Index, Index]:
    return (x, y, z)


#: element type -> Triton's name in a signature
SIGNATURE = {
    "bool": "i1", "u8": "u8", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64",
    "f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64",
}  # fmt: skip
#: element type of values in registers -> tl dtype: those that are computed in, and those of a product's operands
TL_DTYPE = {
    "bool": "tl.int1", "i32": "tl.int32", "i64": "tl.int64",
    "f16": "tl.float16", "bf16": "tl.bfloat16", "f32": "tl.float32", "f64": "tl.float64",
}  # fmt: skip


def with_comment(source: str, comment: str) -> str:
    """The module with a comment above its kernel."""
    head, mark, tail = source.rpartition("@triton.jit")
    return f"{head}# {comment}\n{mark}{tail}" if comment else source


class TritonPool:
    """All distinct kernels of a package: those that render alike, with the same options, are one function."""

    def __init__(self) -> None:
        self._kernels: dict[TritonKernel, TritonKernel] = {}
        self._names: dict[str, int] = {}

    def kernels(self) -> tuple[TritonKernel, ...]:
        """The distinct kernels, in the order in which they were first launched."""
        return tuple(self._kernels.values())

    def named(self, launch: Launch) -> Launch:
        """The launch with its kernel's final name; launch.kernel.symbol is the name to give when it is new."""
        stem = launch.kernel.symbol
        key = replace(launch.kernel, symbol=PLACEHOLDER)
        if key not in self._kernels:
            count = self._names.get(stem, 0)
            self._names[stem] = count + 1
            named = key.named(f"{stem}_{count}" if count else stem)
            self._kernels[key] = replace(named, source=with_comment(named.source, launch.origin.describe()))
        return replace(launch, kernel=self._kernels[key])

"""What the views of matrix kernels share: loops flattened to (z, m, n), epilogues, rendering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...ir.buffers import Operand
from ...ir.expr import Acc, Call, Expr
from ...ir.index import ONE, Index, as_index
from ...ir.nodes import Node, Store
from ...ir.plans.gpu import GpuPlan, ProductPlan
from ...ir.plans.tiles import GemmTile
from ...ir.structured import Attention, Conv, Gemm
from ...schedule.gpu.axes import Axes
from ...schedule.gpu.fit import divides
from .emit import Place, TritonEmitter, Value
from .kernel import SIGNATURE, KernelParam, Launch, LaunchArgument, TritonKernel, WorkArg, ZerosArg
from .module import render
from .scope import TritonScope


@dataclass(frozen=True)
class Part:
    """An accumulator over some of a tile's columns (192 columns are 128 and 64), and where its operand lies.

    b_lines: one element of each line of memory that it reads of a weight.
    """

    suffix: str
    offset: int
    width: int
    b_base: str = ""
    b_columns: str = ""
    b_mask: str = ""
    b_lines: str = ""

    @property
    def plus(self) -> str:
        return f" + {self.offset}" if self.offset else ""


class View(Protocol):
    """What a template gets; `params` are the names of the kernel's parameters."""

    @property
    def params(self) -> str: ...


@dataclass(frozen=True)
class Shared:
    """Memory for tiles that several programs share, beside the node's buffers: bytes of scratch and of counters, and
    the element type of the tiles. No counters: another launch sums the parts."""

    work: Index
    counters: Index | None
    dtype: str = "f32"


class PlacedAxes(Axes):
    """The axes of a kernel, with the names and the dimensions of a tile that they have in it."""

    def __init__(self, node: Gemm | Conv | Attention, rows: int):
        super().__init__(node, rows)
        self.places = {self.z: Place("z"), self.m: Place("m", ("m",)), self.n: Place("n", ("n",))}


def finish_lines(
    scope: TritonScope,
    axes: PlacedAxes,
    node: Node,
    sums: Mapping[str, str],
    block: tuple[int, int],
    columns: Index | None = None,
    stored: int = 0,
) -> tuple[str, ...]:
    """The lines that finish a tile, in terms of z, m, n and its sums; block: rows and columns of the tile.

    sums: accumulators of the node by their names in the kernel.
    columns: of one group, where tiles do not cross groups; `inside` is then the mask of the columns. stored: columns
    that the masks let through, where it is not 0: rows are padded, and nothing is read.
    """
    masks = {} if divides(block[0], axes.m.extent) else {"m": f"(m < {scalar(scope, axes.m.extent)})"}
    width = as_index(stored) if stored else axes.n.extent
    if not divides(block[1], width if columns is None else columns):
        whole = columns is None or columns == axes.n.extent
        masks["n"] = f"(n < {scalar(scope, width)})" if whole else "inside"
    emit = TritonEmitter(scope, axes.places, masks, {acc: Value(text, ("m", "n")) for acc, text in sums.items()})
    stores = axes.moved(node.stores)
    emit.lines += [f"{sums[name]} += 0.0" for name in _chosen(stores) if name in sums]
    emit.count_uses(s.value for s in stores)
    for s in stores:
        emit.store(s)
    return tuple(emit.lines)


#: operators that hand on a float, or change its sign alone
_HANDS_ON = frozenset("where abs neg copysign".split())


def _chosen(stores: Sequence[Store]) -> list[str]:
    """Names of float32 sums that operators hand on: ptxas of CUDA 12 takes such a sum of wgmma for the zeros that it
    starts from (`where(c, 0.0, acc)` that is stored as float32 is 0.0), unless something is added to it. A sum that
    starts from 0.0 is never -0.0, so that adding 0.0 changes none."""
    calls = (e for s in stores for e in s.value.walk() if isinstance(e, Call) and e.op in _HANDS_ON)
    operands = (_uncast(a) for call in calls for a in call.args)
    return sorted({a.name for a in operands if isinstance(a, Acc) and a.dtype == "f32"})


def _uncast(e: Expr) -> Expr:
    while isinstance(e, Call) and e.op == "cast":
        (e,) = e.args
    return e


def scalar(scope: TritonScope, index: Index) -> str:
    """An index over sizes, as an operand of any operator."""
    text = TritonEmitter(scope, {}).index(index)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def times(name: str, scope: TritonScope, stride: Index) -> str:
    """name * stride."""
    return name if stride == ONE else f"{name} * {scalar(scope, stride)}"


def pointer(scope: TritonScope, axes: PlacedAxes, operand: Operand, strides: Sequence[Index]) -> str:
    """The start of an operand in its batch z: buffer + offset + sum of stride * loop."""
    index = operand.offset
    for loop, stride in zip(axes.batch, strides, strict=False):
        index = index + axes.values[loop] * stride
    name, text = scope.buffer(operand.buffer), TritonEmitter(scope, axes.places).index(index)
    if text == "0":
        return name
    text = text if text.isdigit() else f"({text})"
    return f"{name} + {text}{'.to(tl.int64)' if scope.wide and 'z' in text else ''}"


def count(scope: TritonScope, *sizes: tuple[Index, int]) -> str:
    """How many tiles there are, as an operand: a number, or a quotient of a size."""
    number, texts = 1, []
    for index, block in sizes:
        if index.constant is not None:
            number *= -(-index.constant // block)
        else:
            texts.append(f"tl.cdiv({TritonEmitter(scope, {}).index(index)}, {block})")
    if not texts:
        return str(number)
    factors = [*texts, *([str(number)] if number > 1 else [])]
    return factors[0] if len(factors) == 1 else f"({' * '.join(factors)})"


def mask_text(masks: Sequence[str]) -> str:
    """The mask of a load; empty texts do not count."""
    needed = [m for m in masks if m]
    return f", mask={' & '.join(needed)}, other=0.0" if needed else ""


def precision_text(device_precision: str, dtypes: set[str]) -> str:
    """How float32 products are made; those of f16 and bf16 are exact in any case."""
    return f', input_precision="{device_precision}"' if dtypes == {"f32"} else ""


def shared_tiles(tiles: Index, tile: GemmTile, dtype: str = "f32") -> Shared | None:
    """Memory for the parts of tiles, of an element type of 4 bytes, that tile.split programs share."""
    elements = tile.m * tile.n
    return Shared(tiles * (tile.split * elements * 4), tiles * 4, dtype) if tile.shared else None


def parameters(scope: TritonScope, shared: Shared | None) -> tuple[KernelParam, ...]:
    """The parameters of the kernel; those of shared tiles come last."""
    if shared is None:
        return scope.params()
    counters = (KernelParam("counters", "*i32", 16),) if shared.counters is not None else ()
    return (*scope.params(), KernelParam("work", f"*{SIGNATURE[shared.dtype]}", 16), *counters)


def launch(
    name: str,
    template: str,
    view: View,
    scope: TritonScope,
    node: Node,
    grid: tuple[Index, Index, Index],
    plan: GpuPlan,
    shared: Shared | None = None,
) -> Launch:
    """The launch of a rendered view."""
    args: tuple[LaunchArgument, ...] = scope.args()
    if shared:
        args = (*args, WorkArg(shared.work), *(() if shared.counters is None else (ZerosArg(shared.counters),)))
    params = parameters(scope, shared)
    text = render(template, view, plan.room)
    kernel = TritonKernel(
        name, text, params, num_warps=plan.warps, num_stages=plan.stages, maxnreg=plan.registers, pdl=plan.pdl,
        flush=plan.flush, fuses=plan.fuses, widens=plan.widens,
    )  # fmt: skip
    of_sizes = plan.range if isinstance(plan, ProductPlan) else None
    when = ONE if of_sizes is None else of_sizes.holds
    return Launch(kernel, (grid[0] * when, *grid[1:]), args, node.origin, when=when)

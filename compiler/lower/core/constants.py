"""Constants of a package: which tensor, in which layout. Their bytes are made when the package is written.

A weight that a GEMM reads is stored in panels, [ceil(n/16)][k][16] floats, zero where n is past the end; the other
readers of a tied weight (an embedding) read the panels too, so that it is stored once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...ir.index import Index, as_index
from ...ir.layouts import (
    LINE,
    NCHW_WIDTH,
    PANEL,
    PLANES,
    Matrix,
    line_count,
    line_values,
    row_words,
    winograd_sides,
)

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Dense:
    """Row-major, as torch has it."""

    def elements(self, shape: tuple[int, ...]) -> int:
        """How many elements the stored weight has, padding included. shape: that of the tensor."""
        n = 1
        for s in shape:
            n *= s
        return n

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as it is stored: one dimension of `elements(tensor.shape)` elements."""
        return tensor.contiguous().reshape(-1)

    def __str__(self) -> str:
        return "dense"


@dataclass(frozen=True)
class Panels:
    """A matrix of n rows and k columns ([n, k], or [k, n] when `transposed`) as [ceil(n/16)][k][16]."""

    transposed: bool = False

    def elements(self, shape: tuple[int, ...]) -> int:
        """How many elements the stored weight has, padding included. shape: that of the tensor."""
        n, k = reversed(shape) if self.transposed else shape
        return -(-n // PANEL) * PANEL * k

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as it is stored: one dimension of `elements(tensor.shape)` elements."""
        import torch

        matrix = tensor.t() if self.transposed else tensor
        n, k = matrix.shape
        if n % PANEL:
            matrix = torch.nn.functional.pad(matrix, (0, 0, 0, PANEL - n % PANEL))
        return matrix.reshape(-1, PANEL, k).transpose(1, 2).contiguous().reshape(-1)

    def index(self, n: Index, k: Index, columns: int) -> Index:
        """Where element (n, k) of a matrix with `columns` columns lies."""
        return (n // as_index(PANEL)) * (columns * PANEL) + k * PANEL + n % as_index(PANEL)

    def __str__(self) -> str:
        return f"panels of {PANEL}"


@dataclass(frozen=True)
class LinePanels:
    """Integer weights [n, k] ([k, n] when `transposed`) as [ceil(n/16)][lines][16][4] bytes (ir/layouts.py).

    Of 4 bits they come as bytes of two values or as int8 (model/operators/quantised.py). columns: k; group: values of k
    that are whole lines, 0: all. taps: it is a convolution's, [n, c, ...], whose k goes over taps and then c.
    """

    bits: int
    columns: int
    group: int = 0
    transposed: bool = False
    taps: bool = False

    def elements(self, shape: tuple[int, ...]) -> int:
        """How many elements the stored weight has, padding included. shape: that of the tensor."""
        n = shape[1] if self.transposed else shape[0]
        return -(-n // PANEL) * line_count(self.columns, self.bits, self.group) * LINE

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as it is stored: one dimension of `elements(tensor.shape)` elements."""
        import torch

        from ...model.operators.quantised import raised_halves

        matrix = tensor.movedim(1, -1).flatten(1) if self.taps else tensor.t() if self.transposed else tensor
        raised = raised_halves(matrix, self.columns) if self.bits == 4 else matrix.contiguous().view(torch.uint8) ^ 128
        n, run, size = raised.shape[0], self.group or self.columns, line_values(self.bits)
        raised = _padded(raised.unflatten(1, (-1, run)), (0, -run % size), 2 ** (self.bits - 1)).flatten(1)
        raised = _padded(raised, (0, 0, 0, -n % PANEL), 2 ** (self.bits - 1))
        parts = raised.unflatten(1, (-1, size // 4, 4)).unflatten(0, (-1, PANEL))  # [panel, 16, line, halves, 4]
        found = parts[..., 0, :] if self.bits == 8 else parts[..., 0, :] | parts[..., 1, :] << 4
        return found.transpose(1, 2).contiguous().reshape(-1).view(tensor.dtype)

    def index(self, n: Index, k: Index) -> Index:
        """The byte that value k of row n lies in; of 4 bits values 0 to 3 of 8 are lower halves (ir/layouts.py)."""
        lines = line_count(self.columns, self.bits, self.group)
        line = (n // as_index(PANEL)) * lines + k // as_index(line_values(self.bits))
        return line * LINE + (n % as_index(PANEL)) * 4 + k % as_index(4)

    def __str__(self) -> str:
        return f"lines of {self.bits} bit, panels of {PANEL}"


def _padded(values: torch.Tensor, sides: tuple[int, ...], value: int) -> torch.Tensor:
    """The values with others behind them; themselves where there are none: they may be large."""
    import torch

    return torch.nn.functional.pad(values, sides, value=value) if any(sides) else values


@dataclass(frozen=True)
class Planes:
    """Integer weights of 4 bits, [n, k], as [n][chunks][run] words of 16 bits for GPUs (ir/layouts.py).

    They come as bytes of two values or as int8 (model/operators/quantised.py). columns: k.
    """

    columns: int
    run: int

    def elements(self, shape: tuple[int, ...]) -> int:
        """How many elements the stored weight has, padding included. shape: that of the tensor."""
        return shape[0] * row_words(self.columns, self.run) * 2

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as it is stored: one dimension of `elements(tensor.shape)` elements."""
        import torch

        from ...model.operators.quantised import NIBBLE_ZERO, unpacked

        raised = (unpacked(tensor, 4, self.columns) + NIBBLE_ZERO).view(torch.uint8)
        chunks = torch.nn.functional.pad(raised, (0, -self.columns % (PLANES * self.run)), value=NIBBLE_ZERO)
        planes = chunks.unflatten(1, (-1, PLANES, self.run))  # [n, chunk, plane, word]
        low, high = planes[:, :, 0] | planes[:, :, 1] << 4, planes[:, :, 2] | planes[:, :, 3] << 4
        return torch.stack((low, high), -1).reshape(-1).view(tensor.dtype)

    def __str__(self) -> str:
        return f"planes of 4 bit, runs of {self.run}"


@dataclass(frozen=True)
class Transposed:
    """A matrix of n rows and k columns as [k][n]."""

    def elements(self, shape: tuple[int, ...]) -> int:
        """How many elements the stored weight has, padding included. shape: that of the tensor."""
        return math.prod(shape)

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as it is stored: one dimension of `elements(tensor.shape)` elements."""
        return tensor.t().contiguous().reshape(-1)

    def __str__(self) -> str:
        return "transposed"


@dataclass(frozen=True)
class ConvPanels:
    """Convolution weights [out, in/groups, ...] as [groups][ceil(out/groups/16)][taps][in/groups][16].

    A panel of 8 outputs has them twice, one of other numbers has zeros behind them.

    taps: which taps, in this order; None: all. transposed: the weights are those of a transposed convolution,
    [in, out/groups, ...].
    """

    groups: int
    taps: tuple[int, ...] | None = None
    transposed: bool = False

    def _sizes(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """Outputs and inputs of a group, and taps."""
        first, second, *kernel = shape
        taps = math.prod(kernel) if self.taps is None else len(self.taps)
        return (second, first // self.groups, taps) if self.transposed else (first // self.groups, second, taps)

    def elements(self, shape: tuple[int, ...]) -> int:
        """How many elements the stored weight has, padding included. shape: that of the tensor."""
        per_group, inner, taps = self._sizes(shape)
        return self.groups * -(-per_group // PANEL) * PANEL * taps * inner

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as it is stored: one dimension of `elements(tensor.shape)` elements."""
        import torch

        per_group, inner, taps = self._sizes(tuple(tensor.shape))
        w = tensor.reshape(self.groups, tensor.shape[0] // self.groups, tensor.shape[1], -1)
        if self.transposed:
            w = w.transpose(1, 2)
        if self.taps is not None:
            w = w[..., list(self.taps)]
        if per_group % PANEL == PANEL // 2:
            w = torch.cat((w, w[:, -PANEL // 2 :]), 1)
        elif per_group % PANEL:
            w = torch.nn.functional.pad(w, (0, 0, 0, 0, 0, PANEL - per_group % PANEL))
        w = w.reshape(self.groups, -1, PANEL, inner, taps)
        return w.permute(0, 1, 4, 3, 2).contiguous().reshape(-1)

    def __str__(self) -> str:
        return f"convolution panels of {PANEL}, {self.groups} groups"


@dataclass(frozen=True)
class GroupedTaps:
    """Weights [out, in/groups, ...] of groups with as many inputs as outputs as [out/16][taps][in/groups][16].

    taps: which ones, in this order; None: all. transposed: the weights are those of a transposed convolution of so many
    groups, [in, out/groups, ...]; 0: of a plain one.
    """

    taps: tuple[int, ...] | None = None
    transposed: int = 0

    def elements(self, shape: tuple[int, ...]) -> int:
        """How many elements the stored weight has, padding included. shape: that of the tensor."""
        return shape[0] * shape[1] * (math.prod(shape[2:]) if self.taps is None else len(self.taps))

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as it is stored: one dimension of `elements(tensor.shape)` elements."""
        w = tensor.flatten(2)
        if self.taps is not None:
            w = w[..., list(self.taps)]
        if self.transposed:
            w = w.unflatten(0, (self.transposed, -1)).transpose(1, 2).flatten(0, 1)
        return w.unflatten(0, (-1, PANEL)).permute(0, 3, 2, 1).contiguous().reshape(-1)

    def __str__(self) -> str:
        return "taps by inputs of a group"


@dataclass(frozen=True)
class NchwTaps:
    """Weights [out, in/groups, ..., h, w] of a convolution in NCHW, each group's as [ceil(out/4)][...][h][in][w][4];
    of fewer outputs than 4 as many.

    transposed: the weights are those of a transposed convolution of stride 1, [in, out/groups, ...]: a plain one reads
    their taps backwards.
    """

    groups: int = 1
    transposed: bool = False

    def elements(self, shape: tuple[int, ...]) -> int:
        """How many elements the stored weight has, padding included. shape: that of the tensor."""
        first, second, *kernel = shape
        outputs, inputs = (second, first // self.groups) if self.transposed else (first // self.groups, second)
        width = min(outputs, NCHW_WIDTH)
        return self.groups * -(-outputs // width) * width * inputs * math.prod(kernel)

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as it is stored: one dimension of `elements(tensor.shape)` elements."""
        import torch

        w = tensor.unflatten(0, (self.groups, -1))  # [group, out, in, ..., h, w]
        if self.transposed:
            w = w.transpose(1, 2).flip(*range(3, w.ndim))
        w = w.movedim(2, -2)
        outputs = w.shape[1]
        width = min(outputs, NCHW_WIDTH)
        if outputs % width:
            w = torch.cat((w, w.new_zeros(self.groups, width - outputs % width, *w.shape[2:])), 1)
        return w.unflatten(1, (-1, width)).movedim(2, -1).contiguous().reshape(-1)

    def __str__(self) -> str:
        groups = f", {self.groups} groups" if self.groups > 1 else ""
        return f"taps by inputs, {NCHW_WIDTH} outputs{groups}"


class PhaseTaps(NamedTuple):
    """Taps of a transposed convolution [in, out/groups, ...] in this order, as a window of this kernel."""

    taps: tuple[int, ...]
    kernel: tuple[int, ...]


@dataclass(frozen=True)
class WinogradPanels:
    """Weights [out, in/groups, h, w] or [out, in/groups, d, h, w] for tiles of `edge` x `edge` outputs, as
    [groups][d][matrices][ceil(out/groups/16)][in/groups][16]: transformed in float64 and rounded once.

    Larger kernels than 3x3 are parts of 3x3 taps, row by row; the last ones may lack a third tap, and have no matrices
    of it. taps: those of 3x3 as they are, [groups][d][ceil(out/groups/16)][in/groups][9][16]; the run transforms them.
    phase: of a transposed convolution's weight; None: of a plain one's.
    """

    edge: int
    stride: int = 1
    taps: bool = False
    groups: int = 1
    phase: PhaseTaps | None = None

    def elements(self, shape: tuple[int, ...]) -> int:
        """How many elements the stored weight has, padding included. shape: that of the tensor."""
        first, second, *kernel = shape
        outputs, inputs = (first // self.groups, second) if self.phase is None else (second, first // self.groups)
        sides = kernel if self.phase is None else self.phase.kernel
        matrices = 9 if self.taps else math.prod(sum(map(len, self._sides(n))) for n in sides[-2:])
        return self.groups * math.prod(sides[:-2]) * matrices * -(-outputs // PANEL) * PANEL * inputs

    def _sides(self, taps: int) -> list[Matrix]:
        """G of each three taps along a side of the kernel."""
        return winograd_sides(self.edge, self.stride, taps)

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as it is stored: one dimension of `elements(tensor.shape)` elements."""
        import torch

        w = tensor.unflatten(0, (self.groups, -1))  # [group, out, in, ...]
        if self.phase is not None:
            w = w.transpose(1, 2).flatten(3)[..., list(self.phase.taps)].unflatten(3, self.phase.kernel)
        slices = w.reshape(*w.shape[:3], -1, *w.shape[-2:])
        points = (slices.flatten(4) if self.taps else self._transformed(slices)).permute(0, 3, 4, 1, 2)
        points = torch.nn.functional.pad(points, (0, 0, 0, -w.shape[1] % PANEL))
        panels = points.unflatten(3, (-1, PANEL))  # [group][d][matrix][panel][16][in]
        return panels.permute((0, 1, 3, 5, 2, 4) if self.taps else (0, 1, 2, 3, 5, 4)).contiguous().reshape(-1)

    def _transformed(self, slices: torch.Tensor) -> torch.Tensor:
        """[group, out, in, d, h, w] -> [group, out, in, d, matrices]"""
        import torch

        *_, height, width = slices.shape
        whole = torch.nn.functional.pad(slices.double(), (0, -width % 3, 0, -height % 3))
        parts = whole.unflatten(5, (-1, 3)).unflatten(4, (-1, 3)).movedim(6, 5)  # [.., d, i, j, 3, 3]
        rows, columns = ([torch.tensor(g, dtype=torch.float64) for g in self._sides(taps)] for taps in (height, width))
        made = [
            (r @ parts[..., i, j, :, :] @ c.t()).flatten(4) for i, r in enumerate(rows) for j, c in enumerate(columns)
        ]
        return torch.cat(made, 4).to(slices.dtype)

    def __str__(self) -> str:
        stride, taps = f", stride {self.stride}" if self.stride > 1 else "", ", taps" if self.taps else ""
        groups = f", {self.groups} groups" if self.groups > 1 else ""
        return f"Winograd F({self.edge}x{self.edge}, 3x3){stride}{taps}{groups}, panels of {PANEL}"


@dataclass(frozen=True)
class Taps:
    """Depthwise weights [channels, 1, ...] as [taps][channels]; taps: which ones, in this order, None: all."""

    taps: tuple[int, ...] | None = None

    def elements(self, shape: tuple[int, ...]) -> int:
        """How many elements the stored weight has, padding included. shape: that of the tensor."""
        return Dense().elements(shape) if self.taps is None else shape[0] * len(self.taps)

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as it is stored: one dimension of `elements(tensor.shape)` elements."""
        w = tensor.reshape(tensor.shape[0], -1)
        return (w if self.taps is None else w[:, list(self.taps)]).t().contiguous().reshape(-1)

    def __str__(self) -> str:
        return "taps by channels"


@dataclass(frozen=True)
class TapsLast:
    """Convolution weights [out, in/groups, ...] as [out][taps][in/groups]: what a GPU reads.

    taps: which taps, in this order; None: all. transposed: the weights are those of a transposed convolution of so many
    groups, [in, out/groups, ...].
    """

    groups: int = 1
    taps: tuple[int, ...] | None = None
    transposed: bool = False

    def elements(self, shape: tuple[int, ...]) -> int:
        """How many elements the stored weight has, padding included. shape: that of the tensor."""
        first, second, *kernel = shape
        return first * second * (math.prod(kernel) if self.taps is None else len(self.taps))

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as it is stored: one dimension of `elements(tensor.shape)` elements."""
        w = tensor.flatten(2)
        if self.taps is not None:
            w = w[..., list(self.taps)]
        w = w.unflatten(0, (self.groups, -1))
        return w.permute((0, 2, 3, 1) if self.transposed else (0, 1, 3, 2)).contiguous().reshape(-1)

    def __str__(self) -> str:
        return "channels last"


Layout = (
    Dense
    | Panels
    | LinePanels
    | Planes
    | Transposed
    | ConvPanels
    | WinogradPanels
    | GroupedTaps
    | NchwTaps
    | Taps
    | TapsLast
)


@dataclass(frozen=True)
class Constant:
    """A tensor of the model in one layout; `target` names it in the graph."""

    target: str
    tensor: torch.Tensor
    layout: Layout

    def __eq__(self, other: object) -> bool:
        """Equal is what has the same tensor; `==` of two tensors goes by elements, and from Python 3.13 on a dataclass
        asks it even of one and the same."""
        if not isinstance(other, Constant):
            return NotImplemented
        return self.tensor is other.tensor and (self.target, self.layout) == (other.target, other.layout)

    @property
    def elements(self) -> int:
        """How many elements are stored, padding included."""
        return self.layout.elements(tuple(self.tensor.shape))

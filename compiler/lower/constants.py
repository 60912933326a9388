"""Constants of a package: which tensor, in which layout. Their bytes are made when the package is written.

A weight that a GEMM reads is stored in panels, [ceil(n/16)][k][16] floats, zero where n is past the end; the other
readers of a tied weight (an embedding) read the panels too, so that it is stored once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ir.index import Index, as_index

if TYPE_CHECKING:
    import torch

PANEL = 16


@dataclass(frozen=True)
class Dense:
    """Row-major, as torch has it."""

    def elements(self, shape: tuple[int, ...]) -> int:
        n = 1
        for s in shape:
            n *= s
        return n

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.contiguous().reshape(-1)

    def __str__(self) -> str:
        return "dense"


@dataclass(frozen=True)
class Panels:
    """A matrix of n rows and k columns ([n, k], or [k, n] when `transposed`) as [ceil(n/16)][k][16]."""

    transposed: bool = False

    def elements(self, shape: tuple[int, ...]) -> int:
        n, k = reversed(shape) if self.transposed else shape
        return -(-n // PANEL) * PANEL * k

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
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
class ConvPanels:
    """Convolution weights [out, in/groups, kh, kw] as [groups][ceil(out/groups/16)][kh*kw][in/groups][16]."""

    groups: int

    def elements(self, shape: tuple[int, ...]) -> int:
        out, inner, kh, kw = shape
        return self.groups * -(-(out // self.groups) // PANEL) * PANEL * kh * kw * inner

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        import torch

        out, inner, kh, kw = tensor.shape
        per_group = out // self.groups
        w = tensor.reshape(self.groups, per_group, inner, kh * kw)
        if per_group % PANEL:
            w = torch.nn.functional.pad(w, (0, 0, 0, 0, 0, PANEL - per_group % PANEL))
        w = w.reshape(self.groups, -1, PANEL, inner, kh * kw)
        return w.permute(0, 1, 4, 3, 2).contiguous().reshape(-1)

    def __str__(self) -> str:
        return f"convolution panels of {PANEL}, {self.groups} groups"


@dataclass(frozen=True)
class Taps:
    """Depthwise weights [channels, 1, kh, kw] as [kh*kw][channels]."""

    def elements(self, shape: tuple[int, ...]) -> int:
        return Dense().elements(shape)

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.reshape(tensor.shape[0], -1).t().contiguous().reshape(-1)

    def __str__(self) -> str:
        return "taps by channels"


@dataclass(frozen=True)
class TapsLast:
    """Convolution weights [out, in/groups, kh, kw] as [out][kh*kw][in/groups]: what a GPU reads."""

    def elements(self, shape: tuple[int, ...]) -> int:
        return Dense().elements(shape)

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.flatten(2).transpose(1, 2).contiguous().reshape(-1)

    def __str__(self) -> str:
        return "channels last"


Layout = Dense | Panels | ConvPanels | Taps | TapsLast


@dataclass(frozen=True)
class Constant:
    """A tensor of the model in one layout; `target` names it in the graph."""

    target: str
    tensor: torch.Tensor
    layout: Layout

    @property
    def elements(self) -> int:
        return self.layout.elements(tuple(self.tensor.shape))

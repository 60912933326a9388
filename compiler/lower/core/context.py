"""What a lowering function sees of the node that it lowers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.fx

from ....runtime.errors import CompileError
from ...ir.dtypes import from_torch
from ...ir.expr import Expr
from ...ir.index import ONE, ZERO, Index, maximum, minimum
from .builder import Builder
from .constants import Layout
from .tensor import Shape, Tensor


@dataclass(frozen=True)
class ConstantRef:
    """A constant of the graph that is the operand of a node: its name and its tensor."""

    target: str
    tensor: torch.Tensor


@dataclass(frozen=True)
class Context:
    """The builder plus the node's own facts: result dtype and shape, which operands are constants."""

    builder: Builder
    node: torch.fx.Node
    constants: dict[str, torch.Tensor]

    def result_dtype(self, index: int | None = None) -> str:
        """The dtype of the operator's result, or of the result `index` of several."""
        return from_torch(self._val(index).dtype)

    def result_shape(self, index: int | None = None) -> Shape:
        """The shape of the operator's result, or of the result `index` of several."""
        return self.builder.sizes.shape(self._val(index).shape)

    def value(self, index: int | None = None) -> torch.Tensor:
        """The fake tensor of the node's result: its sizes are those of the capture."""
        return self._val(index)

    def define(self, size: int | torch.SymInt, count: Tensor) -> Index:
        """A size of the result that the run finds in `count`, a tensor of one element."""
        return self.builder.define(size, count)

    def _val(self, index: int | None) -> torch.Tensor:
        val = self.node.meta["val"]
        return val if index is None else val[index]

    def map(self, value: Callable[[list[Index]], Expr]) -> Tensor:
        """The node's result as a tensor of value(i...), converted to its dtype: for lowerings of the user's own."""
        return self.builder.map(self.result_shape(), self.result_dtype(), value)

    def operand_node(self, position: int, name: str = "") -> torch.fx.Node | None:
        """The graph node of an argument."""
        arg = self.node.kwargs.get(name) if name in self.node.kwargs else None
        if arg is None and position < len(self.node.args):
            arg = self.node.args[position]
        return arg if isinstance(arg, torch.fx.Node) else None

    def constant(self, position: int, name: str = "") -> ConstantRef | None:
        """The graph constant that an argument is, or None."""
        return self.constant_at(self.operand_node(position, name))

    def constant_at(self, node: object) -> ConstantRef | None:
        """The graph constant that a node is, or None."""
        if not isinstance(node, torch.fx.Node) or node.op != "get_attr":
            return None
        target = str(node.target)
        return ConstantRef(target, self.constants[target])

    def layout_of(self, ref: ConstantRef) -> Layout | None:
        """The layout in which a GEMM already wants this constant stored."""
        return self.builder.packed.get(ref.target)

    def axis(self, dim: int, rank: int) -> int:
        """A dimension from 0, of one that may count from the end."""
        return dim + rank if dim < 0 else dim

    def size(self, value: int | torch.SymInt | Index | None, default: int = 0) -> Index:
        """The formula of a size; of None that of `default`."""
        return self.builder.sizes.index(default if value is None else value)

    def slice_bound(self, value: int | torch.SymInt | Index | None, extent: Index, default: Index) -> Index:
        """A slice's start or end as torch reads it: negative from the end, clamped to the extent."""
        if value is None:
            return default
        index = self.size(value)
        if index.constant is not None and index.constant >= 2**62:
            return extent
        counted = from_end(index, extent)
        return minimum(counted if counted == index else maximum(counted, ZERO), extent)

    def place(self, value: int | torch.SymInt | Index, extent: Index) -> Index:
        """A place in a dimension as torch reads it: negative from the end."""
        return from_end(self.size(value), extent)

    def takes_product(self, dtype: str) -> bool:
        """Whether matrix kernels of this target take operands of an element type; they sum in float32."""
        return dtype == "f32" or (self.builder.family == "cuda" and dtype in ("f16", "bf16"))

    def refuse(self, reason: str) -> CompileError:
        """The error for arguments that the lowering does not cover."""
        return CompileError(reason)

    def integer(self, value: Index) -> int:
        """The value of a size. Raises CompileError at this operator where it is not fixed."""
        if value.constant is None:
            raise self.refuse(f"the size {value} must be fixed here")
        return value.constant


def from_end(index: Index, extent: Index) -> Index:
    """index + extent where the index is negative, which of a computed one may only be known at run time."""
    if index.nonnegative():
        return index
    if (-index - 1).nonnegative():
        return index + extent
    return index + extent * minimum(maximum(-index, ZERO), ONE)


def ints(value: object, count: int) -> tuple[int, ...]:
    """An int or a sequence of ints as a tuple of `count` of them, as torch's pairs."""
    if isinstance(value, int):
        return (value,) * count
    items = tuple(int(v) for v in value)  # type: ignore[attr-defined]
    return items * count if len(items) == 1 and count > 1 else items


def pair(value: object) -> tuple[int, int]:
    """An int or a sequence of one or two as two."""
    a, b = ints(value, 2)
    return a, b

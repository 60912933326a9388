"""What the graph passes work on, and the few ways in which they change it.

A pass changes `Work.graph` in place through the methods here, so that every new node gets a value in meta["val"], the
source line of the node that it stands for, and the list of the model's operators that it covers.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
import torch.fx
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, PythonMod

from ...runtime.errors import CompileError
from ..model.computed import KEPT, free_symbols, is_definer, raw
from ..model.fake import computing_fake
from ..model.origins import Known, Origin, leaves
from .made import Made
from .node import Node
from .sizes import Size, SymbolRange, expr

aten = torch.ops.aten

#: meta keys that tell where a node comes from; a new node has them from the node that it replaces
_ORIGIN_KEYS = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "original_aten", "from_node")


class UnknownSize(CompileError):
    """A size that does not follow from the sizes of the inputs."""

    def __init__(self, formula: sympy.Expr) -> None:
        super().__init__(
            f"the size {formula} does not follow from the sizes of the inputs",
            hint="Sizes that depend on values (nonzero, unique, masked_select, ...) cannot be compiled.",
        )


@dataclass
class Work:
    """A graph under change.

    Attributes:
        graph: the FX graph; placeholders first, flat output.
        constants: get_attr target -> tensor. Entries are replaced, tensors are never written to.
        ranges: size symbol -> bounds and the input dimension that defines it.
        origins: target -> where a constant comes from, where that is known.
        by_value: names of tensors of the model whose values have decided about the graph.
        bodies: definitions of operators that have been traced, by all that they depend on; None: it has none.
        made: what has been made of constants, which other entry points may share.
    """

    graph: torch.fx.Graph
    constants: dict[str, torch.Tensor]
    ranges: Mapping[sympy.Symbol, SymbolRange]
    _sizes: dict[sympy.Expr, Node] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    by_value: set[str] = field(default_factory=set)
    bodies: dict[tuple[Any, ...], torch.fx.GraphModule | None] = field(default_factory=dict)
    made: Made = field(default_factory=Made)

    def nodes(self, backwards: bool = False) -> Iterator[Node]:
        """The nodes in order, those left out that a pass removes on its way, and those that it adds."""
        nodes = list(self.graph.nodes)
        for node in reversed(nodes) if backwards else nodes:
            if not is_erased(node):
                yield node

    # new nodes ------------------------------------------------------------------------------------------------------
    def call(
        self,
        target: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        *,
        like: Node,
        val: Any = None,
        covers: Iterable[Node] = (),
        before: Node | None = None,
    ) -> Node:
        """A new call, placed before `before` (default `like`), with the source line of `like`.

        Args:
            val: its value for meta; by default what torch computes from the arguments' fake values.
            covers: all nodes whose work it does, `like` included when it has one of its own.
        """
        with self.graph.inserting_before(before or like):
            node: Any = self.graph.call_function(target, tuple(args), dict(kwargs or {}))
        node.meta = {k: like.meta[k] for k in _ORIGIN_KEYS if k in like.meta}
        node.meta["val"] = self.infer(target, node.args, node.kwargs) if val is None else val
        origins = merged_origins(covers)
        if origins:
            node.meta["mycc_origins"] = origins
        return node

    def constant(
        self,
        name: str,
        value: torch.Tensor | Known,
        *,
        like: Node,
        before: Node | None = None,
        origin: Origin | None = None,
    ) -> Node:
        """A get_attr of a new constant, placed before `before` (default `like`).

        value, origin: a package can only be given other weights where the origins of all its constants are known.
        """
        name = self.fresh_name(name)
        tensor, origin = (value.tensor, value.origin) if isinstance(value, Known) else (value, origin)
        self.constants[name] = tensor
        self.origins.pop(name, None)
        if origin is not None:
            self.origins[name] = origin
        return self._reads(name, before or like, like)

    def shared_constant(self, name: str, value: torch.Tensor, *, like: Node) -> Node:
        """A get_attr, before `like`, of the constant of this name where it has these values; else of a new one."""
        known = self.constants.get(name)
        if known is not None and known.dtype == value.dtype and torch.equal(known, value):
            return self._reads(name, like, like)
        return self.constant(name, value, like=like)

    def _reads(self, name: str, before: Node, like: Node) -> Node:
        with self.graph.inserting_before(before):
            node: Any = self.graph.create_node("get_attr", name)
        node.meta = {k: like.meta[k] for k in _ORIGIN_KEYS if k in like.meta}
        node.meta["val"] = self.fake(self.constants[name])
        return node

    def known(self, node: Node) -> Known:
        """The tensor of a constant's node, with its origin."""
        name = str(node.target)
        return Known(self.constants[name].detach(), self.origins.get(name))

    def decided(self, names: Iterable[str]) -> None:
        """The values of these constants have decided about the graph: others would give another one."""
        self.by_value.update(
            name for target in names for leaf in leaves(self.origins.get(target)) for name in leaf.names
        )

    def fresh_name(self, name: str) -> str:
        """`name`, or `name_1`, `name_2`, ... when a constant has it."""
        candidate, count = name, 0
        while candidate in self.constants:
            count += 1
            candidate = f"{name}_{count}"
        return candidate

    def replace(self, old: Node, new: Node) -> None:
        """Makes every user of `old` read `new`, and removes `old` and what only it read."""
        old.replace_all_uses_with(new)
        self.prune(old)

    def prune(self, node: Node) -> None:
        """Removes a node without users, then those of its inputs that have none left."""
        pending = [node]
        while pending:
            n = pending.pop()
            if is_erased(n) or n.users or n.op not in ("call_function", "get_attr") or n.meta.get(KEPT):
                continue
            pending.extend(n.all_input_nodes)
            self.graph.erase_node(n)

    # values ---------------------------------------------------------------------------------------------------------
    def fake_mode(self) -> Any:
        """The fake tensor mode of the capture; None for a graph without fake values."""
        for node in self.graph.nodes:
            val = node.meta.get("val")
            if isinstance(val, torch._subclasses.FakeTensor):
                return val.fake_mode
        return None

    def fake(self, tensor: torch.Tensor) -> Any:
        """A fake tensor of the capture's mode with the shape, strides and dtype of a real one."""
        mode = self.fake_mode()
        with computing_fake(mode):
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)

    def infer(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The value of a call on the fake values of its arguments."""
        values, named = torch.fx.node.map_arg((args, kwargs), lambda n: n.meta["val"])
        with computing_fake(self.fake_mode()):
            return target(*values, **named)

    # sizes ----------------------------------------------------------------------------------------------------------
    def size(self, value: Size) -> int | Node:
        """An operand for a size: an int, or the node that computes it from the inputs' sizes.

        Raises:
            UnknownSize: the formula has a function or symbol that cannot be computed from the inputs' sizes.
        """
        formula = expr(value)
        if isinstance(formula, int):
            return formula
        return self._size_node(formula)

    def sizes(self, values: Iterable[Size]) -> list[int | Node]:
        """`size` of each."""
        return [self.size(v) for v in values]

    def _size_node(self, formula: sympy.Expr) -> Any:
        if formula.is_Integer:
            return int(formula)
        if formula in self._sizes and not is_erased(self._sizes[formula]):
            return self._sizes[formula]
        node = self._compute_size(formula)
        self._sizes[formula] = node
        return node

    def _compute_size(self, formula: sympy.Expr) -> Node:
        if isinstance(formula, sympy.Symbol):
            return self._symbol_node(formula)
        operands = [self._size_node(a) for a in formula.args]
        match formula:
            case sympy.Add():
                return self._fold_sizes(operator.add, operands)
            case sympy.Mul():
                return self._fold_sizes(operator.mul, operands)
            case sympy.Pow() if isinstance(operands[1], int) and operands[1] > 0:
                return self._fold_sizes(operator.mul, [operands[0]] * operands[1])
            case FloorDiv():
                return self._arithmetic(operator.floordiv, *operands)
            case Mod() | PythonMod():
                return self._arithmetic(operator.mod, *operands)
            case Max():
                return self._fold_sizes(torch.sym_max, operands)
            case Min():
                return self._fold_sizes(torch.sym_min, operands)
        raise UnknownSize(formula)

    def _symbol_node(self, symbol: sympy.Symbol) -> Node:
        if symbol not in self.ranges:
            return self._computed_node(symbol)
        source = self.ranges[symbol]
        placeholder = [n for n in self.graph.nodes if n.op == "placeholder"][source.input]
        node = self._arithmetic(aten.sym_size.int, placeholder, source.dim)
        if source.offset:
            node = self._arithmetic(operator.sub, node, source.offset)
        return node if source.scale == 1 else self._arithmetic(operator.floordiv, node, source.scale)

    def _computed_node(self, symbol: sympy.Symbol) -> Node:
        """The number of a size that the graph finds: the operator's own result, or a size of it."""
        for node in self.graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt) and raw(value) == symbol and is_definer(node):
                return node
            if not isinstance(value, torch.Tensor) or symbol not in free_symbols(value):
                continue
            for d, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and raw(size) == symbol:
                    return self._arithmetic(aten.sym_size.int, node, d)
        raise UnknownSize(symbol)

    def _fold_sizes(self, function: Any, operands: Sequence[Any]) -> Node:
        total = operands[0]
        for operand in operands[1:]:
            total = self._arithmetic(function, total, operand)
        return total

    def _arithmetic(self, function: Any, *operands: Any) -> Node:
        """A size computation behind the placeholders and all earlier ones, so that every node may use it."""
        late = [n for n in operands if isinstance(n, Node) and (n.op != "placeholder" and not n.meta.get("mycc_size"))]
        late += [n for n in operands if isinstance(n, Node) and n.meta.get("mycc_late")]
        anchor = next(n for n in self.graph.nodes if n.op != "placeholder" and not n.meta.get("mycc_size"))
        with (
            self.graph.inserting_after(max(late, key=lambda n: n._sort_key))
            if late
            else self.graph.inserting_before(anchor)
        ):
            node: Any = self.graph.call_function(function, tuple(operands))
        values = torch.fx.node.map_arg(operands, lambda n: n.meta["val"])
        if function is aten.sym_size.int:
            node.meta["val"] = values[0].shape[values[1]]
        else:
            node.meta["val"] = function(*values)
        node.meta["mycc_size"] = True
        node.meta["mycc_late"] = bool(late)  # of a size that the graph finds: it stands behind what finds it
        return node


def is_erased(node: Node) -> bool:
    """Whether a node that a pass still holds has been removed from the graph."""
    return bool(getattr(node, "_erased", False))


def origins_of(node: Node) -> list[tuple[str, str]]:
    """(name, operator) of the captured nodes whose work a node does."""
    known = node.meta.get("mycc_origins")
    if known:
        return list(known)
    return [(node.name, str(node.target))] if node.op == "call_function" else []


def merged_origins(nodes: Iterable[Node]) -> list[tuple[str, str]]:
    """The operators and source lines of several nodes, each pair once: for a node that replaces them."""
    return list(dict.fromkeys(origin for node in nodes for origin in origins_of(node)))

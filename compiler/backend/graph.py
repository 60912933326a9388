"""A graph of AOTAutograd as a ModelGraph, and how its arguments and results are those of the package.

The graph is one that torch has traced below autograd: aten operators on fake tensors, parameters among its arguments,
numbers for dynamic sizes (SymInt), and `copy_` to the arguments that a call changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx

from ...runtime.errors import CompileError
from ..capture.functional import FunctionalCopy, NeedsRetrace, RefusedNode, Tensor
from ..capture.state import Changed, with_changes
from ..capture.trees import LEAF
from ..model.assertions import asked_sizes, settle
from ..model.computed import computed_sizes, keep_definers
from ..model.control import with_symbols
from ..model.graph import ModelGraph, graph_module
from ..model.source_lines import place_of
from ..model.symbols import size_symbols
from .interface import (
    Argument,
    Constant,
    Interface,
    Number,
    Output,
    Result,
    Size,
    Source,
    View,
    hint,
    is_identity,
    permutation,
)
from .values import check_value, defined_by, is_size, mode_of, ranges_of, specs, stays, symbols_of, the_device, under
from .views import is_dense, number_of, root_of, shared_roots, view_of

__all__ = ["NAME", "Imported", "import_graph"]

aten = torch.ops.aten
NAME = "forward"  # of the package's one entry point


@dataclass(frozen=True)
class Imported:
    """A graph and its interface; `device`: where all its tensors are. `graph` is None when nothing is computed."""

    graph: ModelGraph | None
    interface: Interface
    device: torch.device


def import_graph(module: fx.GraphModule) -> Imported:
    """The graph of a module whose nodes have fake values in meta["val"].

    Raises:
        CompileError: it holds what no package can (tensors on several devices, a write without a functional form).
    """
    try:
        return _Importer(module).run()
    except RefusedNode as refused:
        where = place_of(refused.node)
        raise CompileError(refused.message, details=[where] if where else [], hint=refused.hint) from None
    except NeedsRetrace as needs:
        raise CompileError(f"the graph holds {needs}, which has no functional form here") from None


class _Importer:
    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.graph = fx.Graph()
        self.placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        self.position = {node: i for i, node in enumerate(self.placeholders)}
        self.sources: list[Source] = []
        self.inputs: list[tuple[fx.Node, str]] = []
        self.outside: dict[Tensor, tuple[fx.Node, str]] = {}
        self.constants: dict[str, torch.Tensor] = {}
        self.device = the_device(module)

    def run(self) -> Imported:
        bound = self._bind()
        copier = FunctionalCopy(self.graph, constants=self.constants)
        values = copier.copy(self.module, bound, self._constant)
        results, nodes = self._results(copier, values)
        changes = [
            Changed(node, after, name)
            for tensor, (node, name) in self.outside.items()
            if (after := copier.value(tensor)) is not node
        ]
        names = [f"output{i}" for i in range(len(nodes))]
        symbols = self._symbols(nodes)
        _check_found(results, symbols)
        graph = None
        if nodes or changes:
            nodes = [*nodes, *(change.after for change in changes)]
            names = [*names, *(change.name for change in changes)]
            self.graph.output(tuple(nodes))
            graph = self._model(copier, nodes, names, changes)
        sources = tuple(self.sources) if graph is not None else ()
        return Imported(graph, Interface(len(self.placeholders), sources, tuple(results), symbols), self.device)

    def _model(
        self, copier: FunctionalCopy, nodes: Sequence[fx.Node], names: Sequence[str], changes: Sequence[Changed]
    ) -> ModelGraph:
        self._drop_unread(changes)
        ranges = ranges_of(self.module)
        inputs = specs([node for node, _ in self.inputs], [name for _, name in self.inputs])
        symbols = size_symbols([spec.shape for spec in inputs], [spec.name for spec in inputs], [], ranges)
        keep_definers(self.graph, asked_sizes(copier.assertions))
        self.graph.eliminate_dead_code(stays)
        computed = computed_sizes(list(self.graph.nodes), {s.symbol for s in symbols}, ranges)
        checks = settle(copier.assertions, computed)
        root = torch.nn.Module()
        for target, tensor in self.constants.items():
            root.register_buffer(target, tensor)
        for target, region in copier.regions.items():
            root.add_module(target, region.module)
        read = {str(n.target) for n in self.graph.nodes if n.op == "get_attr"}
        graph = ModelGraph(
            name=NAME,
            module=graph_module(root, self.graph, "Model"),
            constants={target: tensor for target, tensor in self.constants.items() if target in read},
            inputs=inputs,
            outputs=specs(nodes, names),
            symbols=symbols,
            in_tree={"tuple": [{"tuple": [LEAF] * len(inputs)}, {"dict": []}]},
            out_tree={"tuple": [LEAF] * (len(nodes) - len(changes))},
            examples=(),
            regions={name: region for name, region in copier.regions.items() if name in read},
            computed=computed,
            checks=checks,
        )
        with_symbols(graph, graph.symbols)
        return with_changes(graph, changes)

    # -- arguments ------------------------------------------------------------------------------------------------

    def _bind(self) -> list[Any]:
        """A Tensor for every tensor argument and number, in the order of the placeholders."""
        bound: dict[int, Any] = {}
        for i, node in enumerate(self.placeholders):
            if isinstance(node.meta.get("val"), torch.Tensor):
                bound[i] = self._tensor(i, node)
        numbers = [i for i, node in enumerate(self.placeholders) if is_size(node.meta.get("val"))]
        homes = {i: self._home(i) for i in numbers}
        for node, order, i in self._permuted:
            bound[i] = self._permuted_back(bound[i], node, order)
        for i, (home, dim) in homes.items():
            size = self.graph.call_function(aten.sym_size.int, (home, dim))
            size.meta["val"] = self.placeholders[i].meta["val"]
            bound[i] = Tensor(size)
        return [bound.get(i, node.meta.get("val")) for i, node in enumerate(self.placeholders)]

    @property
    def _permuted(self) -> list[tuple[fx.Node, tuple[int, ...], int]]:
        return [
            (node, source.order, source.index)
            for (node, _), source in zip(self.inputs, self.sources, strict=True)
            if isinstance(source, Argument) and source.order is not None
        ]

    def _tensor(self, index: int, node: fx.Node) -> Tensor:
        val = node.meta["val"]
        check_value(val, node.name)
        order = permutation(val.shape, val.stride(), hint)
        new = self.graph.placeholder(node.name)
        new.meta = dict(node.meta)
        if is_identity(order):
            order = None
        if order is not None:
            new.meta["val"] = under(val, lambda: val.permute(order))
        self.sources.append(Argument(index, order))
        self.inputs.append((new, node.name))
        tensor = Tensor(new, outside=True)
        self.outside[tensor] = (new, node.name)
        return tensor

    def _permuted_back(self, tensor: Tensor, node: fx.Node, order: Sequence[int]) -> Tensor:
        """The argument itself, as a view of the input."""
        back = sorted(range(len(order)), key=lambda d: order[d])
        view = self.graph.call_function(aten.permute.default, (node, back))
        view.meta["val"] = under(node.meta["val"], lambda: node.meta["val"].permute(back))
        return tensor.view(view, view)

    def _home(self, index: int) -> tuple[fx.Node, int]:
        """An input's dimension that has the value of a number; a new input without elements where there is none."""
        wanted = self.placeholders[index].meta["val"]
        formula = wanted.node.expr
        for node, _ in self.inputs:
            for d, size in enumerate(node.meta["val"].shape):
                if isinstance(size, torch.SymInt) and size.node.expr == formula:
                    return node, d
        if not bool(wanted >= 0):  # a guard: the number is a size from now on
            raise CompileError(f"the number {formula} is negative, and no size")
        name = f"{self.placeholders[index].name}_of"
        node = self.graph.placeholder(name)
        with mode_of(self.module), torch.no_grad():
            node.meta["val"] = torch.empty((wanted, 0), device=self.device)
        self.sources.append(Size(index))
        self.inputs.append((node, name))
        return node, 0

    def _constant(self, name: str) -> Tensor:
        tensor = self.module
        for part in name.split("."):
            tensor = getattr(tensor, part)
        if not isinstance(tensor, torch.Tensor):
            raise CompileError(f"the graph holds '{name}', a {type(tensor).__name__}, which a package cannot hold")
        check_value(tensor, name)
        target = name.replace(".", "_")
        node = self.graph.get_attr(target)
        own = next((n for n in self.module.graph.nodes if n.op == "get_attr" and n.target == name), None)
        if own is not None and isinstance(own.meta.get("val"), torch.Tensor):
            node.meta = dict(own.meta)
        else:
            with mode_of(self.module), torch.no_grad():
                node.meta["val"] = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        self.constants[target] = tensor.detach()
        return Tensor(node, outside=False)

    def _drop_unread(self, changes: Sequence[Changed]) -> None:
        """Inputs that nobody reads are none."""
        written = {change.before for change in changes}
        self.graph.eliminate_dead_code(stays)
        missing = symbols_of(n.meta.get("val") for n in self.graph.nodes)
        for node, _ in self.inputs:
            if node.users or node in written:
                missing -= defined_by(node)
        kept: list[tuple[tuple[fx.Node, str], Source]] = []
        for pair, source in zip(self.inputs, self.sources, strict=True):
            node = pair[0]
            if node.users or node in written or missing & defined_by(node):
                missing -= defined_by(node)
                kept.append((pair, source))
            else:
                self.graph.erase_node(node)
        self.inputs, self.sources = [pair for pair, _ in kept], [source for _, source in kept]

    def _symbols(self, outputs: Sequence[fx.Node]) -> Mapping[sympy.Symbol, tuple[int, int | None]]:
        """Where a call finds each size: in its arguments, behind them in the outputs, for sizes that the run finds."""
        found: dict[sympy.Symbol, tuple[int, int | None]] = {}
        for i, node in enumerate(self.placeholders):
            val = node.meta.get("val")
            if is_size(val) and isinstance(val.node.expr, sympy.Symbol):
                found[val.node.expr] = (i, None)
            for d, size in enumerate(val.shape) if isinstance(val, torch.Tensor) else ():
                if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                    found.setdefault(size.node.expr, (i, d))
        for i, node in enumerate(outputs):
            for d, size in enumerate(node.meta["val"].shape):
                if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                    found.setdefault(size.node.expr, (len(self.placeholders) + i, d))
        return found

    # -- results --------------------------------------------------------------------------------------------------

    def _results(self, copier: FunctionalCopy, values: Sequence[Any]) -> tuple[list[Result], list[fx.Node]]:
        wanted: Sequence[Any] = self.module.graph.output_node().args[0]  # type: ignore[assignment]
        roots = [root_of(node) if isinstance(node, fx.Node) else None for node in wanted]
        outputs: dict[fx.Node, tuple[int, tuple[int, ...] | None]] = {}
        nodes: list[fx.Node] = []

        def output(node: fx.Node, value: fx.Node) -> tuple[int, tuple[int, ...] | None]:
            if node not in outputs:
                new, order = self._dense(node, value)
                outputs[node] = (len(nodes), order)
                nodes.append(new)
            return outputs[node]

        shared = shared_roots(wanted, roots)
        results: list[Result] = []
        for node, root, value in zip(wanted, roots, values, strict=True):
            if not isinstance(node, fx.Node) or node.meta.get("val") is None:
                results.append(Constant(node if not isinstance(node, fx.Node) else None))
            elif not isinstance(node.meta["val"], torch.Tensor):
                results.append(number_of(node.meta["val"]))
            elif root is not None and root in self.position:
                index = self.position[root]
                results.append(View(index, whole=True) if node is root else view_of(node, root, index))
            elif root is not None and root is not node and root in shared:
                index, order = output(root, copier.value(copier.found[root]))
                results.append(Output(index, order, view_of(node, root, -1)))
            else:
                index, order = output(node, copier.value(value))
                copied = order is None and not is_dense(node)
                results.append(Output(index, order, view_of(node, node, -1) if copied else None, copied))
        return results, nodes

    def _dense(self, node: fx.Node, value: fx.Node) -> tuple[fx.Node, tuple[int, ...] | None]:
        """A result as the package gives it: permuted to be row-major where eager's is not."""
        val = node.meta["val"]
        check_value(val, node.name)
        order = permutation(val.shape, val.stride(), hint)
        if order is None or is_identity(order):
            return value, None
        new = self.graph.call_function(aten.permute.default, (value, list(order)))
        new.meta = {**value.meta, "val": under(val, lambda: value.meta["val"].permute(order))}
        return new, order


def _check_found(results: Sequence[Result], symbols: Mapping[sympy.Symbol, Any]) -> None:
    """Raises CompileError for a number among the results that no argument and no output says."""
    for result in results:
        if isinstance(result, Number) and result.formula.free_symbols - symbols.keys():
            raise CompileError(f"the number {result.formula} depends on values and is no size of a result")

"""One entry point of a package that trains, put together: its arguments, what it keeps, and then its graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from ..capture.functional import FunctionalCopy, NeedsRetrace
from ..capture.program import flat_name
from ..capture.state import Changed, with_changes
from ..capture.tensors import Tensor as Held
from ..capture.trees import LEAF, leaf_names
from ..model.computed import KEPT
from ..model.control import MUTABLE
from ..model.graph import ModelGraph, TensorSpec, graph_module
from ..model.symbols import size_of
from .joint import Forward, fake, recorded, trace
from .order import updates_early
from .plan import Plan

__all__ = ["Entry", "Results", "Values"]

LOSS = "loss"


@dataclass(frozen=True)
class Results:
    """What a traced entry point gives: its results, and new values of the state by name.

    first: what is computed in the order of the trace; all else as soon as it can be. Empty: all is.
    """

    results: list[Any]
    changed: dict[str, Any]
    first: list[Any] = field(default_factory=list)


class Values:
    """The values of a trace: v(group) gives those of a group of sources, by their keys."""

    def __init__(self, entry: Entry, values: Sequence[Any]) -> None:
        self._values = dict(zip(entry.order, values, strict=True))
        self._entry = entry

    def __call__(self, group: Mapping[Any, str]) -> dict[Any, Any]:
        return {key: self._values[name] for key, name in group.items()}

    def named(self, name: str) -> Any:
        """Of a tensor of the state."""
        return self._values[name]


class Entry:
    """An entry point while it is put together: its arguments, the tensors that it keeps, and then its graph."""

    def __init__(self, name: str, mode: FakeTensorMode, forward: ModelGraph | None) -> None:
        self.name, self.mode, self.forward = name, mode, forward
        self.order: list[str] = []  # names of all sources, in the order of the trace's arguments
        self.fakes: list[torch.Tensor] = []
        self.graph = fx.Graph()
        self.nodes: dict[str, fx.Node] = {}
        self.specs: list[TensorSpec] = []
        self.examples: list[torch.Tensor] = []
        self.constants: dict[str, torch.Tensor] = {}
        self.kept_examples: dict[str, torch.Tensor] = {}
        self.steady: set[str] = set()
        tree: Any = forward.in_tree if forward is not None else {"tuple": [{"tuple": [], "names": []}, {"dict": []}]}
        self.positional, self.keywords = tree["tuple"][0], list(tree["tuple"][1]["dict"])

    def forward_sources(self, function: Forward, trained: Mapping[fx.Node, str]) -> dict[fx.Node, str]:
        """The placeholders and constants of the captured graph; its buffers and parameters are kept."""
        graph = function.graph
        changes = {change.input: change for change in graph.in_place}
        found: dict[fx.Node, str] = {}
        held: list[tuple[fx.Node, str, torch.Tensor]] = []
        inputs = iter(range(len(graph.inputs)))
        for node in function.sources:
            if node.op == "get_attr":
                name = trained.get(node, f"constant {node.target} {len(held)}")
                held.append((node, name, graph.constants[str(node.target)]))
                continue
            place = next(inputs)
            change = changes.get(place)
            if change is not None and change.initial is not None:
                held.append((node, change.name, change.initial))
                continue
            spec = graph.inputs[place]
            found[node] = self._argument(spec, graph.examples[place], node.meta["val"])
        for node, name, tensor in held:
            found[node] = self._held(name, tensor, node.meta["val"], dict(node.meta))
        return found

    def arguments(self, like: Mapping[str, torch.Tensor], name: str) -> dict[str, str]:
        """One argument, a dict of tensors like these."""
        found = {}
        for key, tensor in like.items():
            spec = TensorSpec(f"{name}_{re.sub(r'[^A-Za-z0-9_]', '_', key)}", tensor.dtype, tuple(tensor.shape))
            example = torch.full_like(tensor, 0.01)
            found[key] = self._argument(spec, example, fake(self.mode, example))
        self.positional = {"tuple": [{"dict": [[key, LEAF] for key in like]}], "names": [name]}
        return found

    def numbers(self, values: Mapping[str, float | list[float]]) -> dict[str, str]:
        """Numbers that the caller gives by name, as float64 tensors."""
        found = {}
        for name, value in values.items():
            example = torch.tensor(value, dtype=torch.float64)
            found[name] = self._argument(TensorSpec(name, example.dtype, tuple(example.shape)), example, None)
            self.keywords.append([name, LEAF])
            self.steady.add(name)
        return found

    def state(
        self, values: Mapping[str, torch.Tensor], examples: Mapping[str, torch.Tensor] | None = None
    ) -> dict[str, str]:
        """Tensors that are kept, by name, with values to verify with."""
        self.kept_examples |= examples or {}
        self.steady |= {name for name, value in values.items() if value.dim() == 0 and name in self.kept_examples}
        return {name: self._held(name, value, None, {MUTABLE: True}) for name, value in values.items()}

    def parameters(self, plan: Plan, forward: ModelGraph, nodes: Sequence[fx.Node]) -> dict[str, str]:
        """The trained parameters by name, where the captured graph is not a part of this entry point."""
        return {
            trained.name: self._held(trained.name, forward.constants[str(node.target)], None, {MUTABLE: True})
            for trained, node in zip(plan.trained, nodes, strict=True)
        }

    def _argument(self, spec: TensorSpec, example: torch.Tensor, value: Any) -> str:
        node = self.graph.placeholder(spec.name)
        self.specs.append(spec)
        self.examples.append(example)
        return self._source(f"argument {spec.name}", node, fake(self.mode, example if value is None else value), {})

    def _held(self, name: str, tensor: torch.Tensor, value: Any, meta: dict[str, Any]) -> str:
        target = flat_name(name.removeprefix("constant "), self.constants)
        self.constants[target] = tensor
        node = self.graph.get_attr(target)
        return self._source(name, node, fake(self.mode, tensor if value is None else value), meta)

    def _source(self, name: str, node: fx.Node, value: torch.Tensor, meta: dict[str, Any]) -> str:
        node.meta = {**meta, "val": value}
        self.nodes[name] = node
        self.order.append(name)
        self.fakes.append(value)
        return name

    def made(self, run: Callable[[Values], Results], out_tree: Any) -> ModelGraph:
        """The entry point that computes what `run` does on values."""
        names: list[str] = []

        def flat(*values: Any) -> list[Any]:
            with torch.no_grad():
                found = run(Values(self, values))
            names[:] = found.changed
            return [*found.results, *found.changed.values(), *found.first]

        values = self._traced(flat)
        count = len(list(leaf_names(out_tree, LOSS))) + len(names)
        outputs, first = values[:count], values[count:]
        self.graph.output(tuple(outputs))
        _remove_dead(self.graph)
        if first:
            updates_early(self.graph, first)
        used = {str(n.target) for n in self.graph.nodes if n.op == "get_attr"}
        constants = {target: tensor for target, tensor in self.constants.items() if target in used}
        root = torch.nn.Module()
        for target, tensor in constants.items():
            root.register_buffer(target, tensor)
        results = len(outputs) - len(names)
        return self._finished(graph_module(root, self.graph, "Step"), constants, outputs, results, names, out_tree)

    def _traced(self, flat: Callable[..., Any]) -> list[fx.Node]:
        """The operators of a function of all sources behind these in the graph; its results."""
        sources = list(self.graph.nodes)
        module = recorded(self.mode, flat, self.fakes)
        if module is not None:
            try:
                return self._copied(module)
            except NeedsRetrace:
                for node in reversed(list(self.graph.nodes)[len(sources) :]):
                    self.graph.erase_node(node)
        return self._copied(trace(self.mode, flat, self.fakes))

    def _copied(self, module: fx.GraphModule) -> list[fx.Node]:
        copier = FunctionalCopy(self.graph, constants=self.constants)
        sources = [Held(self.nodes[name]) for name in self.order]
        copied = copier.copy(module, sources, lambda name: self._constant(module, name))
        return [copier.value(result) for result in copied]

    def _finished(
        self,
        module: fx.GraphModule,
        constants: dict[str, torch.Tensor],
        outputs: list[fx.Node],
        results: int,
        names: list[str],
        out_tree: Any,
    ) -> ModelGraph:
        known = list(leaf_names(out_tree, LOSS))
        specs = tuple(_spec(name, node) for name, node in zip([*known, *names], outputs, strict=True))
        tree = {"tuple": [self.positional, {"dict": self.keywords}]}
        forward = self.forward
        graph = ModelGraph(
            name=self.name, module=module, constants=constants, inputs=tuple(self.specs), outputs=specs,
            symbols=() if forward is None else forward.symbols, in_tree=tree, out_tree=out_tree,
            examples=tuple(self.examples), checks=() if forward is None else forward.checks,
            notes=() if forward is None else forward.notes,
        )  # fmt: skip
        changes = []
        for name, after in zip(names, outputs[results:], strict=True):
            before = self.nodes[name]
            changes.append(Changed(before, after, name, self.constants[str(before.target)]))
        return self._with_examples(with_changes(graph, changes))

    def _with_examples(self, graph: ModelGraph) -> ModelGraph:
        """Verification draws moments like those of a run, and keeps numbers such as rates as they are."""
        names = [spec.name for spec in graph.inputs]
        known = [self.kept_examples.get(name) for name in names]
        examples = tuple(own if new is None else new for own, new in zip(graph.examples, known, strict=True))
        steady = frozenset(i for i, name in enumerate(names) if name in self.steady)
        return replace(graph, examples=examples, steady=steady)

    def _constant(self, module: fx.GraphModule, name: str) -> Held:
        """A tensor that the trace has made, such as one of torch.tensor()."""
        tensor = getattr(module, name)
        target = f"{name.strip('_')}_of_trace"
        self.constants[target] = tensor
        node = self.graph.get_attr(target)
        node.meta = {"val": tensor}
        return Held(node)


def _spec(name: str, node: fx.Node) -> TensorSpec:
    value = node.meta["val"]
    return TensorSpec(name, value.dtype, tuple(size_of(size) for size in value.shape))


def _remove_dead(graph: fx.Graph) -> None:
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op in ("call_function", "get_attr") and not node.meta.get(KEPT):
            graph.erase_node(node)

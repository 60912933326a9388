"""Branches and loops: their bodies become functional graphs of their own, and what they write outside is handed on.

    def body(i, a):                                          def body(i, a, b):
        b.add_(1)                                                b1 = add(b, 1)
        return i + 1, a + b                 ->                   return i + 1, a + b1, b1
    i, a = while_loop(test, body, (i, a))                    i, a, b = while_loop(test, body, (i, a, b))

Bodies see each other's memory as eager torch does: views of what they write are taken again inside of them. What a loop
carries may start as such a view: in the first turn it is one, later it is memory of its own. A test that writes runs
before the loop and at the end of its body, which hands on what it found.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch import fx
from torch._ops import OpOverload

from ..model.assertions import settle
from ..model.computed import KEPT
from ..model.control import Operands, batched, operands_of, region_graph
from .tensors import RefusedNode, Tensor, bind, is_fixed, storages

if TYPE_CHECKING:
    from .functional import FunctionalCopy

__all__ = ["copy_control", "shared_operands"]

aten = torch.ops.aten


@contextmanager
def shared_operands() -> Iterator[None]:
    """torch.export takes while_loops whose operands share memory: how they do is known here."""
    from torch._dynamo.variables import higher_order_ops  # seconds to import, which torch.export does anyway

    loop = getattr(higher_order_ops, "WhileLoopHigherOrderVariable", None)
    if loop is None:  # of a torch to come: it refuses such loops
        yield
        return
    with mock.patch.object(loop, "supports_aliasing", True):
        yield


Constant = Callable[[str], Tensor]

_TAKE_A_COPY = "Give it a copy: x.clone()."


@dataclass(eq=False)
class _Start(Tensor):
    """What a loop carries, and begins as a view of memory that its body writes: the view while `first` holds."""

    first: fx.Node | None = None
    carried: fx.Node | None = None

    def retaken(self, graph: fx.Graph, base: fx.Node) -> fx.Node:
        assert self.carried is not None
        new = graph.call_function(aten.where.self, (self.first, base, self.carried))
        new.meta = dict(self.carried.meta)
        return new


def copy_control(copier: FunctionalCopy, node: fx.Node, env: dict[fx.Node, Any], constant: Constant) -> Any:
    """A branch or a loop in the graph of `copier`; its results."""
    name = str(node.target)
    given = operands_of(name, node.args)
    operands = [bind(operand, env) for operand in (*given.own, *given.shared)]
    is_plain = name == "map_impl" and not _writes_inputs(env[given.bodies[0]])
    whole = batched(node, given, env[given.bodies[0]]) if is_plain else None
    if whole is not None:
        return copier.copy(whole, operands, constant)
    own, shared = operands[: len(given.own)], operands[len(given.own) :]
    call = _Call(copier, node, given, own, shared, bind(given.flag, env), [env[b] for b in given.bodies], constant)
    regions = [_Region(call, place, module) for place, module in zip(given.bodies, call.modules, strict=True)]
    for region in regions:
        region.run()
    call.roots = tuple(dict.fromkeys(root for region in regions for root in region.written()))
    if name == "while_loop":
        _check_apart(regions[-1])
    if not call.roots:
        new = call.emit([region.finished(region.results) for region in regions], (), node.meta["val"])
        if not isinstance(node.meta["val"], (tuple, list)):
            return Tensor(new)
        return tuple(Tensor(_part(copier.graph, new, i)) for i in range(len(node.meta["val"])))
    return _writing(call, tests_write=name == "while_loop" and bool(regions[0].written()))


@dataclass
class _Call:
    """An operator of control flow, and its operands in the graph that it is copied to.

    roots: memory from outside that its bodies write. marks: what a loop carries beside: whether this is the first turn,
    and whether there is a next one.
    """

    copier: FunctionalCopy
    node: fx.Node
    given: Operands
    own: list[Any]
    shared: list[Any]
    flag: Any
    modules: list[fx.GraphModule]
    constant: Constant
    roots: tuple[Tensor, ...] = ()
    marks: dict[str, Tensor] = field(default_factory=dict)

    @property
    def kept(self) -> int:
        """How many operands a loop carries."""
        return len(self.own) - self.given.sliced

    def outer_constant(self, place: fx.Node) -> Constant:
        return lambda name: self.constant(f"{place.target}.{name}")

    def is_written(self, operand: Any) -> bool:
        return isinstance(operand, Tensor) and operand.root() in self.roots

    def handed_in(self) -> list[Tensor]:
        """The shared operands that bodies take as inputs, each once."""
        tensors = dict.fromkeys(t for t in self.shared if isinstance(t, Tensor))
        return [t for t in tensors if not is_fixed(t) and not self.is_written(t)]

    def foreign(self) -> list[fx.Node]:
        """Nodes beside the memory that views of it were taken with: sizes, places."""
        found: dict[fx.Node, None] = {}
        for operand in (*self.own, *self.shared):
            if self.is_written(operand):
                for tensor in operand.chain():
                    found |= dict.fromkeys(_beside(tensor))
        return list(found)

    def emit(
        self, graphs: Sequence[tuple[fx.Graph, dict[str, torch.Tensor]]], handed: Sequence[Any], value: Any
    ) -> fx.Node:
        """The operator over the bodies. handed: what it carries behind its own operands."""
        copier = self.copier
        regions = []
        for i, (graph, used) in enumerate(graphs):
            carried = self.kept + len(handed) if self.given.flag is None else 0
            follows = carried if i == len(graphs) - 1 else 0  # the test of a loop changes nothing
            region = f"region_{len(copier.regions)}"
            copier.regions[region] = region_graph(region, graph, used, follows, copier.regions)
            regions.append(copier.graph.get_attr(region))
        own = [*self.own[: self.kept], *handed, *self.own[self.kept :]]
        left = self.handed_in()
        if self.given.flag is not None:
            own, left = [], [*handed, *left]
        operands = Operands(
            copier.nodes(self.flag), tuple(regions), copier.nodes(tuple(own)), self.given.sliced,
            (*copier.nodes(tuple(left)), *self.foreign()),
        )  # fmt: skip
        arguments = operands.arguments(str(self.node.target))
        new = copier.graph.create_node("call_function", self.node.target, arguments, {}, name=self.node.name)
        new.meta = {**self.node.meta, "val": value}
        return new


class _Region:
    """A body while it is copied to a graph of its own."""

    def __init__(self, call: _Call, place: fx.Node, module: fx.GraphModule) -> None:
        self.call, self.place, self.module = call, place, module
        self.graph = fx.Graph()
        self.copier = call.copier.inner(self.graph)
        self.results: list[Tensor] = []
        self._held: dict[str, Tensor] = {}
        self._inside: dict[Tensor, Tensor] = {}  # tensor from outside -> what it is here
        self._foreign: dict[fx.Node, fx.Node] = {}
        self._placeholders = list(module.graph.find_nodes(op="placeholder"))
        own = self._placeholders[: len(call.own)]
        self.own = [self._input(p.name, p) for p in own[: call.kept]]
        self.roots = [self._input(root.node.name, root.node) for root in call.roots]
        self._inside |= dict(zip(call.roots, self.roots, strict=True))
        self.marks = {name: self._input(name, mark.node) for name, mark in call.marks.items()}
        self.own += [self._input(p.name, p) for p in own[call.kept :]]

    def _input(self, name: str, like: fx.Node) -> Tensor:
        new = self.graph.placeholder(name)
        new.target = new.name  # torch calls operands of two kinds alike
        new.meta = dict(like.meta)
        return Tensor(new, outside=True)

    def receive(self) -> list[Any]:
        """The operands from outside, as inputs: in the order of `_Call.emit`, whatever views are taken with."""
        pairs = list(zip(self.call.shared, self._placeholders[len(self.call.own) :], strict=True))
        places = {operand: placeholder for operand, placeholder in reversed(pairs) if isinstance(operand, Tensor)}
        for operand in self.call.handed_in():
            self._inside[operand] = self._input(places[operand].name, places[operand])
        for node in self.call.foreign():
            self._node(node)
        return [self._shared(operand) if isinstance(operand, Tensor) else operand for operand, _ in pairs]

    def run(self, then: tuple[fx.GraphModule, fx.Node] | None = None) -> list[Tensor]:
        """Copies the body; `results` are what it returns. then: another body behind it, over the results; its own."""
        shared = self.receive()
        self.results = self._copied(self.module, self.place, [*self._carried(), *shared])
        return self._copied(*then, [*self.results, *shared]) if then is not None else []

    def _copied(self, module: fx.GraphModule, place: fx.Node, inputs: Sequence[Any]) -> list[Tensor]:
        constant = self.call.outer_constant(place)
        results = self.copier.copy(module, inputs, lambda name: self._constant(constant(name)))
        flat = list(results) if isinstance(results, (tuple, list)) else [results]
        if not all(isinstance(result, Tensor) for result in flat):
            raise RefusedNode(
                place, "a branch or the body of a loop returns a number or None", "Return tensors from it."
            )
        return flat

    def _carried(self) -> list[Tensor]:
        """The operands of its own; those that begin as a view of what is written are one in the first turn."""
        first = self.marks.get("first")
        found = []
        for outer, tensor in zip(self.call.own, self.own, strict=True):
            if first is None or not self.call.is_written(outer):
                found.append(tensor)
                continue
            view = self._view(outer)
            start = _Start(tensor.node, view, tensor.node, False, True, [], first.node, tensor.node)
            view.views.append(start)
            found.append(start)
        return found

    def _shared(self, outer: Tensor) -> Tensor:
        if outer in self._inside or self.call.is_written(outer):
            return self._view(outer)
        return self._constant(outer)

    def _constant(self, outer: Tensor) -> Tensor:
        if self.call.is_written(outer):
            return self._view(outer)
        target = str(outer.node.target)
        if target not in self._held:
            node = self.graph.get_attr(target)
            node.meta = dict(outer.node.meta)
            self._held[target] = self._inside[outer] = Tensor(node, outside=True)
        return self._held[target]

    def _view(self, outer: Tensor) -> Tensor:
        """A view of memory from outside, taken here."""
        if outer in self._inside:
            return self._inside[outer]
        if outer.parent is None or outer.taken_by is None:
            raise RefusedNode(
                self.call.node, "a branch or loop writes to memory that several tensors have", _TAKE_A_COPY
            )
        base = self._view(outer.parent)
        if isinstance(outer, _Start):
            assert outer.first is not None
            assert outer.carried is not None
            carried = self._node(outer.carried)
            made: Tensor = _Start(carried, base, carried, False, True, [], self._node(outer.first), carried)
            base.views.append(made)
        else:
            view = outer.taken_by
            args, kwargs = fx.map_arg((view.args[1:], view.kwargs), self._node)
            taken = self.graph.create_node("call_function", view.target, (base.node, *args), dict(kwargs))
            taken.meta = dict(view.meta)
            made = base.view(taken, taken)
        self._inside[outer] = made
        return made

    def _node(self, outer: fx.Node) -> fx.Node:
        """A value from outside that a view is taken with."""
        if outer not in self._foreign:
            self._foreign[outer] = self._input(outer.name, outer).node
        return self._foreign[outer]

    def written(self) -> Iterator[Tensor]:
        """The memory from outside that the body writes."""
        outside = {inner: outer for outer, inner in self._inside.items()}
        for root, node in self.copier.written.items():
            if root in self.own:
                raise RefusedNode(
                    node, "the body of a loop writes to what the loop carries", "Return the new value from it instead."
                )
            yield outside[root].root()

    def finished(self, results: Sequence[Tensor]) -> tuple[fx.Graph, dict[str, torch.Tensor]]:
        """The graph with these results, its inputs first, and the constants that it reads."""
        settle(self.copier.assertions, ())  # a body's are tested where it runs
        graph = self.graph
        graph.output(tuple(self.copier.value(result) for result in results))
        for dead in reversed(list(graph.nodes)):
            if not dead.users and dead.op in ("call_function", "get_attr") and not dead.meta.get(KEPT):
                graph.erase_node(dead)
        first = next(iter(graph.nodes))
        for late in graph.find_nodes(op="placeholder"):
            if late is not first:
                first.prepend(late)
            else:
                first = first.next
        return graph, {target: self.call.copier.constants[target] for target in self._held}


def _check_apart(body: _Region) -> None:
    """What a loop hands on has memory of its own."""
    roots = [result.root() for result in body.results]
    if len(set(roots)) < len(roots) or any(root.outside for root in roots):
        message = "the body of a loop returns what it was given, or a view of it, or one tensor twice"
        raise RefusedNode(body.call.node, message, "Return a copy: x.clone().")


def _writing(call: _Call, tests_write: bool) -> tuple[Tensor, ...]:
    """The operator with bodies that hand on what they write; its own results."""
    copier, node, given = call.copier, call.node, call.given
    is_loop = str(node.target) == "while_loop"
    if not is_loop and given.flag is None:
        raise RefusedNode(node, "the body of a map or scan writes to memory from outside", "Write a torch.while_loop.")
    if any(call.is_written(operand) for operand in call.own):
        call.marks["first"] = Tensor(_truth(copier.graph, call.roots[0], True))
    if tests_write:
        (flag,) = _flat(copier.copy(call.modules[0], [*call.own, *call.shared], call.outer_constant(given.bodies[0])))
        call.marks["goes_on"] = flag
    graphs = []
    for i, (place, module) in enumerate(zip(given.bodies, call.modules, strict=True)):
        region = _Region(call, place, module)
        if is_loop and i == 0:
            graphs.append(_test(region, tests_write))
            continue
        found = region.run((call.modules[0], given.bodies[0]) if tests_write else None)
        marks = [Tensor(_truth(region.graph, call.roots[0], False))] if "first" in call.marks else []
        marks += found
        results = region.results
        if any(result.root() in region.roots for result in results):
            raise RefusedNode(
                node, "a branch or the body of a loop returns a view of memory that it writes", _TAKE_A_COPY
            )
        handed = [*results[: call.kept], *region.roots, *marks]
        graphs.append(region.finished([*handed, *results[call.kept :]]))
    handed_on = [*call.roots, *call.marks.values()]
    values = list(node.meta["val"])
    values[call.kept : call.kept] = [copier.value(t).meta["val"] for t in handed_on]
    new = call.emit(graphs, handed_on if given.flag is None else call.roots, tuple(values))
    parts = [_part(copier.graph, new, i) for i in range(len(values))]
    for root, part in zip(call.roots, parts[call.kept :], strict=False):
        copier.update(root, part, node)
    return tuple(Tensor(part) for part in (*parts[: call.kept], *parts[call.kept + len(handed_on) :]))


def _test(region: _Region, found_before: bool) -> tuple[fx.Graph, dict[str, torch.Tensor]]:
    """The test of a loop, or of what its body has found already."""
    if found_before:
        region.receive()
        return region.finished([region.marks["goes_on"]])
    region.run()
    return region.finished(region.results)


def _writes_inputs(body: fx.GraphModule) -> bool:
    """Whether a body writes to memory that it is given: each slice does it, not all at once."""
    given = storages([n.meta.get("val") for n in body.graph.find_nodes(op="placeholder")])
    written = [n.args[0] for n in body.graph.nodes if isinstance(n.target, OpOverload) and n.target._schema.is_mutable]
    return any(isinstance(n, fx.Node) and bool(given & storages(n.meta.get("val"))) for n in written)


def _part(graph: fx.Graph, whole: fx.Node, place: int) -> fx.Node:
    part = graph.call_function(operator.getitem, (whole, place))
    part.meta = {**whole.meta, "val": whole.meta["val"][place]}
    return part


def _truth(graph: fx.Graph, like: Tensor, value: bool) -> fx.Node:
    """A bool that a graph knows."""
    with like.node.meta["val"].fake_mode:
        fake = torch.full((), value, dtype=torch.bool)
    new = graph.call_function(aten.full.default, ([], value), {"dtype": torch.bool})
    new.meta = {**like.node.meta, "val": fake}
    return new


def _beside(tensor: Tensor) -> list[fx.Node]:
    """What a view was taken with, beside the memory."""
    if isinstance(tensor, _Start):
        return [n for n in (tensor.first, tensor.carried) if n is not None]
    found: list[fx.Node] = []
    if tensor.parent is not None and tensor.taken_by is not None:
        fx.map_arg((tensor.taken_by.args[1:], tensor.taken_by.kwargs), found.append)
    return found


def _flat(results: Any) -> list[Tensor]:
    return list(results) if isinstance(results, (tuple, list)) else [results]

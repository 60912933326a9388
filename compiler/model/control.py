"""Control flow: the bodies of torch.cond, while_loop, scan and map become regions, functional graphs of their own.

    y = cond(p, true_graph_0, false_graph_0, (x, w))      ->      y = cond(p, region_0, region_1, (x,))

A parameter among the operands is a constant of the region too; all other operands are its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from .computed import computed_inside
from .fake import computing_fake
from .graph import InPlace, ModelGraph, SizeSymbol, TensorSpec, graph_module
from .symbols import size_of

__all__ = [
    "CONTROL",
    "MUTABLE",
    "Operands",
    "batched",
    "is_control",
    "operands_of",
    "region_graph",
    "regions_of",
    "with_computed",
    "with_symbols",
]

#: operators -> how many bodies they have
CONTROL = {"cond": 2, "while_loop": 2, "scan": 1, "map_impl": 1}
#: the meta key of a constant that the model may change: it is an input of regions
MUTABLE = "mycc_mutable"


def is_control(target: object) -> bool:
    """Whether a call is one of these operators."""
    return isinstance(target, torch._ops.HigherOrderOperator) and str(target) in CONTROL


@dataclass(frozen=True)
class Operands:
    """The arguments of such an operator.

    flag: of cond. bodies: one or two. own: operands that every body takes as inputs of its own: what a loop hands on,
    then what it takes slices of (`sliced` of them). shared: operands from outside.
    """

    flag: Any
    bodies: tuple[Any, ...]
    own: tuple[Any, ...]
    sliced: int
    shared: tuple[Any, ...]

    def arguments(self, name: str) -> tuple[Any, ...]:
        """As the operator wants them."""
        kept = len(self.own) - self.sliced
        if name == "cond":
            return (self.flag, *self.bodies, tuple(self.shared))
        if name == "while_loop":
            return (*self.bodies, tuple(self.own), tuple(self.shared))
        if name == "scan":
            return (*self.bodies, list(self.own[:kept]), list(self.own[kept:]), tuple(self.shared))
        return (*self.bodies, list(self.own), list(self.shared))


def operands_of(name: str, args: Sequence[Any]) -> Operands:
    """The arguments of the operator, by role."""
    if name == "cond":
        return Operands(args[0], tuple(args[1:3]), (), 0, tuple(args[3]))
    if name == "while_loop":
        return Operands(None, tuple(args[:2]), tuple(args[2]), 0, tuple(args[3]))
    if name == "scan":
        return Operands(None, (args[0],), (*args[1], *args[2]), len(args[2]), tuple(args[3]))
    return Operands(None, (args[0],), tuple(args[1]), len(args[1]), tuple(args[2]))


def regions_of(graph: ModelGraph) -> list[ModelGraph]:
    """All regions of a graph, those inside of others too."""
    return [inner for region in graph.regions.values() for inner in (region, *regions_of(region))]


def batched(node: fx.Node, given: Operands, body: fx.GraphModule) -> fx.GraphModule | None:
    """The body of a map over all slices at once, which needs no loop; None for what torch.vmap does not take.

    map(lambda row: row.sin() @ w, x)      ->      x.sin() @ w
    """
    if any(n.op == "get_attr" or isinstance(n.target, torch._ops.HigherOrderOperator) for n in body.graph.nodes):
        return None
    operands = (*given.own, *given.shared)
    values = [o.meta["val"] if isinstance(o, fx.Node) else o for o in operands]
    if not all(isinstance(v, torch.Tensor) for v in values):
        return None
    dims = (0,) * len(given.own) + (None,) * len(given.shared)
    try:
        mode = values[0].fake_mode
        with computing_fake(mode):
            whole = make_fx(torch.vmap(body, in_dims=dims), tracing_mode="real")(*values)
    except Exception:  # whatever torch says: a loop does it too
        return None
    for inner in whole.graph.nodes:
        inner.meta = {**node.meta, "val": inner.meta.get("val")}
    return whole if all(n.op != "get_attr" for n in whole.graph.nodes) else None


def region_graph(
    name: str, graph: fx.Graph, constants: Mapping[str, torch.Tensor], handed_on: int, regions: Mapping[str, ModelGraph]
) -> ModelGraph:
    """A copied body as a graph.

    handed_on: how many of its first inputs are what a loop hands on, each followed by the output at the same place.
    """
    used = {
        str(n.target): constants[str(n.target)] for n in graph.nodes if n.op == "get_attr" and n.target in constants
    }
    root = torch.nn.Module()
    for target, tensor in used.items():
        root.register_buffer(target, tensor)
    inner = {
        n: r for n, r in regions.items() if any(node.op == "get_attr" and node.target == n for node in graph.nodes)
    }
    for target, region in inner.items():
        root.add_module(target, region.module)
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    outputs: Any = graph.output_node().args[0]
    return ModelGraph(
        name=name,
        module=graph_module(root, graph, "Region"),
        constants=used,
        inputs=tuple(_spec(n) for n in placeholders),
        outputs=tuple(_spec(n) for n in outputs),
        symbols=(),
        in_tree=None,
        out_tree=None,
        examples=(),
        in_place=tuple(InPlace(i, i) for i in range(handed_on)),
        regions=inner,
    )


def with_symbols(graph: ModelGraph, symbols: Sequence[SizeSymbol]) -> None:
    """Tells regions which of their inputs have the sizes of the whole."""
    for region in graph.regions.values():
        places = {
            size: (i, dim)
            for i, spec in reversed(list(enumerate(region.inputs)))
            for dim, size in enumerate(spec.shape)
        }
        region.symbols = tuple(
            SizeSymbol(s.name, s.symbol, s.min, s.max, *places[s.symbol]) for s in symbols if s.symbol in places
        )
        with_symbols(region, symbols)


def with_computed(graph: ModelGraph, known: set[sympy.Symbol], ranges: Mapping[Any, Any]) -> None:
    """Tells regions which sizes their own operators find. known: those of the whole."""
    for region in graph.regions.values():
        region.computed = computed_inside(list(region.module.graph.nodes), known, ranges)
        with_computed(region, known | {c.symbol for c in region.computed}, ranges)


def _spec(node: fx.Node) -> TensorSpec:
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor):
        return TensorSpec(node.name, torch.int64, ())  # a size
    return TensorSpec(node.name, val.dtype, tuple(size_of(n) for n in val.shape))

"""Less memory for a step: what the forward keeps for the backward under a budget, and the rest computed again.

torch's own min-cut partitioner chooses what is kept. Operators that the backward repeats read their operand through
`mycc::recomputed`, so that no pass takes them for the forward's:

    y = gelu(x);  z = f(y);  dy = g(y)      ->      y = gelu(x);  z = f(y);  y1 = gelu(recomputed(x));  dy = g(y1)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from ..model.operators import own  # noqa: F401  # defines mycc::recomputed
from ..model.partition import partition
from .joint import trace

__all__ = ["Split", "split_joint"]

_TANGENT = "tangents_1"  # by names like this one torch's partitioner knows where the backward begins


@dataclass(frozen=True)
class Split:
    """A loss and its derivatives as two graphs.

    forward: of the primals, to the results, and behind them what is kept. backward: of what is kept and the loss's
    cotangent, to the gradients.
    """

    forward: fx.GraphModule
    backward: fx.GraphModule
    results: int

    def __call__(self, primals: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Results, of which the first is the loss, and its gradients."""
        found = list(fx.Interpreter(self.forward).run(*primals, enable_io_processing=False))
        names = [node.name for node in _outputs(self.forward)]
        known = {**dict(zip(names, found, strict=True)), _TANGENT: torch.ones_like(found[0])}
        given = [known[node.name] for node in self.backward.graph.find_nodes(op="placeholder")]
        gradients = fx.Interpreter(self.backward).run(*given, enable_io_processing=False)
        return found[: self.results], list(gradients)


def split_joint(
    mode: FakeTensorMode,
    joint: Callable[..., tuple[list[Any], list[Any]]],
    primals: Sequence[Any],
    cotangent: Any,
    budget: float,
) -> Split:
    """The two halves of a step under a budget of memory.

    Args:
        joint: of the primals and the loss's cotangent, to results and gradients.
        primals, cotangent: fake values.
        budget: from 0 to 1: the share of the activations that is kept.
    """
    results = 0

    def flat(*values: Any) -> list[Any]:
        nonlocal results
        found, gradients = joint(values[:-1], values[-1])
        results = len(found)
        return [*found, *gradients]

    module = trace(mode, flat, [*primals, cotangent])
    inputs = module.graph.find_nodes(op="placeholder")
    for i, node in enumerate(inputs):
        node.name = node.target = f"primals_{i + 1}" if i + 1 < len(inputs) else _TANGENT
    module.recompile()
    forward, backward = partition(budget, module, (), num_fwd_outputs=results)
    again = {n.name for n in forward.graph.nodes if n.op == "call_function"}
    _keep_apart(backward.graph, [n for n in backward.graph.nodes if n.op == "call_function" and n.name in again])
    backward.recompile()
    return Split(forward, backward, results)


def _outputs(module: fx.GraphModule) -> list[fx.Node]:
    return list(module.graph.output_node().args[0])  # type: ignore[arg-type]


def _keep_apart(graph: fx.Graph, again: Collection[fx.Node]) -> None:
    """Gives operators that are computed again operands of their own."""
    apart = set(again)
    for node in again:
        inputs = node.all_input_nodes
        if not inputs or any(n in apart for n in inputs):
            continue
        source = next((n for n in inputs if not n.name.startswith("primals_")), inputs[0])
        if not isinstance(source.meta.get("val"), torch.Tensor):
            continue
        with graph.inserting_before(node):
            new = graph.call_function(torch.ops.mycc.recomputed.default, (source,))
        new.meta = {**node.meta, "val": source.meta["val"]}
        node.replace_input_with(source, new)

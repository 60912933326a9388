"""Which operators of a graph mycc takes: each kind is tried alone, up to its generated code."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from ...runtime.errors import CompileError
from ..codegen.cuda.generate import generate_device
from ..codegen.generate import generate
from ..faults import reporting_faults
from ..graph.passes import run_graph_passes
from ..lower import lower
from ..model.graph import ModelGraph
from ..model.operators.kept import kept_for
from ..options import CompileOptions
from ..schedule import schedule
from ..weights.collect import collect_weights
from .graph import import_graph
from .parts import numbers_for, operators_of

__all__ = ["reason_against", "refused_operators"]


def refused_operators(module: fx.GraphModule, options: CompileOptions) -> dict[fx.Node, str]:
    """The operators of a graph that mycc does not compile, each with the reason."""
    reasons: dict[Any, str | None] = {}
    found: dict[fx.Node, str] = {}
    for node in operators_of(module):
        if not isinstance(node.meta.get("val"), (torch.Tensor, tuple, list)):
            continue  # arithmetic with sizes
        key = _kind(node)
        if key not in reasons:
            reasons[key] = reason_against(module, node, options)
        reason = reasons[key]
        if reason is not None:
            found[node] = reason
    return found


def _kind(node: fx.Node) -> Any:
    """What is equal for nodes that mycc takes alike."""

    def described(value: Any) -> Any:
        if isinstance(value, fx.Node):
            val = value.meta.get("val")
            if isinstance(val, torch.Tensor):
                return str(val.dtype), tuple(map(str, val.shape)), tuple(map(str, val.stride())), str(val.device)
            return str(value.target) if value.op == "get_attr" else str(val)
        return value

    given: Any = (node.target, node.args, node.kwargs)
    return repr(fx.node.map_aggregate(given, described)), _used(node)


def _used(node: fx.Node) -> tuple[Any, ...]:
    return tuple(sorted({user.args[1] for user in node.users if user.target is operator.getitem}))


def reason_against(module: fx.GraphModule, node: fx.Node, options: CompileOptions) -> str | None:
    """Why mycc does not compile a node alone; None when it does."""
    try:
        with reporting_faults("check"):
            imported = import_graph(_alone(module, node))
            if imported.graph is not None:
                _generate(imported.graph, options)
    except CompileError as error:
        return _short(error)
    return None


def _short(error: CompileError) -> str:
    """The first finding of an error, on one line."""
    text = error.message
    if text.startswith("cannot compile 1 operator") and error.details:
        return "mycc has no lowering for it"
    return text.splitlines()[0]


def _alone(module: fx.GraphModule, node: fx.Node) -> fx.GraphModule:
    """A graph of one operator, with the parts of its result that are read."""
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for source in dict.fromkeys([*node.all_input_nodes, *numbers_for(module, [node, *node.all_input_nodes])]):
        env[source] = graph.node_copy(source) if source.op == "get_attr" else graph.placeholder(source.name)
        env[source].meta = dict(source.meta)
    own = graph.node_copy(node, env.__getitem__)
    parts = [user for user in node.users if user.target is operator.getitem]
    results = [graph.node_copy(part, {**env, node: own}.__getitem__) for part in parts]
    graph.output(tuple(results) if results or isinstance(node.meta["val"], (tuple, list)) else (own,))
    return fx.GraphModule(module, graph)


def _generate(graph: ModelGraph, options: CompileOptions) -> None:
    """The stages between the capture and the build."""
    passed = run_graph_passes(graph, kept=kept_for(options.families), skip=options.graph.skipped_passes)
    target = options.targets[0]
    lowered = lower(passed, None, target.family, options.codegen.winograd)
    if target.family == "cuda":
        device = options.device(target)
        generate_device([passed], [schedule(lowered.program, options.schedule, device)], device)
        return
    scheduled = schedule(lowered.program, options.schedule)
    generate([passed], [scheduled], collect_weights([lowered]), [target])

"""Random numbers of a graph: torch draws them, from its own generators, in eager's order.

What an operator draws mostly depends on the shape of its operand alone. Such numbers are drawn in front of the compiled
code, which takes them as operands:

    y, mask = native_dropout(x, p, True)    ->    mask = draw(native_dropout, shape, p);  y = x * mask * (1 / (1 - p))
    n = rand_like(x)                        ->    n = draw(rand_like, shape)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ..model.random_operators import draws
from .parts import operators_of
from .values import under

__all__ = ["RANDOM", "draw", "draws_first", "is_drawn_outside", "random_operators"]

RANDOM = "its random numbers come from torch's own generators, and depend on values of the graph"
aten = torch.ops.aten
_DROPOUT = aten.native_dropout.default
#: operators that draw as many numbers as their first operand has elements, whatever these are
_OF_A_SHAPE = frozenset({
    _DROPOUT,
    aten.rand_like.default,
    aten.randn_like.default,
    aten.randint_like.default,
    aten.randint_like.low_dtype,
    aten.bernoulli.p,
})  # fmt: skip
#: of torch's checkpoints: a random operator whose generator's state is kept, or put back for the time of a call
_STATES = ("run_and_save_rng_state", "run_with_rng_state")


def draw(
    target: Callable[..., Any], shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: torch.device,
    args: Sequence[Any], kwargs: dict[str, Any],
) -> torch.Tensor:  # fmt: skip
    """What a random operator draws for an operand of this form; of dropout, the mask."""
    result = target(torch.empty_strided(shape, stride, dtype=dtype, device=device), *args, **kwargs)
    return result[1] if target is _DROPOUT else result


def is_drawn_outside(node: fx.Node) -> bool:
    """Whether a random operator depends on no value of the graph."""
    return node.target is draw or (draws(node) and not any(_is_tensor(n) for n in node.all_input_nodes))


def random_operators(module: fx.GraphModule) -> list[fx.Node]:
    """The operators that draw random numbers, themselves or in a body."""
    return [node for node in operators_of(module) if node.target is draw or _draws(module, node)]


def _draws(module: fx.GraphModule, node: fx.Node) -> bool:
    if draws(node) or getattr(node.target, "__name__", "") in _STATES:
        return True
    bodies = [getattr(module, str(n.target), None) for n in node.all_input_nodes if n.op == "get_attr"]
    return any(
        _draws(body, inner) for body in bodies if isinstance(body, fx.GraphModule) for inner in operators_of(body)
    )


def draws_first(module: fx.GraphModule) -> fx.GraphModule:
    """The graph with the numbers that depend on shapes alone as draws of their own; itself where it has none."""
    chosen = [n for n in operators_of(module) if n.target in _OF_A_SHAPE and draws(n)]
    rows = {node: form for node in chosen if (form := _form(module, node)) is not None}
    if not rows:
        return module
    graph, env = fx.Graph(), dict[fx.Node, Any]()
    for node in module.graph.nodes:
        if node.target is operator.getitem and node.args[0] in rows:
            env[node] = env[node.args[0]][node.args[1]]
        elif node in rows:
            env[node] = _drawn(graph, node, env, rows[node])
        else:
            env[node] = graph.node_copy(node, env.__getitem__)
    return fx.GraphModule(module, graph)


def _drawn(graph: fx.Graph, node: fx.Node, env: dict[fx.Node, Any], form: tuple[Any, Any]) -> Any:
    """A random operator's results by their places; of one result, the result."""
    source: Any = node.args[0]
    value = source.meta["val"]
    rest: Any = fx.map_arg((node.args[1:], dict(node.kwargs)), env.__getitem__)
    shape, stride = (fx.map_arg(part, env.__getitem__) for part in form)
    given: Any = (node.target, shape, stride, value.dtype, value.device, *rest)
    drawn = graph.call_function(draw, given)
    if node.target is not _DROPOUT:
        drawn.meta = dict(node.meta)
        return drawn
    result, mask = node.meta["val"]
    drawn.meta = {**node.meta, "val": mask}
    p = float(node.args[1])  # type: ignore[arg-type]
    kept = graph.call_function(aten.mul.Tensor, (env[source], drawn))
    kept.meta = {**node.meta, "val": under(result, lambda: torch.empty_like(result))}
    scaled = graph.call_function(aten.mul.Tensor, (kept, 1.0 / (1.0 - p) if p < 1 else 0.0))
    scaled.meta = {**node.meta, "val": result}
    return scaled, drawn


def _form(module: fx.GraphModule, node: fx.Node) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """Shape and strides of a random operator's operand, whole numbers or arguments of the graph; None where they are
    formulas, or the operand is empty: torch's dropout then gives it back."""
    value = node.args[0].meta["val"]  # type: ignore[union-attr]
    if any(isinstance(n, int) and n == 0 for n in value.shape):
        return None
    numbers = {
        n.meta["val"].node.expr: n
        for n in module.graph.find_nodes(op="placeholder")
        if isinstance(n.meta.get("val"), torch.SymInt)
    }
    found = [n if isinstance(n, int) else numbers.get(n.node.expr) for n in (*value.shape, *value.stride())]
    if any(n is None for n in found):
        return None
    return tuple(found[: value.dim()]), tuple(found[value.dim() :])


def _is_tensor(node: fx.Node) -> bool:
    return not isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))

"""torch.nn.attention.flex_attention in plain operators.

    s = (q @ k^T) * scale                                   [B, H, M, N], float32 at least
    s = where(mask_mod(b, h, m, n), score_mod(s, b, h, m, n), -inf)
    y = softmax(s) @ v                                      rows without a key are 0

torch.export leaves score_mod and mask_mod as graphs of scalars. Where they are elementwise, and look up whole elements
alone, they are called once with indices that broadcast: b is [B, 1, 1, 1], n is [N]. So what is added to the scores or
masked keeps its small shape, and the attention pass recognises the whole. Other graphs are mapped over the indices by
torch.vmap, as torch's own eager form does. The block mask itself is not read: mask_mod says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from .softmax_attention import Mod, softmax_attention
from .traced import traced

__all__ = ["FLEX_ATTENTION", "VMAP", "operands_of", "plain_attention", "unread_nodes"]

FLEX_ATTENTION = "flex_attention"
#: where the functions are that torch.vmap leaves in a graph
VMAP = "torch._functorch.predispatch"
_LOOKUP = torch.ops.aten.index.Tensor
#: operators that make a scalar of nothing, and elementwise ones that torch does not tag as such
_UNTAGGED = {
    "full", "new_ones", "new_full", "new_zeros", "ones", "zeros", "scalar_tensor", "where", "to", "_to_copy",
    "__and__", "__or__", "__xor__",
}  # fmt: skip


def operands_of(node: fx.Node) -> list[fx.Node]:
    """The nodes whose values a call reads, in order: not the tensors of its block mask."""
    found: dict[fx.Node, None] = {}
    fx.node.map_arg(_parts(node), lambda n: found.setdefault(n))
    return list(found)


def _parts(node: fx.Node) -> tuple[Any, ...]:
    """Queries, keys, values, the two graphs, the scale, and the operands of each graph."""
    args: tuple[Any, ...] = node.args
    return (*args[:4], args[4][-1], args[5], *args[7:])


def unread_nodes(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that make block masks and nothing else, which torch.export leaves as calls of a vmapped function."""
    calls = [n for n in graph.nodes if n.op == "call_function" and str(n.target) == FLEX_ATTENTION]
    read = {call: set(operands_of(call)) for call in calls}
    unread: set[fx.Node] = set()
    if not calls:
        return unread
    above = [n for call in calls for n in call.all_input_nodes if n not in read[call]]
    above += [n for n in graph.nodes if not n.users and getattr(n.target, "__module__", "") == VMAP]
    while above:
        node = above.pop()
        if node not in unread and node.op in ("call_function", "get_attr"):
            unread.add(node)
            above += [*node.all_input_nodes, *(u for u in node.users if not u.users or _writes_to(u, node))]
    while outside := {n for n in unread if not all(_is_unread(n, u, unread, read) for u in n.users)}:
        unread -= outside
    return unread


def _is_unread(node: fx.Node, user: fx.Node, unread: set[fx.Node], read: Mapping[fx.Node, set[fx.Node]]) -> bool:
    return user in unread or (user in read and node not in read[user])


def _writes_to(user: fx.Node, node: fx.Node) -> bool:
    target = user.target
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable and user.args[0] is node


def plain_attention(node: fx.Node, bodies: Mapping[fx.Node, fx.GraphModule]) -> fx.GraphModule:
    """The graph of a call of the operator, for its operands that are no graphs, in order.

    bodies: the graphs of score_mod and mask_mod by the nodes that name them.
    """
    places = [n for n in operands_of(node) if n not in bodies]
    values = [n.meta["val"] for n in places]
    statistics = any(u.args[1] != 0 and u.users for u in node.users)
    plain = {name: _with_plain_lookups(body) for name, body in bodies.items()}

    parts = _parts(node)

    def body(*given: Any) -> Any:
        own = {**dict(zip(places, given, strict=True)), **plain}
        query, key, value, score, mask, scale, score_operands, mask_operands = fx.node.map_arg(parts, own.__getitem__)
        score_mod = _elementwise_or_mapped(score, score_operands, scores=True)
        mask_mod = None if _is_true(mask) else _elementwise_or_mapped(mask, mask_operands)
        return softmax_attention(query, key, value, score_mod, mask_mod, scale, statistics)

    # what torch.vmap maps is traced operator by operator
    return traced(node, body, values, composite=all(map(_is_elementwise, plain.values())))


def _is_true(body: fx.GraphModule) -> bool:
    """Whether a mask is one that lets every key through."""
    (output,) = body.graph.find_nodes(op="output")
    value = output.args[0]
    return isinstance(value, fx.Node) and _name(value) in ("ones", "new_ones", "full", "new_full") and _holds_one(value)


def _holds_one(node: fx.Node) -> bool:
    return _name(node) in ("ones", "new_ones") or node.args[-1] in (True, 1)


def _with_plain_lookups(body: fx.GraphModule) -> fx.GraphModule:
    """The body with `table[h][i]` as one lookup of an element instead of calls of a function that indexes, and numbers
    that it holds as such.

    r = flat_apply(.., ModIndex, table, h);  y = flat_apply(.., ModIndex, r, i)      ->      y = index(table, [h, i])
    """
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in body.graph.nodes:
        if _indexed(node):
            source, indices = made[node.args[3]], [made[i] for i in node.args[4:]]
            if source.target is _LOOKUP:
                source, indices = source.args[0], [*source.args[1], *indices]  # type: ignore[misc,assignment]
            new = graph.call_function(_LOOKUP, (source, indices))
            value = source.meta.get("val")
            if isinstance(value, Tensor) and value.dim() >= len(indices):
                new.meta["val"] = torch.empty((1,) * (value.dim() - len(indices)), dtype=value.dtype, device="meta")
            made[node] = new
        elif (held := _number(body, node, graph)) is not None:
            made[node] = held
        elif _name(node) in ("lift_fresh_copy", "detach_"):
            made[node] = made[node.args[0]]
        else:
            made[node] = graph.node_copy(node, made.__getitem__)
    graph.eliminate_dead_code()
    return fx.GraphModule(body, graph)


def _number(body: fx.GraphModule, node: fx.Node, graph: fx.Graph) -> fx.Node | None:
    """A number that a body holds as a tensor of no dimensions, as an operator; None of other nodes."""
    value = getattr(body, str(node.target), None) if node.op == "get_attr" else None
    if not isinstance(value, Tensor) or value.dim():
        return None
    new = graph.call_function(torch.ops.aten.full.default, ([], value.item()), {"dtype": value.dtype})
    new.meta["val"] = torch.empty((), dtype=value.dtype, device="meta")
    return new


def _indexed(node: fx.Node) -> bool:
    """Whether a node calls the function that torch puts in place of indexing in score_mod."""
    return str(node.target) == "flat_apply" and str(node.args[2]).endswith(".ModIndex")


def _elementwise_or_mapped(body: fx.GraphModule, operands: tuple[Any, ...], scores: bool = False) -> Mod:
    if _is_elementwise(body):
        return lambda *at: body(*at, *operands)
    return _mapped(body, operands, scores)


def _mapped(body: fx.GraphModule, operands: tuple[Any, ...], scores: bool) -> Mod:
    """The body mapped over flat indices, as torch.vmap does: the last index first."""
    mapped: Callable[..., Any] = body
    fixed = (None,) * len(operands)
    first = (0,) if scores else ()
    for axes in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        mapped = torch.vmap(mapped, in_dims=(*first, *axes, *fixed))
    return lambda *at: mapped(*at[: len(first)], *(i.flatten() for i in at[len(first) :]), *operands)


def _is_elementwise(body: fx.GraphModule) -> bool:
    return all(_is_elementwise_call(node) for node in body.graph.nodes if node.op == "call_function")


def _is_elementwise_call(node: fx.Node) -> bool:
    """Whether a node of scalars means the same of tensors that broadcast."""
    value = node.meta.get("val")
    if not isinstance(node.target, torch._ops.OpOverload) or not isinstance(value, Tensor) or value.dim():
        return False
    if node.target is _LOOKUP:
        return all(i is not None for i in node.args[1])  # type: ignore[union-attr]
    return torch.Tag.pointwise in node.target.tags or _name(node) in _UNTAGGED


def _name(node: fx.Node) -> str:
    target = node.target
    return target._schema.name.partition("::")[2] if isinstance(target, torch._ops.OpOverload) else ""

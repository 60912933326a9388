"""Pass: subgraphs of constants, computed now."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from ...model.computed import is_definer
from ...model.operators.triton_kernels import NAME as TRITON_KERNEL
from ...model.origins import Fixed, Origin, made, operand
from ..node import Node
from ..patterns import is_op, is_tensor
from ..work import Work

#: a folded constant may be this much bigger than all that it is made from, in bytes
_GROWTH = 1 << 20

_CREATION = (
    "full", "zeros", "ones", "arange", "scalar_tensor", "full_like", "zeros_like", "ones_like", "new_full",
    "new_zeros", "new_ones", "eye", "empty", "empty_like", "new_empty",
)  # fmt: skip
_VIEWS = (
    "reshape", "permute", "expand", "slice", "select", "unsqueeze", "squeeze", "split", "split_with_sizes", "chunk",
    "unbind", "t", "transpose", "view", "narrow", "repeat",
)  # fmt: skip
#: cheap enough to be generated where it is read instead of being stored
_GENERATED = (
    "add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or", "bitwise_not",
    "logical_and", "logical_or", "logical_not", "where", "tril", "triu", "_to_copy", "neg", "rsub",
    "abs",
)  # fmt: skip


#: operators whose weight, their second argument, has to be a constant to be packed when the package is made
_CONVOLUTIONS = (
    "conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
)  # fmt: skip
#: operators that read the memory of their first argument
_STRIDED = ("as_strided", "as_strided_copy", "as_strided_scatter")
#: operators that this machine may not run
_ELSEWHERE = (TRITON_KERNEL, "mycc.refused.default")


def fold_constants(work: Work) -> dict[str, int]:
    """c = cos(mul(positions, frequencies))     ->     c = constant                   (torch computes it)
       mul(x, constant of one element)          ->     mul(x, 0.125)

       conv2d(x, view(constant))    ->     conv2d(x, constant)

    Only the last node of a constant subgraph is stored, and only when it is not much bigger than what it comes from;
    views of constants stay views where they are no weight of a convolution, and masks that come from indices alone are
    left to be generated. Sizes that are symbols are no constants, and neither is what has a size that the run finds.
    Needs NORMAL; establishes FOLDED.
    """
    constant = _constant_nodes(work)
    known: dict[Any, Any] = {}
    count = 0
    for node in work.nodes():
        if node not in constant or node.op != "call_function" or not is_tensor(node):
            continue
        if not (_is_weight(node) or _is_inner(node, constant)):
            continue
        _store(work, node, _value(work, node, known))
        count += 1
    scalars = sum(_scalar_operands(work, node) for node in work.graph.nodes)
    found = {"constants folded": count, "constants as numbers": scalars}
    return {k: v for k, v in found.items() if v}


def _store(work: Work, node: Node, tensor: torch.Tensor) -> None:
    """Puts a constant with this value in the place of a node."""
    folded = work.constant(f"folded_{node.name}", tensor.detach(), like=node, origin=_origin(work, node, {}))
    folded.meta[INTEGERS] = _integers(work, node)
    work.replace(node, folded)


#: operators that round floats to integers
_ROUNDS = ("quantized_decomposed.quantize_per_", "torchao.quantize_affine")


def fold_rounded_weights(work: Work) -> dict[str, int]:
    """dequantize(quantize(w, s), s)     ->     dequantize(constant, s)             (torch rounds the constant w)

    Quantisers leave weights like that, which the recognisers of quantised layers then find as integers. Needs NORMAL.
    """
    count = 0
    for node in work.nodes():
        if str(node.target).startswith(_ROUNDS) and (tensor := constant_value(work, node)) is not None:
            _store(work, node, tensor)
            count += 1
    return {"weights rounded": count} if count else {}


#: metadata of a folded constant: the type of the quantised weight that it was made from; None: there is none
INTEGERS = "integers"
#: types of quantised weights, and how few elements no layer of any size has
NARROW = (torch.int8, torch.uint8, torch.int32)
SMALL = 1 << 12


def _integers(work: Work, node: Node) -> torch.dtype | None:
    if not node.meta["val"].dtype.is_floating_point:
        return None
    weights = (work.constants[str(n.target)] for n in _made_from(node) if n.op == "get_attr")
    return next((w.dtype for w in weights if w.dtype in NARROW and w.numel() > SMALL), None)


def _constant_nodes(work: Work) -> set[Node]:
    """Nodes that depend on constants and numbers only."""
    constant: set[Node] = set()
    for node in work.graph.nodes:
        if _runs_here(node) and all(n in constant for n in node.all_input_nodes):
            constant.add(node)
    return constant


def _runs_here(node: Node) -> bool:
    """Whether a node is a constant, or computes the same from the same operands each time, on any machine."""
    if node.op != "call_function":
        return node.op == "get_attr"
    if not isinstance(node.target, torch._ops.OpOverload):
        return bool(node.target.__name__ == "getitem")
    random = torch.Tag.nondeterministic_seeded in node.target.tags
    return not random and str(node.target) not in _ELSEWHERE and not is_definer(node)


def constant_value(work: Work, node: Node) -> torch.Tensor | None:
    """The tensor that a node computes from constants and numbers alone; None for any other node."""
    if not all(map(_runs_here, _made_from(node))):
        return None
    found = _value(work, node, {})
    return found.detach() if isinstance(found, torch.Tensor) else None


def _is_weight(node: Node) -> bool:
    """Whether a convolution is to have the node as a constant that can be packed: views and copies of one, too."""
    return any(is_op(u, *_CONVOLUTIONS) and u.args[1] is node for u in node.users) and _is_small(node)


def _is_inner(node: Node, constant: set[Node]) -> bool:
    """Whether the node is the last one of a constant subgraph that computes."""
    return not is_op(node, *_CREATION, *_VIEWS) and _is_frontier(node, constant) and _is_worth_it(node)


def _is_frontier(node: Node, constant: set[Node]) -> bool:
    through = [u for u in node.users if u in constant]
    outside = len(through) < len(node.users)
    return outside or any(is_op(u, *_VIEWS) for u in through)


def _is_worth_it(node: Node) -> bool:
    """Not much bigger than what it is made from, and more than arithmetic on indices."""
    return _is_small(node) and (_bytes(node) <= 64 or not all(_is_generated(n) for n in _made_from(node)))


def _is_generated(node: Node) -> bool:
    return node.op != "get_attr" and (not is_tensor(node) or is_op(node, *_CREATION, *_VIEWS, *_GENERATED))


def _is_small(node: Node) -> bool:
    """Whether a folded node is not much bigger than the constants that it is made from."""
    return _bytes(node) <= _GROWTH + sum(_bytes(n) for n in _made_from(node) if n.op == "get_attr")


def _made_from(node: Node) -> set[Node]:
    """The node and all that it depends on."""
    seen, stack = {node}, [node]
    while stack:
        new = [s for s in stack.pop().all_input_nodes if s not in seen]
        seen.update(new)
        stack.extend(new)
    return seen


def _bytes(node: Node) -> int:
    val = node.meta["val"]
    return int(val.numel()) * val.element_size()


def _value(work: Work, node: Node, known: dict[Any, Any]) -> Any:
    """The value of a constant node; inner values are kept while the pass runs."""
    pending = [node]
    while pending:
        n = pending[-1]
        missing = [s for s in n.all_input_nodes if s not in known]
        if missing:
            pending.extend(missing)
            continue
        pending.pop()
        if n not in known:
            known[n] = _compute(work, n, known)
    return known[node]


def _compute(work: Work, node: Node, known: dict[Any, Any]) -> Any:
    if node.op == "get_attr":
        return work.constants[str(node.target)]
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: known[n])
    if is_op(node, *_STRIDED):  # the graph means dense memory, and an inner value may be an expanded number
        args = (args[0].clone(memory_format=torch.contiguous_format), *args[1:])
    with torch.no_grad():
        return node.target(*args, **kwargs)


def _origin(work: Work, node: Node, found: dict[Any, Any]) -> Origin | None:
    """Where the value of a constant node comes from."""
    for n in [*reversed(_in_order(node)), node]:
        if n.op == "get_attr":
            found[n] = operand(work.origins.get(str(n.target)), work.constants[str(n.target)])
            continue
        if isinstance(n.target, torch._ops.OpOverload):
            args, kwargs = torch.fx.node.map_arg((n.args, n.kwargs), lambda m: found[m])
            found[n] = operand(made(str(n.target), args, kwargs))
        else:  # an item of several results
            own = found[n.args[0]]
            found[n] = own if isinstance(own, Fixed) else operand(None)
    return None if found[node] == operand(None) else found[node]


def _in_order(node: Node) -> list[Node]:
    """All that the node depends on, those last that come first in the graph."""
    order = sorted(_made_from(node) - {node}, key=lambda n: n._sort_key)
    return order[::-1]


def _scalar_operands(work: Work, node: Node) -> bool:
    """A 0-dimensional constant beside a tensor of its kind does what a number does."""
    if not is_op(node, "add", "sub", "mul", "div") or len(node.args) < 2:
        return False
    x, c = node.args[0], node.args[1]
    if not is_tensor(x) or not isinstance(c, Node) or c.op != "get_attr":
        return False
    value = work.constants[str(c.target)]
    if value.dim() != 0 or x.meta["val"].dim() == 0 or value.dtype != x.meta["val"].dtype:
        return False
    work.decided([str(c.target)])
    node.args = (x, value.item(), *node.args[2:])
    return True

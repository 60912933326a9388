"""Pass: one spelling per operation, so that later passes match fewer forms."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import sympy
import torch

from ...model.assertions import ASSERTED, ASSERTIONS, assertions_of, settle
from ..node import Node
from ..patterns import (
    dtype,
    is_op,
    is_tensor,
    op,
    rank,
    shape,
)
from ..sizes import expr
from ..work import UnknownSize, Work, aten

#: keyword arguments that say nothing about a result's values on the one device of a package
_PLACEMENT = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "copy", "requires_grad")
_CASTS = ("to", "_to_copy", "type_as", "float", "double", "half")
_IDENTITIES = (
    "alias", "detach", "clone", "contiguous", "lift_fresh", "lift_fresh_copy", "lift", "positive", "expand_copy",
    "view_copy", "resolve_conj", "resolve_neg", "detach_copy", "alias_copy",
)  # fmt: skip
_RESHAPES = ("view", "_unsafe_view", "view_copy", "flatten", "unflatten", "view_as", "reshape_as", "_reshape_copy")
_DROPOUTS = ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
_ALIASES = {"concat": aten.cat.default, "concatenate": aten.cat.default, "__and__": aten.bitwise_and.Tensor,
            "__or__": aten.bitwise_or.Tensor, "__xor__": aten.bitwise_xor.Tensor}  # fmt: skip

_RECURRENT = {f"mycc.{name}.default": getattr(aten, name).input for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")}


def normalize(work: Work) -> dict[str, int]:
    """to(x, f32, device=cpu), x already f32   ->   x
       to(x, f64, False, True)                 ->   _to_copy(x, dtype=f64)
       clone(x), dropout(x, 0.1, False)        ->   x
       flatten(x, 1), view(x, [-1, s])         ->   reshape(x, sizes)
       sym_size(h, 1)                          ->   sym_size(input, 1), arithmetic on it, or a number
       concat, __and__, mul(x, y=2)            ->   cat, bitwise_and, mul(x, 2)

    Needs nothing; establishes NORMAL: no identities, one reshape operator, sizes computed from the inputs alone,
    arguments by position, no keyword arguments about devices or memory formats, no assertions.
    """
    count = 0
    for node in work.nodes():
        if node.op != "call_function":
            continue
        if isinstance(node.target, torch._ops.OpOverload):
            _position_arguments(node)
        for rule in _RULES:
            if rule(work, node):
                count += 1
                break
    return {"normalised": count} if count else {}


def _position_arguments(node: Node) -> None:
    """Moves keyword arguments to their positions and drops those that only say where a tensor lies."""
    kwargs = {k: v for k, v in node.kwargs.items() if k not in _PLACEMENT}
    args = list(node.args)
    for schema in node.target._schema.arguments[len(args) :]:
        if schema.kwarg_only or not kwargs:
            break
        if schema.name in kwargs:
            args.append(kwargs.pop(schema.name))
        elif schema.has_default_value():
            args.append(schema.default_value)
        else:
            break
    if len(args) != len(node.args) or len(kwargs) != len(node.kwargs):
        kwargs = {k: v for k, v in kwargs.items() if v is not None}
        node.args, node.kwargs = tuple(args), kwargs


def _size(work: Work, node: Node) -> bool:
    """A size read anywhere becomes one computed from the inputs' sizes."""
    val = node.meta.get("val")
    if isinstance(val, torch.SymInt):
        formula = expr(val)
    elif isinstance(val, int) and not isinstance(val, bool) and is_op(node, "sym_size"):
        formula = val
    else:
        return False
    if node.meta.get("mycc_size") or node.meta.get(ASSERTED):
        return False
    try:
        replacement = work.size(formula)
    except UnknownSize:
        return False
    if replacement is node:
        return False
    _substitute(work, node, replacement)
    return True


def _substitute(work: Work, node: Node, value: Any) -> None:
    """Replaces a node by another or by a number in the arguments of its users."""
    if isinstance(value, Node):
        work.replace(node, value)
        return
    for user in list(node.users):
        user.args = torch.fx.node.map_arg(user.args, lambda n: value if n is node else n)
        user.kwargs = torch.fx.node.map_arg(user.kwargs, lambda n: value if n is node else n)
    work.prune(node)


def _assertion(work: Work, node: Node) -> bool:
    """What a definition asserts: of shapes and dtypes nothing is left to test, all else is tested where it stands."""
    if node.target not in ASSERTIONS or node.users:
        return False
    with work.graph.inserting_before(node):
        found = assertions_of(work.graph, node, node.args, of_inputs=True)
    settle(found, ())
    work.graph.erase_node(node)
    return True


def _recurrent(work: Work, node: Node) -> bool:
    """A layer with a dynamic number of steps, as torch calls it; see capture/recurrent.py."""
    name = _RECURRENT.get(str(node.target))
    if name is None:
        return False
    node.target = name
    return True


def _identity(work: Work, node: Node) -> bool:
    """Identities of values; where memory is shared does not matter in a functional graph."""
    name = op(node)
    same = name in _IDENTITIES or (name in _DROPOUTS and not (node.args[2] and node.args[1]))
    source = node.args[0] if node.args else None
    if not same or not isinstance(source, Node) or dtype(source) != dtype(node):
        return False
    if [expr(n) for n in shape(source)] != [expr(n) for n in shape(node)]:
        return False
    work.replace(node, source)
    return True


def _dropout_with_mask(work: Work, node: Node) -> bool:
    """native_dropout(x, p, False)[0] -> x"""
    if not is_op(node, "native_dropout") or node.args[2]:
        return False
    for user in list(node.users):
        if user.target is operator.getitem and user.args[1] == 0:
            work.replace(user, node.args[0])
    return True


def _cast(work: Work, node: Node) -> bool:
    if op(node) not in _CASTS or not node.args or not is_tensor(node.args[0]):
        return False
    source: Node = node.args[0]
    if dtype(source) == dtype(node):
        work.replace(node, source)
        return True
    if node.target is aten._to_copy.default and dict(node.kwargs) == {"dtype": dtype(node)} and len(node.args) == 1:
        return False
    node.target, node.args, node.kwargs = aten._to_copy.default, (source,), {"dtype": dtype(node)}
    return True


def _reshape(work: Work, node: Node) -> bool:
    if op(node) not in _RESHAPES or dtype(node.args[0]) != dtype(node):
        return False
    if node.target is aten.view.dtype:
        return False
    sizes = _reshape_sizes(work, node)
    node.target, node.args, node.kwargs = aten.reshape.default, (node.args[0], sizes), {}
    return True


def _reshape_sizes(work: Work, node: Node) -> list[Any]:
    """Explicit sizes; -1 for one that cannot be computed from the inputs."""
    sizes: list[Any] = []
    for size in shape(node):
        try:
            sizes.append(work.size(size))
        except UnknownSize:
            sizes.append(-1)
    return sizes if sizes.count(-1) <= 1 else list(node.args[1])


def _explicit_reshape(work: Work, node: Node) -> bool:
    """Spells -1 out, so that equal reshapes are equal nodes."""
    if node.target is not aten.reshape.default or -1 not in node.args[1]:
        return False
    sizes = _reshape_sizes(work, node)
    if -1 in sizes:
        return False
    node.args = (node.args[0], sizes)
    return True


def _transposition(work: Work, node: Node) -> bool:
    """t, mT, transpose(x, -2, -1), permute(x, (0, -1, 1)) as permute with counted dimensions."""
    name = op(node)
    if name not in ("t", "transpose", "permute", "numpy_T", "mT", "swapaxes", "swapdims", "movedim", "adjoint"):
        return False
    dims = _order(node, rank(node))
    if dims is None or (node.target is aten.permute.default and list(node.args[1]) == dims):
        return False
    node.target, node.args, node.kwargs = aten.permute.default, (node.args[0], dims), {}
    return True


def _order(node: Node, n: int) -> list[int] | None:
    name = op(node)
    order = list(range(n))
    if name == "permute":
        return [d % n for d in node.args[1]]
    if name in ("t", "numpy_T"):
        return order[::-1]
    if name in ("mT", "adjoint"):
        return [*order[:-2], n - 1, n - 2]
    if name in ("transpose", "swapaxes", "swapdims") and n:
        a, b = node.args[1] % n, node.args[2] % n
        order[a], order[b] = order[b], order[a]
        return order
    if name == "transpose":
        return order
    return None


def _alias(work: Work, node: Node) -> bool:
    target = _ALIASES.get(op(node))
    if target is None or not all(is_tensor(a) for a in node.all_input_nodes):
        return False
    if target._overloadname == "Tensor" and not all(is_tensor(a) for a in node.args):
        return False
    node.target = target
    return True


def _scalar_overload(work: Work, node: Node) -> bool:
    """add.Scalar(x, 2) -> add.Tensor(x, 2): lowering and matching know one of them."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten" or target._overloadname != "Scalar":
        return False
    if target._opname not in ("add", "sub", "mul", "div"):
        return False
    node.target = getattr(aten, target._opname).Tensor
    return True


def _expanded(work: Work, node: Node) -> bool:
    """expand(x, [-1, n]), expand_as(x, y), broadcast_to -> expand(x, sizes)"""
    name = op(node)
    if name not in ("expand", "expand_as", "broadcast_to"):
        return False
    try:
        sizes = work.sizes(shape(node))
    except UnknownSize:
        return False
    wanted = (node.args[0], sizes)
    if node.target is aten.expand.default and list(node.args[1]) == sizes:
        return False
    node.target, node.args, node.kwargs = aten.expand.default, wanted, {}
    return True


def _size_value(work: Work, node: Node) -> bool:
    """sym_numel and other size functions whose value is a plain number."""
    val = node.meta.get("val")
    if is_tensor(node) or not isinstance(val, int) or isinstance(val, (bool, sympy.Basic)):
        return False
    if node.target not in (aten.sym_numel.default, aten.sym_stride.int):
        return False
    _substitute(work, node, val)
    return True


def _convolution_padding(work: Work, node: Node) -> bool:
    """conv2d(.., "same" or "valid") with the amounts as numbers, where they are equal on both sides."""
    if node.target not in (aten.conv1d.padding, aten.conv2d.padding):
        return False
    spatial = rank(node.args[1]) - 2
    args: list[Any] = list(node.args)
    args += [None, [1] * spatial, "valid", [1] * spatial][len(args) - 2 :]
    reach = [d * (int(k) - 1) for d, k in zip(_pair(args[5], spatial), shape(node.args[1])[2:], strict=True)]
    if args[4] == "same" and any(n % 2 for n in reach):
        return False
    args[4] = [n // 2 for n in reach] if args[4] == "same" else [0] * spatial
    node.target = aten.conv1d.default if spatial == 1 else aten.conv2d.default
    node.args = tuple(args)
    return True


def _pair(value: Any, count: int) -> list[int]:
    return list(value) * (count if len(value) == 1 else 1)


_RULES: tuple[Callable[[Work, Node], bool], ...] = (
    _size, _size_value, _assertion, _identity, _dropout_with_mask, _cast, _reshape, _explicit_reshape, _transposition,
    _alias, _recurrent, _scalar_overload, _expanded, _convolution_padding,
)  # fmt: skip

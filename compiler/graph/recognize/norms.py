"""Pass: layer norm and RMS norm where a model spells them out."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from ..node import Node
from ..patterns import (
    arg,
    between,
    dtype,
    is_op,
    is_tensor,
    number,
    operands,
    plus_number,
    product,
    rank,
    shape,
)
from ..sizes import expr, same_shape
from ..work import Work, aten


@dataclass(frozen=True)
class Norm:
    """A recognised normalisation of x over its last `inner` dimensions, not yet scaled."""

    x: Node
    inner: int
    eps: float
    centred: bool


def recognize_norms(work: Work) -> dict[str, int]:
    """mul(w, mul(x, rsqrt(mean(x ** 2, -1) + eps)))                ->   rms_norm(x, [n], w, eps)
       m = mean(x, -1); d = x - m
       d / sqrt(mean(d ** 2, -1) + eps) * w + b                     ->   layer_norm(x, [n], w, b, eps)
       (x - mean(x, -1)) * rsqrt(var(x, -1, correction=0) + eps)    ->   layer_norm(x, [n], None, None, eps)

    eps must be inside the root. The weight and the bias are taken in when they have the normalised shape and the
    same dtype, and nothing else reads the value before. Needs NORMAL; establishes NORMS.
    """
    layer = rms = 0
    for node in work.nodes():
        if not is_op(node, "mul", "div") or not dtype(node).is_floating_point:
            continue
        norm = _norm(node)
        if norm is None:
            continue
        _replace(work, node, norm)
        layer, rms = layer + norm.centred, rms + (not norm.centred)
    counts = {"layer norms recognised": layer, "rms norms recognised": rms}
    return {k: v for k, v in counts.items() if v}


def _norm(node: Node) -> Norm | None:
    """value * rsqrt(moment + eps), or value / sqrt(moment + eps)."""
    pairs: list[tuple[Any, Any]] = (
        [tuple(node.args)] if is_op(node, "div") else [tuple(node.args), tuple(node.args[::-1])]
    )
    root = ("sqrt",) if is_op(node, "div") else ("rsqrt",)
    for value, scale in pairs:
        if not is_tensor(value) or not is_tensor(scale):
            continue
        radicand = _radicand(scale, root[0])
        shifted = plus_number(radicand)
        if shifted is None or shifted.offset < 0 or dtype(value) != dtype(node):
            continue
        found = _second_moment(value, shifted.term)
        if found is not None:
            return Norm(found.x, found.inner, shifted.offset, found.centred)
    return None


def _radicand(scale: Node, root: str) -> Any:
    """y of rsqrt(y), 1 / sqrt(y), pow(y, -0.5); of sqrt(y), pow(y, 0.5)."""
    if is_op(scale, root):
        return scale.args[0]
    if is_op(scale, "pow") and number(scale.args[1]) == (-0.5 if root == "rsqrt" else 0.5):
        return scale.args[0]
    if root == "rsqrt" and is_op(scale, "reciprocal") and is_op(scale.args[0], "sqrt"):
        return scale.args[0].args[0]
    return None


def _second_moment(value: Node, moment: Node) -> Norm | None:
    """mean(value ** 2) over the last dimensions, or the variance of what value is centred from."""
    source = _centred(value)
    if is_op(moment, "mean"):
        inner = _inner(moment, value)
        squared = product(moment.args[0])
        if inner and squared.scalar == 1.0 and squared.factors == (value, value):
            if source is not None and source[1] == inner:
                return Norm(source[0], inner, 0.0, True)
            return Norm(value, inner, 0.0, False)
        if inner and source is not None and source[1] == inner and _is_deviation(squared.factors, source[0], inner):
            return Norm(source[0], inner, 0.0, True)
    variance = _statistic(moment, "var", 0)
    if variance is None or source is None or not _is_biased(variance):
        return None
    x, inner = source
    return Norm(x, inner, 0.0, True) if variance.args[0] is x and _inner(variance, x) == inner else None


def _statistic(node: Any, name: str, item: int) -> Node | None:
    """The reduction `name`, alone or as an item of var_mean."""
    if is_op(node, name):
        return node
    is_item = isinstance(node, Node) and node.target is operator.getitem and node.args[1] == item
    return node.args[0] if is_item and is_op(node.args[0], "var_mean") else None


def _is_deviation(factors: tuple[Node, ...], x: Node, inner: int) -> bool:
    """Both factors are x - mean(x), spelled a second time."""
    return len(factors) == 2 and all(_centred(f) == (x, inner) for f in factors)


def _centred(value: Node) -> tuple[Node, int] | None:
    """x and the number of dimensions, when value is x - mean(x over its last dimensions)."""
    pair = operands(value, "sub")
    mean = None if pair is None else _statistic(pair[1], "mean", 1)
    if pair is None or mean is None or not is_tensor(pair[0]):
        return None
    x = pair[0]
    inner = _inner(mean, x)
    return (x, inner) if inner and mean.args[0] is x else None


def _inner(reduction: Node, x: Node) -> int:
    """How many of the last dimensions a reduction of x runs over, 0 when it is no such reduction or drops them."""
    dims: Any = arg(reduction, 1, "dim")
    keepdim = bool(arg(reduction, 2 if is_op(reduction, "mean") else 3, "keepdim", False))
    if dims is None or not keepdim or not isinstance(dims, (list, tuple, int)) or isinstance(dims, bool):
        return 0
    n = rank(x)
    found = sorted(d % n for d in ([dims] if isinstance(dims, int) else dims))
    return len(found) if found == list(range(n - len(found), n)) else 0


def _is_biased(var: Node) -> bool:
    """Whether the variance divides by n."""
    if var.target in (aten.var.correction, aten.var_mean.correction):
        return number(var.kwargs.get("correction", 1)) == 0.0
    return var.target in (aten.var.dim, aten.var_mean.dim) and arg(var, 2, "unbiased", True) is False


def _replace(work: Work, node: Node, norm: Norm) -> None:
    sizes = [expr(n) for n in shape(norm.x)[-norm.inner :]]
    if not all(isinstance(n, int) for n in sizes):
        return
    weight, scaled = _affine(node, "mul", sizes)
    bias, last = _affine(scaled, "add", sizes) if norm.centred else (None, scaled)
    if norm.centred:
        args: tuple[Any, ...] = (norm.x, sizes, weight, bias, norm.eps)
        target: Any = aten.layer_norm.default
    else:
        args, target = (norm.x, sizes, weight, norm.eps), aten.rms_norm.default
    covers = [*between(node, norm.x), scaled, last]
    new = work.call(target, args, like=last, val=last.meta["val"], covers=covers)
    work.replace(last, new)


def _affine(node: Node, name: str, sizes: list[Any]) -> tuple[Node | None, Node]:
    """The weight or bias that the only reader of a node applies, and that reader; else (None, node)."""
    if len(node.users) != 1:
        return None, node
    (user,) = node.users
    pair = operands(user, name)
    if pair is None or pair[0] is pair[1]:
        return None, node
    other = pair[1] if pair[0] is node else pair[0]
    if not is_tensor(other) or not same_shape(shape(other), sizes) or dtype(other) != dtype(node):
        return None, node
    return (other, user) if dtype(user) == dtype(node) else (None, node)

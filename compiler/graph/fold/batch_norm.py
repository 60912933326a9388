"""Pass: batch norm in evaluation, and constant scales, as part of the convolution or linear before them."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch

from ...model.origins import Known, applied
from ..node import Node
from ..patterns import (
    arg,
    dtype,
    is_constant,
    is_op,
    only_user,
    rank,
    shape,
)
from ..sizes import expr
from ..work import Work, aten

HALVES = (torch.float16, torch.bfloat16)
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "convolution")
_BATCH_NORMS = ("batch_norm", "_native_batch_norm_legit_no_training", "native_batch_norm", "cudnn_batch_norm",
                "_batch_norm_no_update")  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """y = x * scale + shift per channel (dimension 1), in float64."""

    scale: Known
    shift: Known


def fold_batch_norm(work: Work) -> dict[str, int]:
    """c = conv2d(x, w, b)                        c = conv2d(x, w * s, b * s + t)
       y = batch_norm(c, g, h, mean, var)   ->                          s = g / sqrt(var + eps), t = h - mean * s
       y = batch_norm(x, ...)               ->    y = x * s + t                        where no convolution is before it
       y = batch_norm(x * constant[C, 1, 1], ...)    ->    y = x * (constant * s) + t
       y = conv2d(x, w, b) * constant[C, 1, 1]  ->    y = conv2d(x, w * constant, b * constant); likewise + constant

    In float64, rounded once to the weights' dtype. The product before is folded when nothing else reads it; its weight
    may have other readers (it is copied then). Weights of f16 and bf16 are not scaled, as that would round them again:
    there the batch norm stays, and works on the sums. Needs NORMAL; establishes NO_BATCH_NORM where statistics are
    constants of float32 or wider.
    """
    folded = kept = 0
    for node in work.nodes():
        if is_op(node, *_BATCH_NORMS):
            result, scale = _result(node), _of_batch_norm(work, node)
            if result is None or scale is None:
                continue
            if _fold_into_product(work, node.args[0], node, result, scale):
                folded += 1
            elif dtype(result) not in HALVES or not is_op(node, "batch_norm"):
                _as_scale(work, node, result, scale)
                kept += 1
        elif is_op(node, "mul", "add", "sub", "div"):
            channel = _of_arithmetic(work, node)
            if channel is not None and _fold_into_product(work, channel[0], node, node, channel[1]):
                folded += 1
    counts = {"batch norms and scales folded": folded, "batch norms as scales": kept}
    return {k: v for k, v in counts.items() if v}


def _result(node: Node) -> Node | None:
    """The node that is the normalised tensor; None when the statistics are read too, or in training."""
    if is_op(node, "batch_norm", "cudnn_batch_norm", "native_batch_norm") and node.args[5]:
        return None
    if is_op(node, "batch_norm"):
        return node
    items = [u for u in node.users if u.target is operator.getitem]
    return items[0] if len(items) == len(node.users) == 1 and items[0].args[1] == 0 else None


def _of_batch_norm(work: Work, node: Node) -> Scale | None:
    weight, bias, mean, var = node.args[1:5]
    eps = node.args[7 if is_op(node, "batch_norm", "native_batch_norm", "cudnn_batch_norm") else 6]
    if not all(v is None or is_constant(v) for v in (weight, bias, mean, var)) or mean is None or var is None:
        return None
    average, variance = _double(work, mean), _double(work, var)
    scale = applied("aten.rsqrt.default", applied("aten.add.Tensor", variance, float(eps)))
    if weight is not None:
        scale = applied("aten.mul.Tensor", scale, _double(work, weight))
    shift = applied("aten.mul.Tensor", applied("aten.neg.default", average), scale)
    return Scale(scale, shift if bias is None else applied("aten.add.Tensor", shift, _double(work, bias)))


def _double(work: Work, node: Node) -> Known:
    return applied("aten.to.dtype", work.known(node), torch.float64)


def _of_arithmetic(work: Work, node: Node) -> tuple[Node, Scale] | None:
    """conv * c, conv / c, conv + c, conv - c with a constant per channel, as (conv, scale)."""
    if len(node.args) != 2 or node.kwargs:
        return None
    x, c = node.args
    if is_constant(x) and is_op(node, "mul", "add"):
        x, c = c, x
    if not is_op(x, *_CONVOLUTIONS) or not is_constant(c) or dtype(x) != dtype(node) or dtype(c) != dtype(x):
        return None
    values = _per_channel(work, c, x)
    if values is None:
        return None
    kind = node.target._opname
    one, zero = applied("aten.ones_like.default", values), applied("aten.zeros_like.default", values)
    scale = {"mul": values, "div": applied("aten.reciprocal.default", values)}.get(kind, one)
    shift = {"add": values, "sub": applied("aten.neg.default", values)}.get(kind, zero)
    if not torch.isfinite(scale.tensor).all():
        return None
    return x, Scale(scale, shift)


def _per_channel(work: Work, constant: Node, conv: Node) -> Known | None:
    """A constant of shape [C, 1, 1], [1, C, 1, 1] or one element as [C]."""
    known = _double(work, constant)
    values = known.tensor
    channels = int(expr(shape(conv)[1]))
    if values.numel() == 1 and values.dim() <= rank(conv):
        return applied("aten.expand.default", applied("aten.reshape.default", known, [1]), [channels])
    column = [1] * (rank(conv) - values.dim()) + list(values.shape)
    if len(column) != rank(conv) or column[1] != channels or values.numel() != channels:
        return None
    return applied("aten.reshape.default", known, [channels])


def _fold_into_product(work: Work, product: Node, reader: Node, result: Node, scale: Scale) -> bool:
    """Scales the weights of a convolution or linear that only `reader` reads."""
    if not is_op(product, *_CONVOLUTIONS, "linear") or not only_user(product, reader):
        return False
    if is_op(product, "linear") and rank(product) != 2:
        return False
    weight, bias = product.args[1], arg(product, 2, "bias")
    if not is_constant(weight) or not (bias is None or is_constant(bias)):
        return False
    if is_op(product, "convolution") and product.args[6]:
        return False  # transposed: the output channels are the weight's second dimension
    name = str(weight.target)
    matrix = work.constants[name]
    if matrix.dtype in HALVES:
        if not bool((scale.scale.tensor == 1).all()):
            return False
        work.decided(str(n.target) for n in reader.all_input_nodes if is_constant(n))
    column = [-1] + [1] * (matrix.dim() - 1)
    folded = applied("scaled", work.known(weight), applied("aten.reshape.default", scale.scale, column))
    shift = scale.shift
    if bias is not None:
        shift = applied("aten.add.Tensor", applied("aten.mul.Tensor", _double(work, bias), scale.scale), shift)
    shift = applied("aten.to.dtype", shift, matrix.dtype)
    new_weight = work.constant(f"{name}_scaled", folded, like=product)
    new_bias = work.constant(f"{name}_shift", shift, like=product)
    args = [product.args[0], new_weight, new_bias, *product.args[3:]]
    new = work.call(
        product.target, args, product.kwargs, like=product, val=product.meta["val"], covers=[product, reader]
    )
    result.replace_all_uses_with(new)
    for dead in dict.fromkeys((result, reader, product)):
        work.graph.erase_node(dead)
    return True


def _behind_factor(work: Work, x: Node, reader: Node, scale: Scale) -> tuple[Node, Scale]:
    """What x is a constant multiple of, by channels, that `reader` alone reads, with the scale of both."""
    if not is_op(x, "mul") or not only_user(x, reader) or rank(x) < 2 or len(x.args) != 2:
        return x, scale
    source, factor = x.args
    if not isinstance(source, Node) or not isinstance(factor, Node) or not is_constant(factor):
        return x, scale
    if not dtype(source) == dtype(factor) == dtype(x) or shape(source) != shape(x):
        return x, scale
    values = _per_channel(work, factor, x)
    both = None if values is None else applied("aten.mul.Tensor", values, scale.scale)
    if both is None or not bool(torch.isfinite(both.tensor).all()):
        return x, scale
    return source, Scale(both, scale.shift)


def _as_scale(work: Work, node: Node, result: Node, scale: Scale) -> None:
    x, scale = _behind_factor(work, node.args[0], node, scale)
    to = dtype(result)
    column = [-1] + [1] * (rank(x) - 2)
    as_column = [applied("aten.to.dtype", own, to) for own in (scale.scale, scale.shift)]
    as_column = [applied("aten.reshape.default", own, column) for own in as_column]
    factor = work.constant(f"{node.name}_scale", as_column[0], like=node)
    offset = work.constant(f"{node.name}_shift", as_column[1], like=node)
    val = result.meta["val"]
    scaled = work.call(aten.mul.Tensor, (x, factor), like=node, val=val, covers=[node])
    shifted = work.call(aten.add.Tensor, (scaled, offset), like=node, val=val, covers=[node])
    result.replace_all_uses_with(shifted)
    for dead in dict.fromkeys((result, node)):
        work.graph.erase_node(dead)

"""Pass: linear layers of quantised weights as products that read the integers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...model.operators import dequantize, quantised  # noqa: F401  # defines the operators
from ..node import Node
from ..patterns import arg, is_constant, is_op, rank, shape
from ..sizes import expr, same_shape
from ..work import Work, aten
from .quantised_merging import alone, mergeable, merged, merged_bias
from .quantised_readings import Reading, reading
from .quantised_weights import LONGEST, QuantisedWeight, quantised_weight

mycc = torch.ops.mycc

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class _Product:
    """x @ weight^T + bias, whose weight is quantised, and the nodes that it stands for."""

    x: Node
    weight: QuantisedWeight
    bias: Any
    covers: tuple[Node, ...]


def quantised_linears(work: Work) -> dict[str, int]:
    """linear(x, dequantize(w, s), b)                  ->   add(mul(mixed_mm(x, w), s), b)            s: [n, 1]
       linear(x, dequantize(w, s, z), b)               ->   add(grouped_mm(x, w, s, z), b)            s: [n, groups]
       linear(dequantize(q, t, y), dequantize(w, s))   ->   mul((_int_mm(q, w^T) - y sum(w)) as f32, s t)
       linear(dequantize(q, t, y), dequantize(w, s, z))   ->   mul(grouped_int_mm(q, y, w, s, z), t)
       mm(x, _to_copy(t(w), f32))                      ->   mixed_mm(x, w)
       _int_mm(q + 128 as u8, w) - 128 sum(w)          ->   _int_mm(q, w)
       linear(x, w1), linear(x, w2)                    ->   parts of linear(x, [w1; w2])

    w: a constant; dequantize: of torchao, of PT2E (quantized_decomposed), or mycc's own. Needs NORMAL, in front of the
    decompositions, which take the operators apart. Weights stay the integers that the model holds.
    """
    count = moved = 0
    for node in work.nodes():
        moved += _signed(work, node)
    products = {node: product for node in work.nodes() if (product := _product(work, node)) is not None}
    together = 0
    for group in _groups(products):
        count += len(group)
        if len(group) > 1:
            _replace_group(work, group, [_again(node, products[node]) for node in group])
            together += len(group)
        else:
            work.replace(group[0], _result(work, group[0], _again(group[0], products[group[0]])))
    counts = {
        "quantised linears": count,
        "quantised linears merged": together,
        "unsigned products as signed": moved,
    }
    return {k: v for k, v in counts.items() if v}


def _product(work: Work, node: Node) -> _Product | None:
    operands = _operands(node)
    if operands is None:
        return None
    x, matrix, bias, transposed = operands
    if not all(isinstance(n, Node) and n.meta["val"].dtype in _FLOATS for n in (x, matrix)) or rank(matrix) != 2:
        return None
    weight = quantised_weight(work, matrix, transposed) if not is_constant(x) else None
    return None if weight is None else _Product(x, weight, bias, (node,))


def _operands(node: Node) -> tuple[Any, Any, Any, bool] | None:
    """Of a linear layer: its input, its matrix, its bias, and whether the matrix is [k, n]."""
    if is_op(node, "linear"):
        return node.args[0], node.args[1], arg(node, 2, "bias"), False
    if is_op(node, "mm", "matmul"):
        return node.args[0], node.args[1], None, True
    if is_op(node, "addmm") and [arg(node, 3, "beta", 1), arg(node, 4, "alpha", 1)] == [1, 1]:
        bias, x, matrix = node.args[:3]
        return x, matrix, bias, True
    return None


def _again(node: Node, product: _Product) -> _Product:
    """The product, whose operands other products may have replaced."""
    operands = _operands(node)
    assert operands is not None
    return replace(product, x=operands[0], bias=operands[2])


# layers of the same input --------------------------------------------------------------------------------------------
def _groups(products: Mapping[Node, _Product]) -> list[list[Node]]:
    """Products of the same input whose weights can be one; each of the others alone."""
    found: list[list[Node]] = []
    for node, product in products.items():
        own = next((group for group in found if _joins(node, product, group[0], products[group[0]])), None)
        if own is None:
            found.append([node])
        else:
            own.append(node)
    return found


def _joins(node: Node, product: _Product, first: Node, other: _Product) -> bool:
    """Whether a product can be computed with another one, which is before it in the graph."""
    if product.x is not other.x or node.meta["val"].dtype != first.meta["val"].dtype:
        return False
    both = (product, other)
    biases = [p.bias for p in both if p.bias is not None]
    constant = all(is_constant(bias) and rank(bias) == 1 for bias in biases)
    alike = len({bias.meta["val"].dtype for bias in biases}) < 2
    return constant and alike and all(alone(p.weight) for p in both) and mergeable(product.weight, other.weight)


def _replace_group(work: Work, nodes: list[Node], products: list[_Product]) -> None:
    """linear(x, w1), linear(x, w2)   ->   y = linear(x, [w1; w2]), whose parts are slices"""
    first, rows = nodes[0], [product.weight.rows for product in products]
    biases = [None if p.bias is None else work.constants[str(p.bias.target)] for p in products]
    weight, values = merged(work, [p.weight for p in products]), merged_bias(biases, rows)
    bias = None if values is None else work.constant(f"{weight.name}_bias", values, like=first)
    val = first.meta["val"].new_empty([*first.meta["val"].shape[:-1], sum(rows)])
    y = _result(work, first, replace(products[0], weight=weight, bias=bias, covers=tuple(nodes)))
    parts, start = [], 0
    for node, count in zip(nodes, rows, strict=True):
        part = (y, val.dim() - 1, start, start + count)
        parts.append(work.call(aten.slice.Tensor, part, like=node, val=node.meta["val"], before=first))
        start += count
    for node, new in zip(nodes, parts, strict=True):
        work.replace(node, new)


# one product ---------------------------------------------------------------------------------------------------------
def _result(work: Work, node: Node, product: _Product) -> Node:
    read = reading(product.x)
    whole = _of_integers(work, node, product, read) if read is not None else None
    y = _of_floats(work, node, product) if whole is None else whole
    if product.bias is not None:
        y = work.call(aten.add.Tensor, (y, product.bias), like=node)
    if y.meta["val"].dtype != node.meta["val"].dtype:
        y = work.call(aten._to_copy.default, (y,), {"dtype": node.meta["val"].dtype}, like=node)
    return y


def _of_floats(work: Work, node: Node, product: _Product) -> Node:
    weight, x = product.weight, product.x
    if weight.by_rows and weight.bits == 8:
        product_of = mycc.float8_mm.default if weight.is_float8 else mycc.mixed_mm.default
        y = work.call(product_of, (x, weight.node(work, node)), like=node, covers=product.covers)
        return y if weight.scales is None else _scaled(work, node, y, weight.scales)
    args = (x, *_grouped(work, node, weight))
    return work.call(mycc.grouped_mm.default, args, like=node, covers=product.covers)


def _grouped(work: Work, like: Node, weight: QuantisedWeight) -> tuple[Any, ...]:
    """The arguments of the products by groups that say the weight."""
    own = weight.halves(work, like) if weight.bits == 4 else weight.node(work, like)
    return own, weight.scale_node(work, like), weight.zero_node(work, like), weight.bits, weight.group


def _scaled(work: Work, node: Node, y: Node, scales: torch.Tensor) -> Node:
    """y times a number for each of its columns."""
    name = f"{node.name}_scales"
    factor = work.constant(name, scales.float().reshape(-1).contiguous(), like=node)
    return work.call(aten.mul.Tensor, (y, factor), like=node)


# integers times integers ---------------------------------------------------------------------------------------------
def _of_integers(work: Work, node: Node, product: _Product, read: Reading) -> Node | None:
    """The product by the integers that x is read from; None: floats have to do it."""
    weight, x = product.weight, product.x
    single = read.whole
    if not (single or read.by_rows) or is_constant(read.values):
        return None
    if weight.is_float8 or weight.scales is None or weight.columns > LONGEST:
        return None
    q = signed_values(work, read, like=node)
    if q is None:
        return None
    values, zero = q
    scale = _per_row(work, node, read.scale, x, single)
    zero = None if zero is None else _per_row(work, node, zero, x, single)
    if weight.by_rows and weight.bits == 8:
        y = _integer_sums(work, node, product, values, zero)
        y = work.call(aten._to_copy.default, (y,), {"dtype": torch.float32}, like=node)
        if not isinstance(scale, Node):
            return _scaled(work, node, y, weight.scales.double() * scale)
        y = _scaled(work, node, y, weight.scales)
    else:
        lead = work.sizes([*shape(values)[:-1], 1])
        if isinstance(zero, int):
            zero = work.call(aten.full.default, (lead, zero), {"dtype": torch.int32}, like=node)
        elif zero is not None and single:  # one zero point for all rows, or for the only one
            zero = work.call(aten.expand.default, (zero, lead), like=node)
        args = (values, zero, *_grouped(work, node, weight))
        y = work.call(mycc.grouped_int_mm.default, args, like=node, covers=product.covers)
    return work.call(aten.mul.Tensor, (y, scale), like=node)


def signed_values(work: Work, read: Reading, like: Node) -> tuple[Node, Any] | None:
    """The integers as int8 and their zero point; unsigned ones are moved by 128, which changes no difference."""
    values, zero = read.values, read.zero
    if isinstance(zero, Node) and zero.meta["val"].dtype.is_floating_point:
        return None
    if values.meta["val"].dtype == torch.int8:
        return values, (None if zero == 0 else zero)
    if values.meta["val"].dtype != torch.uint8:
        return None
    if str(values.target) == "quantized_decomposed.quantize_per_tensor.default":
        x, scale, own, low, high, _ = values.args
        moved: Any = (x, scale, own - 128, low - 128, high - 128, torch.int8)
        quantised_again = work.call(values.target, moved, like=values)
    else:
        wide = work.call(aten._to_copy.default, (values,), {"dtype": torch.int16}, like=like)
        wide = work.call(aten.sub.Tensor, (wide, 128), like=like)
        quantised_again = work.call(aten._to_copy.default, (wide,), {"dtype": torch.int8}, like=like)
    if isinstance(zero, Node):
        wide = work.call(aten._to_copy.default, (zero,), {"dtype": torch.int32}, like=like)
        return quantised_again, work.call(aten.sub.Tensor, (wide, 128), like=like)
    return quantised_again, (zero or 0) - 128


def _per_row(work: Work, node: Node, part: Any, x: Node, single: bool) -> Any:
    """A scale or zero point in the shape that is broadcast over the columns of a product: a number, or [..., 1]."""
    if not isinstance(part, Node):
        return part
    lead = [] if single else [*shape(x)[:-1], 1]
    dtype = torch.float32 if part.meta["val"].dtype.is_floating_point else torch.int32
    if part.meta["val"].dtype != dtype:
        part = work.call(aten._to_copy.default, (part,), {"dtype": dtype}, like=node)
    if same_shape(shape(part), lead):
        return part
    return work.call(aten.reshape.default, (part, work.sizes(lead)), like=node)


def _integer_sums(work: Work, node: Node, product: _Product, values: Node, zero: Any) -> Node:
    """The sums of (values - zero) * w, int32 [..., N]."""
    weight, lead = product.weight, shape(values)[:-1]
    flat = values
    if len(lead) != 1:
        rows = math.prod(expr(n) for n in lead)
        flat = work.call(aten.reshape.default, (values, work.sizes([rows, weight.columns])), like=node)
    matrix = work.call(aten.permute.default, (weight.node(work, node), [1, 0]), like=node)
    y = work.call(aten._int_mm.default, (flat, matrix), like=node, covers=product.covers)
    if len(lead) != 1:
        y = work.call(aten.reshape.default, (y, work.sizes([*lead, weight.rows])), like=node)
    if zero is None:
        return y
    sums = weight.values.sum(1, dtype=torch.int32)
    if not isinstance(zero, Node):
        correction = work.constant(f"{weight.name}_sums", sums * zero, like=node)
    else:
        own = work.constant(f"{weight.name}_sums", sums, like=node)
        correction = work.call(aten.mul.Tensor, (zero, own), like=node)
    return work.call(aten.sub.Tensor, (y, correction), like=node)


def _signed(work: Work, node: Node) -> bool:
    """Products that a model makes unsigned, for kernels that want them so, as they were before."""
    if not is_op(node, "sub") or not is_op(node.args[0], "_int_mm") or node.kwargs.get("alpha", 1) != 1:
        return False
    product, correction = node.args
    unsigned, matrix = product.args
    q = _before_128(unsigned)
    if q is None or not is_op(correction, "mul") or correction.args[1] != 128:
        return False
    sums = correction.args[0]
    if not is_op(sums, "sum") or sums.args[0] is not matrix or list(sums.args[1]) not in ([0], [-2]):
        return False
    work.replace(node, work.call(aten._int_mm.default, (q, matrix), like=node, covers=[product]))
    return True


def _before_128(unsigned: Any) -> Node | None:
    """q of (q as int32 + 128) as uint8."""
    if not is_op(unsigned, "_to_copy") or unsigned.meta["val"].dtype != torch.uint8:
        return None
    total = unsigned.args[0]
    if not is_op(total, "add") or total.args[1] != 128 or not is_op(total.args[0], "_to_copy"):
        return None
    q = total.args[0].args[0]
    return q if q.meta["val"].dtype == torch.int8 else None

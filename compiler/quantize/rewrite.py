"""A captured graph with the weights of some layers as integers: what it computes is what the package will."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from ..graph.decompose.decompose import insert, trace
from ..graph.node import Node
from ..graph.patterns import arg, is_op
from ..graph.sizes import ranges_of
from ..graph.work import Work
from ..model.graph import ModelGraph, graph_module
from ..model.operators import dequantize  # noqa: F401  # defines the operator
from .layers import Layer
from .sums import SumOperand
from .weights import IntegerWeight

aten, mycc = torch.ops.aten, torch.ops.mycc

#: rows of activations that are all 0 have this scale
SMALLEST = float(torch.finfo(torch.float32).eps)


@dataclass(frozen=True)
class Range:
    """What calibration saw of a layer's activations: the scale and the zero point of their int8."""

    scale: float
    zero: int


@dataclass(frozen=True)
class Quantized:
    """A layer with its integers.

    Attributes:
        dynamic: whether each row of its activations becomes integers when the model runs.
        range: of activations that become integers by one scale; None: they do not.
    """

    layer: Layer
    integers: IntegerWeight
    dynamic: bool = False
    range: Range | None = None

    def floats(self) -> Tensor:
        """The weight that the integers stand for, as the model has it."""
        own, matrix = self.layer.weight, self.integers
        shape = self.layer.matrix.shape
        w = mycc.dequantize(matrix.values, matrix.scales, None, matrix.bits, matrix.group, torch.float32)
        w = w.reshape(shape).t() if self.layer.transposed else w.reshape(own.shape)
        return w.to(own.dtype)


def dynamic_linear(x: Tensor, values: Tensor, scales: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ (values * scales)^T + bias with the rows of x as integers, -127 to 127.

    Args:
        x: float, [..., K]. values: int8 [N, K]. scales: float32 [N].
    """
    wide = x if x.dtype == torch.float64 else x.float()
    own = (wide.abs().amax(-1, True) / 127.0).clamp(min=SMALLEST)
    q = torch.clamp(torch.round(wide / own), -127, 127).to(torch.int8)
    sums = aten._int_mm(q.reshape(-1, x.shape[-1]), values.t()).reshape([*x.shape[:-1], values.shape[0]])
    y = sums.to(wide.dtype) * scales * own
    return (y if bias is None else y + bias).to(x.dtype)


def rounded(x: Tensor, by: Range) -> Tensor:
    """x as the integers of a range and back."""
    wide = x if x.dtype == torch.float64 else x.float()
    q = torch.clamp(torch.round(wide * (1.0 / by.scale)) + by.zero, -128, 127).to(torch.int8)
    result: Tensor = mycc.dequantize_tensor(q, by.scale, by.zero, x.dtype)
    return result


def quantized_graph(
    graph: ModelGraph, layers: Sequence[Quantized], sums: Sequence[tuple[SumOperand, Range]] = ()
) -> ModelGraph:
    """The graph with integers in the place of the layers' weights and of operands of sums; the given one is not
    changed."""
    copy = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    copy.output(copy.graph_copy(graph.module.graph, env))
    ranges = ranges_of(graph.symbols)
    work = Work(copy, dict(graph.constants), ranges)
    for row in layers:
        _replace(work, row, env)
    for operand, by in sums:
        _round(work, env[operand.sum], operand.place, by)  # type: ignore[arg-type]
    read = {str(n.target) for n in copy.nodes if n.op == "get_attr"}
    root = torch.nn.Module()
    constants = {name: tensor for name, tensor in work.constants.items() if name in read}
    for name, tensor in constants.items():
        root.register_buffer(name, tensor)
    for name, region in graph.regions.items():
        root.add_module(name, region.module)
    return replace(graph, module=graph_module(root, copy, "Model"), constants=constants)


def _replace(work: Work, row: Quantized, env: Mapping[Any, Any]) -> None:
    readers = [(env[node], place) for node, place in row.layer.readers]
    linear = [node for node, _ in readers if not is_op(node, "embedding", "conv1d", "conv2d", "conv3d")]
    first = min((node for node, _ in readers), key=lambda n: n._sort_key)
    own, name = row.integers, row.layer.target
    shape = row.layer.weight.shape if not row.layer.transposed else row.layer.matrix.shape
    kind = "float8" if own.values.is_floating_point() else f"int{own.bits}"
    values = work.constant(f"{name}_{kind}", own.values.reshape(shape), like=first)
    scales = work.constant(f"{name}_scales", own.scales, like=first)
    if row.dynamic:
        for node in linear:
            _dynamic(work, node, values, row, first)
        readers = [(node, place) for node, place in readers if node not in linear]
    if readers:
        args = (values, scales, None, own.bits, own.group, row.layer.weight.dtype)
        floats = work.call(mycc.dequantize.default, args, like=first)
        for node, place in readers:
            _read(work, node, place, floats, row)
    work.prune(values)
    work.prune(scales)


def _read(work: Work, node: Node, place: int, floats: Node, row: Quantized) -> None:
    """The reader with the dequantised weight, and activations rounded where it has a range."""
    old = node.args[place]
    transposed = is_op(node, "mm", "matmul", "addmm")
    new = work.call(aten.t.default, (floats,), like=node) if transposed else floats
    args = list(node.args)
    args[place] = new
    node.args = tuple(args)
    if row.range is not None and not is_op(node, "embedding"):
        _round(work, node, place - 1, row.range)
    work.prune(old)


def _round(work: Work, node: Node, place: int, by: Range) -> None:
    """The operand of a node as the integers of a range."""
    args = list(node.args)
    args[place] = _traced(work, node, lambda x: rounded(x, by), [args[place]])
    node.args = tuple(args)


def _dynamic(work: Work, node: Node, values: Node, row: Quantized, first: Node) -> None:
    flat = work.constant(
        f"{row.layer.target}_row_scales", row.integers.scales.float().reshape(-1).contiguous(), like=first
    )
    x, bias = operands(node)
    given = [x, values, flat, *([] if bias is None else [bias])]
    new = _traced(work, node, lambda *tensors: dynamic_linear(*tensors), given)
    work.replace(node, new)


def operands(node: Node) -> tuple[Any, Any]:
    """The activations and the bias of a linear layer."""
    if is_op(node, "addmm"):
        return node.args[1], node.args[0]
    return node.args[0], arg(node, 2, "bias") if is_op(node, "linear") else None


def _traced(work: Work, node: Node, function: Callable[..., Tensor], operands: Sequence[Node]) -> Node:
    body = trace(work, node, function, [n.meta["val"] for n in operands])
    assert body is not None, "of operators that have forms"
    result: Node = insert(work, node, body, list(operands))
    return result

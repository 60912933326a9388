"""Which layout each constant is stored in: panels for GEMM weights, of integers lines; all else as torch has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.fx

from ...capture.state import memory_key
from ...graph.patterns import is_op
from ...ir.layouts import line_values
from ...machine.targets import Family
from ...model.graph import ModelGraph
from ...model.operators.kept import RECURRENT
from .builder import Builder
from .constants import Layout, LinePanels, Panels
from .tensor import Strided, Tensor, dense_strides, shape_of

#: operator -> (position of the weight or of a list of weights, are they stored [k, n])
WEIGHT_ARGUMENTS = {
    "aten.linear.default": (1, False),
    "aten.mm.default": (1, True),
    "aten.addmm.default": (2, True),
    "aten.matmul.default": (1, True),
    **dict.fromkeys(RECURRENT, (2, False)),
}


#: products of weights of 8 bits with no group -> position of the weight; of groups -> that of the weight, behind which
#: are scales, zeros, bits and the group
_BYTES = {"mycc.mixed_mm.default": 1, "mycc.float8_mm.default": 1, "aten._int_mm.default": 1}
_GROUPED = {"mycc.grouped_mm.default": 1, "mycc.grouped_int_mm.default": 2}


def choose_layouts(graph: torch.fx.Graph, constants: dict[str, torch.Tensor]) -> dict[str, Layout]:
    """Panels for every matrix that is the weight of a GEMM; the first reader decides when several differ."""
    layouts: dict[str, Layout] = {}
    for node in graph.nodes:
        for constant, layout in _of_integers(node):
            layouts.setdefault(str(constant.target), layout)
        position, transposed = WEIGHT_ARGUMENTS.get(str(node.target), (None, False))
        if node.op != "call_function" or position is None:
            continue
        weights = node.args[position] if position < len(node.args) else None
        for weight in weights if isinstance(weights, (list, tuple)) else [weights]:
            if isinstance(weight, torch.fx.Node) and weight.op == "get_attr":
                tensor = constants[str(weight.target)]
                if tensor.dim() == 2 and tensor.dtype in (torch.float32, torch.float16, torch.bfloat16):
                    layouts.setdefault(str(weight.target), Panels(transposed))
    return layouts


def _of_integers(node: torch.fx.Node) -> Iterator[tuple[torch.fx.Node, Layout]]:
    """The constants that a product of integers reads in lines and panels (contract/quantised.py)."""
    found: list[tuple[object, Layout]] = []
    if (at := _BYTES.get(str(node.target))) is not None:
        weight = node.args[at]
        if is_op(node, "_int_mm"):  # [k, n]
            weight = weight.args[0] if is_op(weight, "t", "transpose", "permute") else None
        if isinstance(weight, torch.fx.Node):
            found.append((weight, LinePanels(8, int(weight.meta["val"].shape[1]))))
    if (at := _GROUPED.get(str(node.target))) is not None:
        columns = node.args[0].meta["val"].shape[-1]  # type: ignore[union-attr]
        weight, scales, zeros, bits, group = node.args[at : at + 5]
        if isinstance(columns, int) and (group == columns or group % line_values(bits) == 0):  # type: ignore
            found += [(weight, LinePanels(bits, columns, group)), (scales, Panels()), (zeros, Panels())]  # type: ignore
    return ((n, layout) for n, layout in found if isinstance(n, torch.fx.Node) and n.op == "get_attr")


def shared_layouts(graphs: Sequence[ModelGraph], family: Family = "cpu") -> list[dict[str, Layout]]:
    """The layouts of each entry point's constants; a matrix that one of them has in panels is in panels for all.

    GPUs read matrices as torch has them.
    """
    if family == "cuda":
        return [{} for _ in graphs]
    chosen = [choose_layouts(graph.module.graph, graph.constants) for graph in graphs]
    panels: dict[object, Layout] = {}
    for graph, layouts in zip(graphs, chosen, strict=True):
        for target, layout in layouts.items():
            panels.setdefault(memory_key(graph.constants[target]), layout)
    return [
        {target: panels[key] for target, tensor in graph.constants.items() if (key := memory_key(tensor)) in panels}
        for graph in graphs
    ]


def constant_tensor(builder: Builder, target: str, tensor: torch.Tensor) -> Tensor:
    """The constant as a dense tensor value. Only constants that some node reads are stored."""
    shape = shape_of(tuple(tensor.shape))
    buffer = builder.constant(target, tensor)
    return Tensor(shape, buffer.dtype, Strided(buffer, dense_strides(shape)))

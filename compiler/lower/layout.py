"""Which layout each constant is stored in: panels for GEMM weights; all else as torch has it."""

from __future__ import annotations

import torch
import torch.fx

from .builder import Builder
from .constants import Layout, Panels
from .tensor import Strided, Tensor, dense_strides, shape_of

#: operator -> (position of the weight, is it stored [k, n])
WEIGHT_ARGUMENTS = {
    "aten.linear.default": (1, False),
    "aten.mm.default": (1, True),
    "aten.addmm.default": (2, True),
    "aten.matmul.default": (1, True),
}


def choose_layouts(graph: torch.fx.Graph, constants: dict[str, torch.Tensor]) -> dict[str, Layout]:
    """Panels for every matrix that is the weight of a GEMM; the first reader decides when several differ."""
    layouts: dict[str, Layout] = {}
    for node in graph.nodes:
        position, transposed = WEIGHT_ARGUMENTS.get(str(node.target), (None, False))
        if node.op != "call_function" or position is None:
            continue
        weight = node.args[position] if position < len(node.args) else None
        if isinstance(weight, torch.fx.Node) and weight.op == "get_attr":
            tensor = constants[str(weight.target)]
            if tensor.dim() == 2 and tensor.dtype == torch.float32:
                layouts.setdefault(str(weight.target), Panels(transposed))
    return layouts


def constant_tensor(builder: Builder, target: str, tensor: torch.Tensor) -> Tensor:
    """The constant as a dense tensor value. Only constants that some node reads are stored."""
    shape = shape_of(tuple(tensor.shape))
    buffer = builder.constant(target, tensor)
    return Tensor(shape, buffer.dtype, Strided(buffer, dense_strides(shape)))

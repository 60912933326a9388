"""Names of kernels, one grammar for symbol, file, profile and dump: what, fused operators, element type, tile.

gemm_bias_gelu_f32_p16      a GEMM with a bias and a GELU in its epilogue, panels of 16 columns
nest_layer_norm_f32_row     one kernel over rows
"""

from __future__ import annotations

import re

from ..ir.nodes import Map, Nest, Reduce, Scan, Scatter
from ..ir.program import AnyNode, Assert
from ..ir.routines import Routine
from ..ir.structured import WINOGRAD_FORMS, Attention, AttentionGradient, Conv, ConvChain, Gemm
from ..machine.targets import Family

MAX_OPERATORS = 4
#: operators that say nothing about what a kernel does
SILENT = frozenset(
    (
        *("view", "reshape", "permute", "transpose", "t", "expand", "slice", "select", "unsqueeze", "squeeze"),
        *("clone", "contiguous", "alias", "detach", "to", "_to_copy", "flatten"),
        *("linear", "addmm", "mm", "bmm", "matmul"),
    )
)
#: the same, but for a kernel of loops that says nothing else
CONVOLUTIONS = ("conv2d", "conv1d", "convolution")


def kernel_name(node: AnyNode, family: Family = "cpu") -> str:
    """The name of a node's kernel; kernels of one name are told apart by a number. Of a GPU's, the tile comes later."""
    ops = [_short(op) for op in node.origin.ops]
    ops = [op for op in dict.fromkeys(ops) if op not in SILENT and op != _kind(node)]
    ops = [op for op in ops if op not in CONVOLUTIONS] or (ops if isinstance(node, Map | Reduce) else [])
    parts = [_kind(node), *ops[:MAX_OPERATORS], _dtype(node), _tile(node) if family == "cpu" else ""]
    return re.sub(r"[^0-9a-zA-Z_]", "_", "_".join(p for p in parts if p))


def _kind(node: AnyNode) -> str:
    match node:
        case Gemm():
            return "gemm"
        case Conv():
            k = node.window.kernel
            if node.algorithm == "pixels":
                return f"conv_gradient{'x'.join(str(v.extent) for v in node.dims[1:-1])}"
            return f"{'depthwise' if node.depthwise else 'conv'}{'x'.join(map(str, k))}"
        case ConvChain():
            return "_".join(map(_kind, node.links))
        case Attention():
            return "attention"
        case AttentionGradient():
            return "attention_gradient"
        case Nest():
            return "rows"
        case Reduce():
            return "reduce"
        case Map():
            return "map"
        case Scan() | Scatter():
            return type(node).__name__.lower()
        case Routine():
            return node.function
        case Assert():
            return "assert_true"
    raise TypeError(type(node).__name__)


def _tile(node: AnyNode) -> str:
    match node:
        case Gemm():
            if node.quantised is not None:
                kind = "f" if node.quantised.float8 else "w"
                return f"{kind}{node.quantised.bits}" + (f"g{node.quantised.group}" if node.quantised.group else "")
            return "p16" if node.packed else "free"
        case Conv():
            direct = "taps" if node.depthwise else "p16"
            if form := WINOGRAD_FORMS.get(node.algorithm):
                return f"f{form.outputs}3" + ("s2" if form.stride == 2 else "") + ("taps" if form.taps else "")
            return {"grouped": "groups", "nchw": "nchw", "transposing": "p16_nchw", "integer": "pairs"}.get(
                node.algorithm, direct
            )
        case ConvChain():
            return "chain"
        case Attention() | AttentionGradient():
            return "causal" if node.causal else "block"
    return ""


def _dtype(node: AnyNode) -> str:
    buffers = node.writes() or node.reads()
    return buffers[0].dtype if buffers else "f32"


def _short(op: str) -> str:
    return op.split(".")[1].strip("_") if "." in op else op

"""The key of a kernel: what it computes and on which sizes, as a text that means the same in every build of a model.

    gemm f32 m=128 n=3072 k=768
    conv f32 in=1x56x56x64 out=56x56x64 kernel=3x3 stride=1x1
    attention f32 batch=1 heads=12 queries=128 keys=128 size=64 causal

Kernels of equal keys get equal choices; their epilogues do not count. Sizes that change are named (m=batch*seq).
"""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.index import ONE, Index, product
from ...ir.nodes import Map, Nest, Reduce
from ...ir.program import AnyNode
from ...ir.structured import Attention, Conv, Gemm, Window

__all__ = ["conv_key", "kernel_key"]


def kernel_key(node: AnyNode) -> str | None:
    """The key of a scheduled node; None for one that has no parameters."""
    match node:
        case Gemm():
            *outer, m, n = (v.extent for v in node.dims)
            if node.quantised is not None:
                return None
            kind = ("gemm-glu" if node.also else "gemm") if node.packed else "gemm-unpacked"
            lead = f"batch={product(outer)} " if outer else ""
            computed = " computed" if node.prologue is not None else ""
            return f"{kind} {_dtype(node)} {lead}m={m} n={n} k={node.k}{computed}"
        case Conv() if node.algorithm == "pixels":
            return None
        case Conv():
            out = tuple(v.extent for v in (*node.pixels, node.channel))
            return conv_key(node.x.buffer.dtype, node.in_shape, out, node.window)
        case Attention():
            batch, heads, queries, size = (v.extent for v in node.dims)
            sizes = f"batch={batch} heads={heads} kv_heads={node.kv_heads} queries={queries} keys={node.keys}"
            return f"attention {_dtype(node)} {sizes} size={size}{' causal' if node.causal else ''}"
        case Nest() | Reduce() | Map():
            operators = "+".join(dict.fromkeys(_short(op) for op in node.origin.ops))
            return f"rows {_dtype(node)} {operators} {_sizes(node)}"
    return None


def conv_key(dtype: str, in_shape: Iterable[Index], dims: Iterable[Index], window: Window) -> str:
    """The key of a convolution; in_shape, dims: of its input and output, channels last."""
    parts = {"kernel": window.kernel, "stride": window.stride, "pad": window.pad, "dilation": window.dilation}
    usual = {"stride": {1}, "pad": {0}, "dilation": {1}}
    shown = (f"{name}={_by(value)}" for name, value in parts.items() if set(value) != usual.get(name))
    groups = f" groups={window.groups}" if window.groups != 1 else ""
    _, *out = dims
    return f"conv {dtype} in={_by(in_shape)} out={_by(out)} {' '.join(shown)}{groups}"


def _sizes(node: Nest | Reduce | Map) -> str:
    if isinstance(node, Nest):
        rows = product(v.extent for v in node.dims)
        widest = [product(v.extent for v in stage.dims[len(node.dims) :]) for stage in node.stages]
        return f"rows={rows} row={_by(n for n in dict.fromkeys(widest) if n != ONE)}"
    if isinstance(node, Reduce):
        return f"rows={node.extent} row={product(v.extent for v in node.rdims)}"
    return f"elements={node.extent}"


def _by(values: Iterable[object]) -> str:
    return "x".join(str(value).replace(" ", "") for value in values)


def _dtype(node: AnyNode) -> str:
    buffers = node.writes()
    return buffers[0].dtype if buffers else "f32"


def _short(op: str) -> str:
    return op.split(".")[1].strip("_") if "." in op else op

"""Triton kernels of the user's own (lower/custom.py): their text as a module, and their launch."""

from __future__ import annotations

import re

from ...ir.index import Index
from ...ir.nodes import Custom, TritonSource
from .kernel import PLACEHOLDER, SIGNATURE, BufferArg, KernelParam, Launch, LaunchArgument, SizeArg, TritonKernel

_HEAD = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"


def custom_launch(node: Custom, name: str) -> Launch:
    source = node.source
    assert isinstance(source, TritonSource)
    blocks = (*node.outputs, *node.inputs)
    params: list[KernelParam] = []
    args: list[LaunchArgument] = []
    for parameter, (kind, value) in zip(source.parameters, source.arguments, strict=False):
        if kind == "tensor":
            assert isinstance(value, int)
            buffer, layout = blocks[value].buffer, node.layouts[value]
            divisor = 16 if layout.offset.constant == 0 else 1
            params.append(KernelParam(parameter, f"*{SIGNATURE[buffer.dtype]}", divisor))
            args.append(BufferArg(buffer, layout.offset))
        else:
            assert isinstance(value, Index)
            params.append(KernelParam(parameter, "i32" if value.constant is not None else "i64"))
            args.append(SizeArg(value))
    text = re.sub(rf"\bdef {re.escape(source.function)}\b", f"def {PLACEHOLDER}", source.text, count=1)
    kernel = TritonKernel(
        name, _HEAD + text, tuple(params), source.constants, num_warps=source.num_warps, num_stages=source.num_stages,
        widens=False,
    )  # fmt: skip
    x, y, z = source.grid
    return Launch(kernel, (x, y, z), tuple(args), node.origin)

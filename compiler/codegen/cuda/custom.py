"""Triton kernels of the user's own (lower/core/custom.py, triton_kernels.py), as modules and launches."""

from __future__ import annotations

import re
from typing import Any

from ...ir.bounds import largest
from ...ir.index import Index
from ...ir.routines import Custom, TritonSource
from ...lower.core.triton_text import dtype_name
from ...schedule.gpu.width import INT32_MAX
from .kernel import (
    PLACEHOLDER,
    SIGNATURE,
    BufferArg,
    KernelParam,
    Launch,
    LaunchArgument,
    NumberArg,
    SizeArg,
    TritonKernel,
)

_IMPORTS = "import triton\nimport triton.language as tl\n"


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
        elif kind == "number":
            assert isinstance(value, (bool, float))
            params.append(KernelParam(parameter, "i1" if isinstance(value, bool) else "fp32"))
            args.append(NumberArg(value))
        else:
            assert isinstance(value, Index)
            params.append(_size_param(parameter, value, kind == "int"))
            args.append(SizeArg(value))
    text = re.sub(rf"\bdef {re.escape(source.function)}\b", f"def {PLACEHOLDER}", source.text, count=1)
    module = "\n\n".join(
        part for part in (_IMPORTS, source.head and f"{source.head}\n", f"@triton.jit\n{text}") if part
    )
    kernel = TritonKernel(
        name, module, tuple(params), tuple((n, _plain(value)) for n, value in source.constants),
        num_warps=source.num_warps, num_stages=source.num_stages, num_ctas=source.num_ctas, maxnreg=source.maxnreg,
        widens=False,
    )  # fmt: skip
    x, y, z = source.grid
    return Launch(kernel, (x, y, z), tuple(args), node.origin)


def _size_param(name: str, value: Index, narrow: bool) -> KernelParam:
    """narrow: as Triton passes whole numbers, in 32 bits where that is enough, divisors known."""
    top = largest(value)
    if not narrow:
        return KernelParam(name, "i32" if value.constant is not None else "i64")
    whole = all(c % 16 == 0 for c in value.terms.values())
    return KernelParam(name, "i32" if top is not None and top <= INT32_MAX else "i64", 16 if whole else 1)


def _plain(value: Any) -> Any:
    """A constant as the compiling process is told of it."""
    if type(value).__module__ == "triton.language.core":
        return ("tl", dtype_name(value))
    return value

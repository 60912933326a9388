"""Lowering of Triton kernels that the model calls: launches of the kernel in packages for GPUs.

A tensor that the kernel writes to is copied first, into memory that the kernel then writes over; one that the model has
just made with torch.empty is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.fx

from ....runtime.errors import CompileError
from ...ir.index import ONE, Index, as_index
from ...ir.routines import Blocks, Custom, TritonSource
from ...model.operators.triton_kernels import NAME, KernelCall, kernel_call
from .context import Context
from .in_place import copied_to_write
from .registry import row
from .tensor import Tensor, blocks_of, layout_of, permute
from .triton_text import kernel_text

__all__: list[str] = []

_EMPTY = ("aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default", "aten.empty_strided.default",
          "aten.new_empty_strided.default", "aten.empty_permuted.default")  # fmt: skip


@row(NAME)
def triton_kernel(
    ctx: Context, tensors: Sequence[Tensor], grid: Sequence[Any], sizes: Sequence[Any], number: int
) -> tuple[Tensor, ...]:
    call, builder = kernel_call(number), ctx.builder
    if builder.family != "cuda":
        raise CompileError(
            f"the Triton kernel {call.name} runs on GPUs alone",
            hint="Compile for a GPU (--target cuda:sm_90), or register a lowering of a custom operator that calls it "
            "(docs/custom-operators.md).",
        )
    head, text = kernel_text(call.kernel)
    builder.hint = call.name
    sources: Any = ctx.node.args[0]
    held: list[Tensor] = []
    before: list[Blocks] = []  # what kernels write over
    for i, (t, order) in enumerate(zip(tensors, call.orders, strict=True)):
        if i not in call.written:
            held.append(_in_order(ctx, t, order))
        elif _is_empty(sources[i]):
            held.append(_permuted_back(builder.temp(tuple(t.shape[d] for d in order), t.dtype), order))
        else:
            kept, tensor = copied_to_write(builder, t, order)
            before.append(kept)
            held.append(tensor)
    results = tuple(held[i] for i in call.written)
    inputs = [t for i, t in enumerate(held) if i not in call.written]
    places = [*call.written, *(i for i in range(len(held)) if i not in call.written)]
    builder.add(
        Custom(
            (),
            (),
            builder.origin,
            call.name,
            ONE,
            (*map(blocks_of, inputs), *before),
            tuple(map(blocks_of, results)),
            (),
            _source(call, head, text, places, grid, sizes),
            tuple(map(layout_of, (*results, *inputs))),
            (),
        )
    )
    return results


def _is_empty(node: torch.fx.Node) -> bool:
    return str(node.target) in _EMPTY


def _source(
    call: KernelCall, head: str, text: str, order: Sequence[int], grid: Sequence[Any], sizes: Sequence[Any]
) -> TritonSource:
    """order: of the tensors among outputs and inputs."""
    arguments: list[tuple[str, int | float | bool | Index]] = []
    for _, kind, value in call.arguments:
        if kind == "tensor":
            arguments.append((kind, order.index(int(value))))
        else:
            arguments.append(("int", as_index(sizes[int(value)])) if kind == "size" else (kind, value))
    x, y, z = (as_index(g) for g in grid)
    options = {"num_warps": 4, "num_stages": 3, **call.options}
    return TritonSource(
        call.name, text, tuple(name for name, _, _ in call.arguments), call.constants, tuple(arguments), (x, y, z),
        options["num_warps"], options["num_stages"], head, options.get("num_ctas", 1), options.get("maxnreg"),
    )  # fmt: skip


def _permuted_back(t: Tensor, order: Sequence[int]) -> Tensor:
    """The tensor whose dimensions in `order` are those of t."""
    return permute(t, [list(order).index(d) for d in range(len(order))])


def _in_order(ctx: Context, t: Tensor, order: Sequence[int]) -> Tensor:
    """The tensor in memory of its own extent, its dimensions in this order."""
    return _permuted_back(ctx.builder.dense(permute(t, list(order))), order)

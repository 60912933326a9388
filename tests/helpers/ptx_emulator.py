"""Inline assembly of Triton kernels on numpy arrays, for Triton's interpreter: the few instructions that they name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

Words = np.ndarray[Any, np.dtype[np.uint32]]


def run_ptx(code: str, inputs: Sequence[Words], outputs: int) -> list[Words]:
    """The registers $0, $1, ... of the results after a block of instructions; the inputs are those behind them."""
    found: dict[str, Words] = {f"${outputs + i}": words for i, words in enumerate(inputs)}
    for line in code.strip().strip("{}").split(";"):
        text = line.strip()
        if not text or text.startswith(".reg"):
            continue
        name, _, rest = text.partition(" ")
        target, *operands = (part.strip() for part in rest.split(","))
        values = [found[o] if o in found else np.uint32(int(o, 0)) for o in operands]
        found[target] = np.asarray(_INSTRUCTIONS[name](*values), np.uint32) + np.zeros_like(inputs[0])
    return [found[f"${i}"] for i in range(outputs)]


def _lop3(a: Words, b: Words, c: Words, table: Words) -> Words:
    """Each bit by its three operands' bits: bit 4a + 2b + c of the table."""
    total = np.zeros_like(a)
    for place in range(8):
        if int(table) >> place & 1:
            parts = (v if place >> shift & 1 else ~v for v, shift in ((a, 2), (b, 1), (c, 0)))
            x, y, z = parts
            total |= x & y & z
    return total


def _pairs(dtype: torch.dtype) -> Callable[..., Words]:
    def fma(*operands: Words) -> Words:
        """a * b + c of both halves, rounded once."""
        halves = []
        for shift in (0, 16):
            a, b, c = (_numbers(np.atleast_1d(v) >> np.uint32(shift), dtype) for v in operands)
            bits = (a * b + c).to(dtype).view(torch.int16).to(torch.int32).numpy().view(np.uint32) & np.uint32(0xFFFF)
            halves.append(bits << np.uint32(shift))
        return halves[0] | halves[1]

    return fma


def _numbers(words: Words, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy((words & np.uint32(0xFFFF)).astype(np.uint16).view(np.int16)).view(dtype).double()


_INSTRUCTIONS: dict[str, Callable[..., Any]] = {
    "mov.b32": lambda a: a,
    "shr.u32": lambda a, b: a >> b,
    "lop3.b32": _lop3,
    "fma.rn.bf16x2": _pairs(torch.bfloat16),
    "fma.rn.f16x2": _pairs(torch.float16),
}


def teach_inline_assembly() -> None:
    """Triton's interpreter runs tl.inline_asm_elementwise by the emulator: of 16-bit elements, two in a register."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def inline_asm_elementwise(
        asm: Any, constraints: Any, args: Sequence[Any], dtype: Any, is_pure: bool, pack: int, **_: Any
    ) -> Any:
        code, types = (getattr(v, "value", v) for v in (asm, dtype))
        results = re.findall(r"=r", getattr(constraints, "value", constraints))
        assert pack == 2
        assert all(a.dtype.primitive_bitwidth == 16 for a in args)
        words = [np.ascontiguousarray(a.handle.data).reshape(-1).view(np.uint32) for a in args]
        shape = args[0].handle.data.shape
        found = run_ptx(code, words, len(results))
        kinds = [getattr(t, "value", t) for t in (types if isinstance(types, (tuple, tl.tuple)) else (types,))]
        made = [_tensor(w, t, shape, tl, TensorHandle) for w, t in zip(found, kinds, strict=True)]
        return tl.tuple(made) if len(made) > 1 else made[0]

    tl.inline_asm_elementwise = inline_asm_elementwise


def _tensor(words: Words, dtype: Any, shape: tuple[int, ...], tl: Any, handle: Any) -> Any:
    """The tensor whose elements are the halves of registers; the interpreter holds bfloat16 as its bits."""
    kind = np.float16 if dtype == tl.float16 else np.uint16
    data = np.ascontiguousarray(words).view(kind).reshape(shape)
    return tl.tensor(handle(data, dtype), tl.block_type(dtype, list(shape)))

"""Element types of the IR: names, sizes in bytes, kinds, and their torch counterparts (imported only when asked)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.errors import CompileError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class DType:
    """One element type: `kind` is f(loat), i(nt) or b(ool); `compute` is the type that arithmetic on it is done in;
    `cpp` is its type in memory (kernels/vec/types.h)."""

    name: str
    size: int
    kind: str
    compute: str
    cpp: str
    safetensors: str

    @property
    def is_plain(self) -> bool:
        """Whether C++ may read it in memory as what it computes with. A bool's byte may be any: it is compared."""
        return self.compute == self.name and self.kind != "b"


DTYPES: dict[str, DType] = {
    row.name: row
    for row in (
        #     name    size kind compute C++        safetensors
        DType("bool", 1, "b", "bool", "boolean", "BOOL"),
        DType("u8", 1, "i", "i32", "uint8_t", "U8"),
        DType("i8", 1, "i", "i32", "int8_t", "I8"),
        DType("i16", 2, "i", "i32", "int16_t", "I16"),
        DType("i32", 4, "i", "i32", "int32_t", "I32"),
        DType("i64", 8, "i", "i64", "int64_t", "I64"),
        DType("f16", 2, "f", "f32", "half", "F16"),
        DType("bf16", 2, "f", "f32", "bfloat", "BF16"),
        DType("f32", 4, "f", "f32", "float", "F32"),
        DType("f64", 8, "f", "f64", "double", "F64"),
    )
}

_TORCH = {
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
}


def held(value: float, dtype: str) -> float:
    """The number that an element of a float type holds of `value`, rounded as torch does: to float32 first."""
    if dtype not in ("f32", "f16", "bf16"):
        return value
    with np.errstate(over="ignore"):
        near = np.float32(value)
        if dtype == "bf16" and np.isfinite(near):  # to nearest, ties to even, in the upper 16 bits
            bits = int(near.view(np.uint32))
            near = np.uint32(bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).view(np.float32)
        return float(np.float16(near) if dtype == "f16" else near)


class UnsupportedDtype(CompileError, KeyError):
    """An element type that the IR does not have."""


def from_torch(dtype: torch.dtype) -> str:
    """The name of a torch dtype; UnsupportedDtype when the IR has none for it (complex, quantised)."""
    name = str(dtype).removeprefix("torch.")
    for ours, theirs in _TORCH.items():
        if theirs == name:
            return ours
    raise UnsupportedDtype(f"{name} tensors are not supported")


def to_torch(name: str) -> torch.dtype:
    """The torch type of an element type of the IR: "f32" -> torch.float32. It imports torch when it is called."""
    import torch

    return getattr(torch, _TORCH[name])

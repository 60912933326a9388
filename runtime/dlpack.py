"""DLPack through ctypes: for interpreters without the pybind11 wrapper, and for dtypes that numpy does not know.

Structures and rules: github.com/dmlc/dlpack, dlpack.h, version 0.8 (capsules named "dltensor").
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CPU", "CUDA", "CUDA_MANAGED", "DataType", "DlpackArray", "ManagedTensor", "array_of", "dense_strides", "export",
    "managed_tensor",
]  # fmt: skip

CPU, CUDA, CUDA_MANAGED = 1, 2, 13  # kDLCPU, kDLCUDA, kDLCUDAManaged


class DataType(ctypes.Structure):
    """DLDataType and mycc_dtype: kind of number (kDLInt 0, UInt 1, Float 2, Bfloat 4, Complex 5, Bool 6), bits,
    lanes."""

    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class ManagedTensor(ctypes.Structure):
    """DLManagedTensor."""


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(ManagedTensor))
ManagedTensor._fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]

_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_capsule_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(
    ("PyCapsule_New", _api)
)
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
# The same two on a bare address: a destructor must not take a reference to the capsule that is going away.
_raw_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_raw_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_NAME = b"dltensor"

_exported: dict[int, tuple[Any, ...]] = {}  # what an exported tensor needs to stay alive, by its address


def managed_tensor(value: Any, stream: int | None = None) -> tuple[ManagedTensor, Any]:
    """The DLManagedTensor of any object with `__dlpack__`, and the capsule that keeps it alive.

    stream: of a GPU, on which the tensor will be read; None for tensors of the CPU.
    """
    capsule = value.__dlpack__() if stream is None else value.__dlpack__(stream=stream)
    address = _capsule_pointer(capsule, _NAME)
    return ManagedTensor.from_address(address), capsule


class DlpackArray:
    """A dense array on the CPU that speaks DLPack in a dtype that numpy lacks: `bits` holds the elements' bits.

    torch.from_dlpack(x), jax.numpy.from_dlpack(x) and the like take it without a copy.
    """

    __slots__ = ("bits", "code")

    def __init__(self, bits: NDArray[Any], code: int) -> None:
        self.bits = np.ascontiguousarray(bits).reshape(bits.shape)
        self.code = code

    @property
    def shape(self) -> tuple[int, ...]:
        return self.bits.shape

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0

    def __dlpack__(self, **_: Any) -> Any:
        rank = self.bits.ndim
        shape = (ctypes.c_int64 * max(1, rank))(*self.bits.shape)
        strides = (ctypes.c_int64 * max(1, rank))(*(s // self.bits.itemsize for s in self.bits.strides))
        managed = ManagedTensor()
        tensor = managed.tensor
        tensor.data, tensor.device_type, tensor.ndim = self.bits.ctypes.data, CPU, rank
        tensor.dtype = DataType(self.code, 8 * self.bits.itemsize, 1)
        tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
        return export(managed, shape, strides, self.bits)

    def __repr__(self) -> str:
        return f"DlpackArray(shape={self.shape}, code={self.code}, bits={8 * self.bits.itemsize})"


def export(managed: ManagedTensor, *kept: Any) -> Any:
    """A capsule of a tensor; `kept` lives until its consumer lets go of it."""
    managed.deleter = _release
    address = ctypes.addressof(managed)
    _exported[address] = (managed, *kept)
    return _capsule_new(address, _NAME, _discard)


@_Deleter
def _release(managed: Any) -> None:
    _exported.pop(ctypes.addressof(managed.contents), None)


@_Destructor
def _discard(capsule: int) -> None:
    """A capsule that nobody consumed goes away."""
    if _raw_valid(capsule, _NAME):
        _exported.pop(_raw_pointer(capsule, _NAME), None)


def array_of(value: Any) -> NDArray[Any]:
    """A copy of any CPU tensor with DLPack as numpy; bfloat16 as its bits in uint16."""
    managed, _capsule = managed_tensor(value)
    tensor = managed.tensor
    kind = {0: "i", 1: "u", 2: "f", 4: "u", 5: "c", 6: "b"}[tensor.dtype.code]
    dtype = np.dtype(f"{kind}{tensor.dtype.bits // 8}")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if 0 in shape:
        return np.empty(shape, dtype)
    steps = tensor.strides[: tensor.ndim] if tensor.strides else dense_strides(shape)
    last = sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
    memory = (ctypes.c_ubyte * ((last + 1) * dtype.itemsize)).from_address((tensor.data or 0) + tensor.byte_offset)
    return np.ndarray(shape, dtype, memory, 0, [step * dtype.itemsize for step in steps]).copy()


def dense_strides(shape: Sequence[int]) -> list[int]:
    """Strides in elements of a row-major tensor."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape))):
        strides[axis], step = step, step * shape[axis]
    return strides

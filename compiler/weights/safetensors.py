"""weights.safetensors: where each tensor lies, and its bytes as a stream that never holds a second copy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...runtime.errors import CompileError
from ...runtime.tensorfile import ALIGNMENT, SAFETENSORS_DTYPES, TensorEntry, encode_header

__all__ = ["ITEM_BYTES", "WeightLayout", "WeightTensor", "layout", "stream"]

ITEM_BYTES = dict(SAFETENSORS_DTYPES.values())
_METADATA = {"format": "mycc"}


@dataclass(frozen=True)
class WeightTensor:
    """A constant: its name, safetensors dtype ("F32"), sizes, and its dense row-major bytes: a buffer, an array, or a
    function that makes one when the tensor is written."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Any

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class WeightLayout:
    """Where the tensors lie.

    Attributes:
        offsets: of each tensor, in bytes from the start of the data; multiples of 64.
        size: bytes of the data, padding included.
        header: what stands in the file before the data.
    """

    offsets: tuple[int, ...]
    size: int
    header: bytes

    @property
    def file_size(self) -> int:
        """Bytes of the file, its header included."""
        return len(self.header) + self.size


def layout(tensors: Sequence[WeightTensor]) -> WeightLayout:
    """Places the tensors one after the other, each size rounded up to 64 bytes.

    The format has no holes: a tensor whose size is not a multiple of 64 is listed as a row of elements that includes
    its padding. Only `name`, `dtype` and `shape` are read, so the layout is known before the data is.
    """
    entries, offset = [], 0
    names: set[str] = set()
    for tensor in tensors:
        if tensor.dtype not in ITEM_BYTES:
            raise CompileError(f"the constant {tensor.name} has the dtype {tensor.dtype}, which a package cannot hold")
        if tensor.name in names:
            raise CompileError(f"two constants are called {tensor.name}")
        names.add(tensor.name)
        padded = -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        shape = tensor.shape if padded == tensor.nbytes else (padded // ITEM_BYTES[tensor.dtype],)
        entries.append(TensorEntry(tensor.name, tensor.dtype, shape, offset, offset + padded))
        offset += padded
    return WeightLayout(tuple(entry.begin for entry in entries), offset, encode_header(entries, _METADATA))


def stream(tensors: Sequence[WeightTensor], placed: WeightLayout) -> Iterator[memoryview]:
    """The bytes of the file, in order, as views of the tensors' own memory."""
    yield memoryview(placed.header)
    for tensor in tensors:
        data = _bytes_of(tensor)
        yield data
        padding = -len(data) % ALIGNMENT
        if padding:
            yield memoryview(bytes(padding))


def _bytes_of(tensor: WeightTensor) -> memoryview:
    data = tensor.data() if callable(tensor.data) else tensor.data
    if isinstance(data, np.ndarray):
        data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    view = memoryview(data)
    view = view.cast("B") if view.nbytes else memoryview(b"")
    if len(view) != tensor.nbytes:
        raise CompileError(f"the constant {tensor.name} has {len(view)} bytes, but its type needs {tensor.nbytes}")
    return view

"""The safetensors container: a JSON header that says where each tensor lies, then the tensors' bytes, without holes.

Layout: 8 bytes little-endian header size, the header, the data. The header is padded with spaces so that the data
starts at a multiple of 64 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .strict_json import decode, encode

__all__ = ["ALIGNMENT", "SAFETENSORS_DTYPES", "TensorEntry", "encode_header", "parse_header"]

ALIGNMENT = 64

# dtype of the manifest -> (dtype of safetensors, bytes of an element)
SAFETENSORS_DTYPES = {
    "bool": ("BOOL", 1), "u8": ("U8", 1), "i8": ("I8", 1), "i16": ("I16", 2), "i32": ("I32", 4), "i64": ("I64", 8),
    "f16": ("F16", 2), "bf16": ("BF16", 2), "f32": ("F32", 4), "f64": ("F64", 8),
}  # fmt: skip


class TensorEntry(NamedTuple):
    """A tensor of the file: name, safetensors dtype ("F32"), shape, first and last + 1 byte relative to the data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def encode_header(entries: Sequence[TensorEntry], metadata: Mapping[str, str]) -> bytes:
    """The size field and the padded header: all that stands before the data."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    for entry in entries:
        offsets = [entry.begin, entry.end]
        header[entry.name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": offsets}
    text = encode(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def parse_header(data: memoryview) -> tuple[list[TensorEntry], dict[str, str], int]:
    """The tensors in order of their offsets, the metadata, and where the data starts.

    Raises:
        ValueError: the header is not one of a whole safetensors file.
    """
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > len(data) - 8:
        raise ValueError("the header of the tensor file is longer than the file")
    try:
        header = decode(bytes(data[8 : 8 + size]))
        metadata = dict(header.pop("__metadata__", {}))
        entries = [TensorEntry(name, h["dtype"], tuple(h["shape"]), *h["data_offsets"]) for name, h in header.items()]
        entries.sort(key=lambda entry: entry.begin)
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        raise ValueError(f"the header of the tensor file is none: {error}") from None
    for entry in entries:
        if not isinstance(entry.begin, int) or not isinstance(entry.end, int):
            raise ValueError(f"tensor {entry.name} has no place in the tensor file")
        if not 0 <= entry.begin <= entry.end <= len(data) - 8 - size:
            raise ValueError(f"tensor {entry.name} reaches beyond the tensor file")
    return entries, metadata, 8 + size

"""Parameters in a safetensors file: written whole or not at all, read with every size checked."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .arrays import as_tensor
from .errors import InputError, RunError
from .formats import not_safetensors
from .tensorfile import SAFETENSORS_DTYPES, TensorEntry, encode_header, parse_header

__all__ = ["read_tensors", "write_tensors"]

_OF_FILE = {code: name for name, (code, _) in SAFETENSORS_DTYPES.items()}
_BITS = {
    "bool": "?", "u8": "u1", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "f16": "f2", "bf16": "u2", "f32": "f4",
    "f64": "f8",
}  # fmt: skip


def write_tensors(
    path: str | os.PathLike[str], tensors: Iterable[tuple[str, Mapping[str, Any], Any]], metadata: Mapping[str, str]
) -> None:
    """Writes (name, the manifest's row with dtype and shape, tensor) in the order of the file.

    Raises:
        RunError: the file cannot be written; what was there before is unchanged.
    """
    entries, values, at = [], [], 0
    for name, row, value in tensors:
        code, size = SAFETENSORS_DTYPES[row["dtype"]]
        count = size
        for n in row["shape"]:
            count *= n
        entries.append(TensorEntry(name, code, tuple(row["shape"]), at, at + count))
        values.append(value)
        at += count
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            file.write(encode_header(entries, metadata))
            for value in values:
                file.write(_bits(value).tobytes())
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _bits(value: Any) -> Any:
    """The bytes of a tensor of the host or of a GPU as a numpy array."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return value
    if callable(getattr(value, "numpy", None)):
        return value.numpy()
    from .dlpack import array_of

    return array_of(value)


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The tensors of a safetensors file by name, as calls and states take them, and its metadata.

    Raises:
        InputError: the file cannot be read, or is none of this kind.
    """
    import numpy as np

    try:
        data = memoryview(Path(path).read_bytes())
        entries, metadata, start = parse_header(data)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:
        message, hint = not_safetensors(path, error)
        raise InputError(message, hint=hint) from None
    found = {}
    for entry in entries:
        dtype = _OF_FILE.get(entry.dtype)
        if dtype is None:
            raise InputError(f"{path}: '{entry.name}' is of {entry.dtype}, which no model of this kind holds")
        count = SAFETENSORS_DTYPES[dtype][1]
        for n in entry.shape:
            count *= n
        if count != entry.end - entry.begin:
            raise InputError(f"{path}: '{entry.name}' has {entry.end - entry.begin} bytes, not {count}")
        raw = np.frombuffer(data[start + entry.begin : start + entry.end], _BITS[dtype]).reshape(entry.shape)
        found[entry.name] = as_tensor(raw.copy(), dtype)
    return found, metadata

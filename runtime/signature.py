"""What an entry point takes and gives, in a form to read and to program against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["UNBOUNDED", "Port", "Signature", "Symbol", "advice"]

UNBOUNDED = 1 << 60  # a maximum from here on says nothing


_NUMPY = {
    "bool": "bool_", "u8": "uint8", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "f16": "float16",
    "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128",
}  # fmt: skip


class Port(NamedTuple):
    """An input or output tensor.

    `dtype` is a short name (bool u8 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128); a dimension is a size or a formula
    over symbols.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    @property
    def type(self) -> str:
        """As text: "f32[batch, 3, 224, 224]"."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    def __repr__(self) -> str:
        return f"{self.name}: {self.type}"


class Symbol(NamedTuple):
    """A size that the caller chooses, from `min` to `max`, both included."""

    name: str
    min: int
    max: int

    def __repr__(self) -> str:
        return f"{self.name}: {self.min} or more" if self.max >= UNBOUNDED else f"{self.name}: {self.min}..{self.max}"


class Signature(NamedTuple):
    """An entry point's name, inputs and outputs (in the order of the flattened structures) and size symbols."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    symbols: tuple[Symbol, ...]

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, ports)) for ports in (self.inputs, self.outputs))
        lines = [f"{self.name}({inputs}) -> {outputs or 'nothing'}"]
        return "\n".join(lines + [f"  {symbol}" for symbol in self.symbols])

    @classmethod
    def from_manifest(cls, entry: dict[str, Any]) -> Signature:
        """From a row of the manifest's entry_points."""
        return cls(
            entry["name"],
            tuple(Port(p["name"], p["dtype"], tuple(p["shape"])) for p in entry["inputs"]),
            tuple(Port(p["name"], p["dtype"], tuple(p["shape"])) for p in entry["outputs"]),
            tuple(Symbol(s["name"], s["min"], s["max"]) for s in entry["symbols"]),
        )


_EMPTY = "A dynamic size is at least 1: for empty tensors, compile an entry point that fixes this size to 0."


def advice(signature: Signature, tensors: Sequence[Any]) -> str | None:
    """What helps where the tensors of a call do not fit: of the first that does not, its dtype converted, or the
    option of the compile that lets its size change. None: they fit, or nothing is known."""
    given = list(zip(signature.inputs, tensors, strict=False))
    for port, tensor in given:
        dtype = str(getattr(tensor, "dtype", "")).removeprefix("torch.")
        wanted = _NUMPY.get(port.dtype, dtype)
        if dtype and dtype != wanted.removesuffix("_"):
            return f"Convert it: {port.name}.astype(numpy.{wanted})."
        if len(getattr(tensor, "shape", port.shape)) != len(port.shape):
            return None
    sizes = [
        (port.name, d, own, size)
        for port, tensor in given
        for d, (own, size) in enumerate(zip(port.shape, getattr(tensor, "shape", ()), strict=False))
    ]
    for symbol in signature.symbols:
        for name, d, own, size in sizes:
            if own == symbol.name and not symbol.min <= size <= symbol.max:
                if symbol.max >= UNBOUNDED:
                    return None
                if size == 0:
                    return _EMPTY
                bounds = f"{min(size, symbol.min)}..{max(size, symbol.max)}"
                return f"Compile the model for a larger range: --dynamic '{name}:{d}={symbol.name}({bounds})'."
    for name, d, own, size in sizes:
        if isinstance(own, int) and own != size:
            form = f"{name}:{d}=size(1..{max(64, size)})"
            return f"A size that changes is declared when the model is compiled: --dynamic '{form}'."
    return None

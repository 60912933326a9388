"""What an entry point takes and gives, in a form to read and to program against."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["UNBOUNDED", "Port", "Signature", "Symbol"]

UNBOUNDED = 1 << 60  # a maximum from here on says nothing


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

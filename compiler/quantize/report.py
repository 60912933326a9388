"""What became of the layers of a model that was quantised, for people and for the manifest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...runtime.inspect import megabytes
from ...runtime.text import counted
from .layers import Left
from .rewrite import Range

__all__ = ["LayerRow", "QuantizationReport"]

_WORST = 3  # layers that a summary names


@dataclass(frozen=True)
class LayerRow:
    """A quantised layer.

    Attributes:
        name: of the module.
        kind: linear, embedding or convolution.
        shape: of the weight in the model.
        format: of its integers ("int4:group=32").
        size, floats: of the weight in bytes, as integers with scales and as it was.
        range: of its activations, where calibration found one.
        snr: signal to noise of its results in dB, for activations of the model with floats; None: not measured.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    format: str
    size: int
    floats: int
    snr: float | None = None
    range: Range | None = None

    def as_dict(self) -> dict[str, Any]:
        """For the manifest: numbers that JSON has."""
        snr = None if self.snr is None or math.isinf(self.snr) else round(self.snr, 1)
        return {
            "name": self.name, "kind": self.kind, "shape": list(self.shape), "format": self.format, "bytes": self.size,
            "float_bytes": self.floats, "snr": snr,
            **({} if self.range is None else {"scale": self.range.scale, "zero": self.range.zero}),
        }  # fmt: skip


@dataclass(frozen=True)
class QuantizationReport:
    """An entry point that was quantised.

    Attributes:
        entry: its name.
        format: that was asked for.
        layers: in the order of the graph.
        left: weights that stayed floats, and why.
        error: of the model's results, relative to those of the model with floats; None: not measured.
        measured: on what: "its examples", "12 calibration inputs".
    """

    entry: str
    format: str
    layers: tuple[LayerRow, ...]
    left: tuple[Left, ...]
    error: float | None = None
    measured: str = ""

    @property
    def worst(self) -> list[LayerRow]:
        """The layers that add errors, those with the most noise first."""
        noisy = [row for row in self.layers if row.snr is not None and not math.isinf(row.snr)]
        return sorted(noisy, key=lambda row: row.snr or 0.0)

    def summary(self) -> str:
        """One line."""
        size, floats = (sum(getattr(row, name) for row in self.layers) for name in ("size", "floats"))
        weights = sum(math.prod(row.shape) for row in self.layers)
        parts = [f"{counted(len(self.layers), 'layer')} to {self.format}"]
        if weights:
            parts.append(f"{megabytes(floats)} -> {megabytes(size)}, {8 * size / weights:.2f} bits a weight")
        if self.error is not None:
            parts.append(f"error {self.error:.1e} of the model with floats")
        if self.left:
            parts.append(f"{len(self.left)} left")
        return "; ".join(parts)

    def lines(self) -> list[str]:
        """A table."""
        rows = [
            f"{row.name:<40} {row.kind:<12} {'x'.join(map(str, row.shape)):<16} {row.format:<14} "
            f"{megabytes(row.floats):>9} -> {megabytes(row.size)}  {_decibels(row.snr)}".rstrip()
            for row in self.layers
        ]
        return [f"{self.entry}: {self.summary()}", *rows, *(f"{x.name:<40} left: {x.reason}" for x in self.left)]

    def as_dict(self) -> dict[str, Any]:
        """The manifest's row."""
        finite = self.error is not None and math.isfinite(self.error)
        return {
            "entry": self.entry, "format": self.format, "error": self.error if finite else None,
            "measured": self.measured, "layers": [row.as_dict() for row in self.layers],
            "left": [{"name": x.name, "reason": x.reason} for x in self.left],
        }  # fmt: skip


def _decibels(snr: float | None) -> str:
    if snr is None:
        return ""
    return "exact" if snr == math.inf else f"{snr:.1f} dB"


def summarise(reports: Sequence[QuantizationReport]) -> str:
    """The line of a compile's stage."""
    return ". ".join(r.summary() if len(reports) == 1 else f"{r.entry}: {r.summary()}" for r in reports)


def manifest_row(reports: Sequence[QuantizationReport], skip: Sequence[str]) -> Mapping[str, Any] | None:
    """What the manifest says; None of a model that was not quantised."""
    if not reports:
        return None
    return {"format": reports[0].format, "skip": list(skip), "entry_points": [r.as_dict() for r in reports]}

"""How long a machine takes to read weights once, which is what a call of few rows waits for."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from ..machine.gpu import Device
from .report import QuantizationReport

__all__ = ["reading_row"]

_BYTES, _TIMES = 1 << 26, 4  # more than the caches of most machines hold


def reading_row(report: QuantizationReport, device: Device | None) -> dict[str, Any]:
    """What a call reads of the layers that were quantised, and the least time for it.

    Returns:
        by: whose memory; rate: bytes a second; bytes and float_bytes: of all weights that a call reads whole, in the
        format and as floats; seconds and float_seconds: that these take. Of an embedding a call reads few rows.
    """
    rate = _rate() if device is None else device.bandwidth * 1e12
    read = [layer for layer in report.layers if layer.kind != "embedding"]
    size, floats = sum(layer.size for layer in read), sum(layer.floats for layer in read)
    by = "one thread of this machine" if device is None else device.name
    return {
        "by": by, "rate": rate, "bytes": size, "float_bytes": floats, "seconds": size / rate,
        "float_seconds": floats / rate,
    }  # fmt: skip


def _rate() -> float:
    """Bytes a second that one thread reads from memory, measured."""
    numbers = np.ones(_BYTES // 4, np.float32)
    taken = []
    for _ in range(_TIMES):
        start = perf_counter()
        numbers.max()
        taken.append(perf_counter() - start)
    return _BYTES / min(taken)

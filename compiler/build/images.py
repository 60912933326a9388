"""A compiled kernel of a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["KernelImage"]


@dataclass(frozen=True)
class KernelImage:
    """symbol: its name; image: a cubin, or PTX that ends with NUL; facts: what triton_worker.py says of it."""

    symbol: str
    image: bytes
    facts: Mapping[str, Any]

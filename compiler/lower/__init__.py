"""Lowering: a graph of ATen operators becomes a program of the loop IR, by tables (one file a family)."""

from . import families  # noqa: F401  (enters all lowerings into the registry)
from .core.driver import lower
from .core.layout import shared_layouts

__all__ = ["lower", "shared_layouts"]

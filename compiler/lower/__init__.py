"""Lowering: a graph of ATen operators becomes a program of the loop IR, by tables (one file a family)."""

from .driver import lower
from .layout import shared_layouts

__all__ = ["lower", "shared_layouts"]

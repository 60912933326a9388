"""What a package needs to run: the loader, its native library and the light commands. Needs numpy only, never torch."""

from __future__ import annotations

from .errors import Error, InputError, LoadError, RunError
from .loader import EntryPoint, Model, load
from .signature import Port, Signature, Symbol

__all__ = [
    "EntryPoint", "Error", "InputError", "LoadError", "Model", "Port", "RunError", "Signature", "Symbol", "load",
]  # fmt: skip

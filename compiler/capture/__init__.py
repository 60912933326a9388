"""Capture: from a model to a functional graph of aten operators.

Names are imported when they are first asked for: the backend of torch.compile needs parts of this room without
torch.export.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..model.graph import ModelGraph, SizeSymbol, TensorSpec, format_graph
    from ..model.source_lines import Origin, origin
    from .export import CaptureRequest, capture, capture_request
    from .source import Source, load_source

__all__ = [
    "CaptureRequest",
    "ModelGraph",
    "Origin",
    "SizeSymbol",
    "Source",
    "TensorSpec",
    "capture",
    "capture_request",
    "format_graph",
    "load_source",
    "origin",
]

_HOMES = {
    **dict.fromkeys(("ModelGraph", "SizeSymbol", "TensorSpec", "format_graph"), "..model.graph"),
    **dict.fromkeys(("Origin", "origin"), "..model.source_lines"),
    **dict.fromkeys(("CaptureRequest", "capture", "capture_request"), ".export"),
    **dict.fromkeys(("Source", "load_source"), ".source"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)

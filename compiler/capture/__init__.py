"""Capture: from a model to a functional graph of aten operators."""

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

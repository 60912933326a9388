"""Capture: from a model to a functional graph of aten operators."""

from .export import CaptureRequest, capture, capture_request
from .graph import ModelGraph, SizeSymbol, TensorSpec, format_graph
from .source import Source, load_source
from .source_lines import Origin, origin

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

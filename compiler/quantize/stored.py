"""A captured model with the integers that a package of it holds: for `mycc verify SOURCE FILE`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model.graph import ModelGraph
from ..number_formats import parse_quantization
from .layers import find_layers
from .rewrite import Quantized, Range, quantized_graph
from .weights import to_integers

__all__ = ["as_stored"]


def as_stored(graph: ModelGraph, manifest: Mapping[str, Any]) -> ModelGraph:
    """The entry point with the weights as integers that the manifest names; as it is when the package has floats."""
    rows = (manifest.get("quantization") or {}).get("entry_points", [])
    stored = {layer["name"]: layer for row in rows if row["entry"] == graph.name for layer in row["layers"]}
    if not stored:
        return graph
    layers, _ = find_layers(graph)
    found = []
    for layer in layers:
        own = stored.get(layer.name)
        if own is not None:
            wanted = parse_quantization(own["format"].removesuffix(" static"))
            assert wanted is not None, "a format has a name"
            by = Range(own["scale"], own["zero"]) if "scale" in own else None
            dynamic = wanted.format.activations == "dynamic"
            found.append(Quantized(layer, to_integers(layer.matrix, wanted.format), dynamic, by))
    return quantized_graph(graph, found)

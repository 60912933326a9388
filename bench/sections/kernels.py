"""How many kernels the models become, and what a layer writes to memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .common import Figure, Settings, at_most, holds

BERT_KERNELS, BERT_WRITES = 8, 12 * 768  # of a layer; floats per token
_LAYER = re.compile(r"_layer_(\d+)_")


def run(settings: Settings) -> Iterator[Figure]:
    from mycc.runtime.inspect import inspect_package

    for model in settings.models:
        (entry,) = inspect_package(settings.package(model))["entry_points"]
        rows = entry["kernels"]
        yield Figure("kernels", f"{model}, kernels", len(rows), note=_kinds(rows))
        if model == "bert":
            yield from _layers(rows, tokens=128)
        if model in ("resnet50", "mobilenetv2"):
            yield _convolutions(model, rows, settings.facts(model)["convolutions"])


def _kinds(rows: list[dict[str, Any]]) -> str:
    kinds = [row["kind"] for row in rows]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


def _layers(rows: list[dict[str, Any]], tokens: int) -> list[Figure]:
    """A kernel belongs to the layer whose parameters it reads; one that reads none to the layer before it."""
    from mycc.runtime.formula import evaluate

    layers: dict[int, list[int]] = {}
    current = -1
    for row in rows:
        found = [int(match[1]) for buffer in row["buffers"] if (match := _LAYER.search(buffer))]
        current = max(found, default=current)
        if current >= 0:
            layers.setdefault(current, []).append(evaluate(row["writes"], {}) // 4)
    most = max(len(writes) for writes in layers.values())
    floats = max(sum(writes) for writes in layers.values()) / tokens
    note = f"{len(layers)} layers; {BERT_WRITES} = 12 x 768"
    return [
        at_most("kernels", "bert, kernels of a layer", most, BERT_KERNELS),
        at_most("kernels", "bert, floats that a layer writes per token", floats, BERT_WRITES, note=note),
    ]


def _convolutions(model: str, rows: list[dict[str, Any]], wanted: int) -> Figure:
    """Kernels of convolutions; what is left over of batch norm, activation or residual would be a kernel more."""
    convolutions = [row for row in rows if any("conv" in op for op in row["ops"])]
    others = [row["name"] for row in rows if row not in convolutions]
    note = "others: " + ", ".join(others)
    return holds("kernels", f"{model}, a convolution is one kernel", len(convolutions) == wanted,
                 f"{wanted} kernels", note=f"{len(convolutions)} kernels; {note}")  # fmt: skip

"""How each tensor of the weights is made from the model's state_dict(): a text that a package keeps for later weights.

{"model": [{"names": ["first.weight"], "dtype": "f32", "shape": [4, 8]}, ...],
 "tensors": [{"name": "first_weight", "layout": {"kind": "Panels", ...}, "origin": {...}}, ...]}

A tensor of the model whose values have decided about code has their SHA-256 as "values".
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ...runtime.strict_json import encode
from ..capture.state import memory_key
from ..lower.core import constants
from ..lower.core.constants import Constant, Layout, PhaseTaps
from ..model.graph import ModelGraph, dtype_name
from ..model.origins import FromModel, Origin, encoded

__all__ = ["MEMBER", "Origins", "agreed", "digest", "layout_of", "recipes"]

#: below src/
MEMBER = "weights.json"


class Origins:
    """Where the constants of all entry points come from; `graphs` are those behind the graph passes."""

    def __init__(self, graphs: Sequence[ModelGraph]) -> None:
        self._rows = [dict(_constants(graph)) for graph in graphs]

    def of(self, entry: int, constant: Constant) -> Origin | None:
        """None: that is not known, or the lowering has made it."""
        known = self._rows[entry].get(constant.target) if self._rows else None
        return known[1] if known is not None and known[0] is constant.tensor else None


def _constants(graph: ModelGraph) -> Iterator[tuple[str, tuple[torch.Tensor, Origin | None]]]:
    for region in graph.regions.values():
        yield from _constants(region)
    for target, tensor in graph.constants.items():
        yield target, (tensor, graph.origins.get(target))


def recipes(
    captured: Sequence[ModelGraph], graphs: Sequence[ModelGraph], rows: Sequence[tuple[str, Layout, Origin | None]]
) -> str:
    """The text; rows: name, layout and origin of each tensor of the weights, in their order."""
    tensors = [{"name": name, "layout": _layout(layout), "origin": _origin(origin)} for name, layout, origin in rows]
    by_value = {name for graph in graphs for name in graph.by_value}
    return encode({"model": list(_model(captured, by_value)), "tensors": tensors})


def _model(captured: Sequence[ModelGraph], by_value: set[str]) -> Iterator[dict[str, Any]]:
    """A row for each tensor of the model's state_dict(), by all its names; without a dtype where nothing reads it."""
    found: dict[object, tuple[torch.Tensor | None, dict[str, None]]] = {}
    for graph in captured:
        state = {c.name: c.initial for c in graph.in_place if c.initial is not None}
        for target, origin in graph.origins.items():
            if isinstance(origin, FromModel):
                named = next((state[name] for name in origin.names if name in state), None)
                tensor = graph.constants.get(target, named)
                key = origin.names[0] if tensor is None else memory_key(tensor)
                found.setdefault(key, (tensor, {}))[1].update(dict.fromkeys(origin.names))
    for tensor, names in found.values():
        form = {} if tensor is None else {"dtype": dtype_name(tensor.dtype), "shape": list(tensor.shape)}
        values = {} if tensor is None or by_value.isdisjoint(names) else {"values": digest(tensor)}
        yield {"names": list(names), **form, **values}


def digest(tensor: torch.Tensor) -> str:
    """The SHA-256 of a tensor's values."""
    raw = tensor.detach().contiguous().reshape(-1)
    return hashlib.sha256(raw.view(torch.uint8).numpy().tobytes() if raw.numel() else b"").hexdigest()


def _origin(origin: Origin | None) -> Any:
    try:
        return None if origin is None else encoded(origin)
    except TypeError:
        return None


def agreed(origins: Sequence[Origin | None]) -> Origin | None:
    """The origin of a tensor that is stored once for several constants of the same values; None where they differ."""
    first = origins[0]
    return first if all(o == first for o in origins) else None


def _layout(layout: Layout) -> dict[str, Any]:
    return {"kind": type(layout).__name__, **dataclasses.asdict(layout)}


def layout_of(row: Mapping[str, Any]) -> Layout:
    """The layout that a recipe names."""
    fields = {name: _tuple(value) for name, value in row.items() if name != "kind"}
    if fields.get("phase") is not None:
        fields["phase"] = PhaseTaps(*fields["phase"])
    made: Layout = getattr(constants, row["kind"])(**fields)
    return made


def _tuple(value: Any) -> Any:
    return tuple(_tuple(v) for v in value) if isinstance(value, list) else value

"""The constants of a package, over all its entry points: each tensor and layout once, packed when it is written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ..capture.state import memory_key
from ..ir.buffers import Buffer
from ..ir.dtypes import DTYPES, from_torch
from ..lower.core.constants import Constant, Dense, Layout
from ..lower.core.driver import Lowered
from ..model.graph import InPlace, ModelGraph
from ..model.origins import FromModel, Origin
from .recipes import Origins, agreed
from .safetensors import WeightTensor, layout


@dataclass
class Weights:
    """The tensors in file order, and the byte offset of every const buffer in the file's data.

    device: the part of the data, in bytes, that programs for GPUs read; what they share with the CPU's lies there too.
    state: where the first value of each tensor of the state lies; None: it is zero and takes no place.
    rows: name, layout and origin of each tensor (recipes.py).
    """

    tensors: list[WeightTensor] = field(default_factory=list)
    offsets: dict[Buffer, int] = field(default_factory=dict)
    parameter_bytes: int = 0
    device: tuple[int, int] = (0, 0)
    state: tuple[int | None, ...] = ()
    rows: list[tuple[str, Layout, Origin | None]] = field(default_factory=list)


@dataclass(frozen=True)
class Packed:
    """A constant's bytes, made when they are asked for and not kept."""

    constant: Constant

    def __call__(self) -> memoryview:
        data = self.constant.layout.pack(self.constant.tensor.detach())
        raw = data.contiguous().view(torch.uint8) if data.numel() else torch.empty(0, dtype=torch.uint8)
        return memoryview(raw.numpy())  # type: ignore[arg-type]


def collect_weights(
    programs: Sequence[Lowered],
    device_programs: Sequence[Lowered] = (),
    state: Sequence[InPlace] = (),
    graphs: Sequence[ModelGraph] = (),
) -> Weights:
    """Every constant that some kernel reads; equal tensors of several entry points are stored once.

    device_programs: the entry points as GPUs run them; their constants lie together, at the end.
    graphs: the entry points behind the graph passes; without them no origins are known.
    """
    weights = Weights()
    many = max(len(programs), len(device_programs)) > 1
    origins = Origins(graphs)
    found: dict[object, tuple[Constant, list[Buffer]]] = {}
    known: dict[Constant, list[Origin | None]] = {}
    seen: set[object] = set()
    digests: dict[object, str] = {}
    for entry, lowered in (*enumerate(device_programs), *enumerate(programs)):
        read = {b for node in lowered.program.nodes for b in node.reads()}
        for constant, buffer in lowered.constants.items():
            if buffer not in read:
                continue
            first, buffers = found.setdefault(_identity(constant, digests if many else None), (constant, []))
            buffers.append(buffer)
            known.setdefault(first, []).append(origins.of(entry, constant))
            memory = constant.tensor.untyped_storage().data_ptr(), constant.tensor.shape
            weights.parameter_bytes += constant.tensor.nbytes if memory not in seen else 0
            seen.add(memory)
    device_buffers = {b for lowered in device_programs for b in lowered.constants.values()}
    rows = sorted(found.values(), key=lambda row: row[1][0] in device_buffers)  # stable: their order stays
    names: set[str] = set()
    firsts = [_first_value(change) for change in state]
    stored = [constant for constant in firsts if constant is not None]
    weights.tensors.extend(_tensor(constant, names) for constant in (*stored, *(constant for constant, _ in rows)))
    made: list[tuple[Layout, Origin | None]] = [(c.layout, FromModel((c.target,))) for c in stored]
    made += [(constant.layout, agreed(known[constant])) for constant, _ in rows]
    weights.rows = [(tensor.name, *row) for tensor, row in zip(weights.tensors, made, strict=True)]
    placed = layout(weights.tensors)
    places = iter(placed.offsets)
    weights.state = tuple(None if constant is None else next(places) for constant in firsts)
    for place, (_, buffers) in zip(places, rows, strict=True):
        weights.offsets.update(dict.fromkeys(buffers, place))
    begins = [place for b, place in weights.offsets.items() if b in device_buffers]
    weights.device = (min(begins), placed.size) if begins else (0, 0)
    return weights


def _first_value(change: InPlace) -> Constant | None:
    assert change.initial is not None, "an argument is no state"
    tensor = change.initial.detach()
    raw = tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor
    return Constant(change.name, tensor, Dense()) if bool(raw.any()) else None


def _tensor(constant: Constant, names: set[str]) -> WeightTensor:
    name = constant.target
    while name in names:
        name += "_"
    names.add(name)
    row = DTYPES[from_torch(constant.tensor.dtype)]
    return WeightTensor(name, row.safetensors, (constant.elements,), Packed(constant))


def _identity(constant: Constant, digests: dict[object, str] | None) -> object:
    """What makes two constants the same: their memory, or with several entry points their contents, whose digests are
    kept by memory."""
    tensor = constant.tensor
    memory = memory_key(tensor)
    if digests is None:
        return memory, constant.layout, constant.target
    if memory not in digests:
        raw = tensor.detach().contiguous()
        data = raw.reshape(-1).view(torch.uint8).numpy() if raw.numel() else b""
        digests[memory] = hashlib.sha256(data).hexdigest()  # type: ignore[arg-type]
    return (digests[memory], tuple(tensor.shape), str(tensor.dtype), constant.layout)

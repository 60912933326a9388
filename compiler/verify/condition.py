"""What other roundings do to a model's results: its float64 run with noise of the size of one rounding per operator.

Any honest evaluation in float32 rounds in places of its own. Two numbers follow from runs with such noise, and both
belong to the computation alone, not to any code for it:

- how far results move: the error that every evaluation has to be allowed (a sum that cancels is allowed more);
- which elements depend on a choice that rounding makes (a comparison, a rounding to whole numbers, the order of
  elements that are nearly equal): they jump, while noise that is eight times as large moves others eight times as far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..model.graph import ModelGraph
from .interpreter import Node, is_getitem, run_graph
from .reference import reference_call, reference_constant, widened
from .ties import REVERSIBLE

__all__ = ["Noise", "chooses", "jumps", "noisy"]

#: the second amplitude of `jumps`
LARGE = 8.0
#: operators that only move elements, or pick them: they round nothing
_MOVES = frozenset(
    """
    abs alias as_strided cat clamp clamp_max clamp_min clone constant_pad_nd contiguous copy detach diagonal embedding
    expand flip gather index index_put index_select masked_fill max maximum min minimum movedim neg pad permute relu
    repeat reshape roll scatter select select_scatter slice slice_scatter sort split squeeze stack t topk transpose
    unbind unfold unsqueeze view where
    """.split()
)
#: operators of floats whose results are floats, but jump
_STEPS = frozenset("ceil fake_quantize_per_channel_affine fake_quantize_per_tensor_affine floor floor_divide fmod frac "
                   "heaviside remainder round sign trunc".split())  # fmt: skip


@dataclass(frozen=True)
class Noise:
    """One pattern of noise.

    Attributes:
        seed: of the pattern; the same seed gives the same pattern at any amplitude.
        amplitude: 1.0: each element moves by at most half a unit in the last place of its dtype.
        reverse: equal elements are taken in the other order, where torch leaves it open (ties.py).
    """

    seed: int
    amplitude: float = 1.0
    reverse: bool = False


def noisy(graph: ModelGraph, inputs: Sequence[Tensor], noise: Noise) -> list[Tensor]:
    """The graph in float64 with noise on each operator's results that its own dtype cannot hold exactly."""
    return _run(graph, inputs, noise, torch.Generator().manual_seed(noise.seed))


def _run(graph: ModelGraph, inputs: Sequence[Tensor], noise: Noise, generator: torch.Generator) -> list[Tensor]:
    def call(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = reference_call(node, args, kwargs, noise.reverse)
        return _moved(result, node.meta.get("val"), noise.amplitude, generator) if _rounds(node) else result

    body = partial(_run, noise=noise, generator=generator)
    results = run_graph(graph.module.graph, [widened(t) for t in inputs], reference_constant(graph, body), call)
    return list(widened(results))


def _rounds(node: Node) -> bool:
    return not is_getitem(node) and _base_name(node) not in _MOVES


def _base_name(node: Node) -> str:
    """`add` of aten.add.Tensor."""
    schema = getattr(node.target, "_schema", None)
    return str(schema.name).rpartition("::")[2] if schema is not None else ""


def _moved(value: Any, own: Any, amplitude: float, generator: torch.Generator) -> Any:
    if isinstance(value, (tuple, list)):
        parts = own if isinstance(own, (tuple, list)) else [None] * len(value)
        return type(value)(_moved(v, o, amplitude, generator) for v, o in zip(value, parts, strict=True))
    if not isinstance(value, Tensor) or not isinstance(own, Tensor) or not value.is_floating_point():
        return value
    if value.dtype == own.dtype or not own.dtype.is_floating_point:
        return value
    step = torch.rand(value.shape, dtype=value.dtype, generator=generator).sub_(0.5)
    step *= value * (amplitude * torch.finfo(own.dtype).eps)
    return value + torch.where((value.to(own.dtype) == value) | ~torch.isfinite(value), 0.0, step)


def chooses(graph: ModelGraph) -> bool:
    """Whether results may jump: somewhere floats become integers or booleans, or are rounded, or ordered."""
    regions = any(chooses(region) for region in graph.regions.values())
    return regions or any(_is_choice(node) for node in graph.module.graph.nodes)


def _is_choice(node: Node) -> bool:
    if node.op != "call_function" or is_getitem(node):
        return False
    if _base_name(node) in _STEPS:
        return True
    if node.target in REVERSIBLE:
        return True
    read = any(_is_float(v) for n in node.all_input_nodes for v in _flat(n.meta.get("val")))
    return read and any(not _is_float(v) for v in _flat(node.meta.get("val")))


def _is_float(value: Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def _flat(value: Any) -> list[Tensor]:
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in _flat(v)]
    return [value] if isinstance(value, Tensor) else []


def jumps(exact: Tensor, small: Tensor, large: Tensor) -> Tensor:
    """Mask of the elements that do not follow the noise: `small` and `large` are runs of one pattern at amplitudes 1
    and LARGE, `exact` the run without."""
    if not exact.is_floating_point():
        return (small != exact) | (large != exact)
    d, wide = small - exact, large - exact
    limit = torch.maximum(wide.abs(), LARGE * d.abs())
    finite = torch.isfinite(exact)
    same_kind = (torch.isfinite(small) == finite) & (torch.isfinite(large) == finite)
    return ~same_kind | (finite & ((wide - LARGE * d).abs() > limit / 2))

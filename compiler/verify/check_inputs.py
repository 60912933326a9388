"""Inputs for verification: the sizes to verify at, and tensors made from seeds (runtime/generator.py).

The inputs are like the examples: they have their properties (properties.py) and, of integers, their range. Where torch
refuses what was drawn, or computes nothing of it that says much, others are tried: see `attempts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy
import torch

from ...runtime.certificate import InputCheck
from ...runtime.generator import Fill, fill_tensor
from ..model.graph import ModelGraph, SizeSymbol, dtype_name
from .properties import evident_fill

_SEED = 20240607
#: what draws are made smaller by, one after the other, where larger ones overflow
_CALMER = (16.0, 256.0)
aten = torch.ops.aten
#: operators that ask for an argument in ascending order -> its position
_ORDERED = {aten.searchsorted.Tensor: 0, aten.bucketize.Tensor: 1}


@dataclass(frozen=True)
class Draw:
    """One set of inputs: their sizes (symbol -> value), the number that seeds them, and whether integers have many
    duplicates and both ends of their range."""

    sizes: dict[str, int]
    index: int
    edges: bool = False


@dataclass(frozen=True)
class Attempt:
    """Inputs of one draw. checks: how anyone makes them again; empty: they are made from the example's own values."""

    sizes: dict[str, int]
    checks: tuple[InputCheck, ...]
    inputs: tuple[torch.Tensor, ...]
    from_examples: bool = False
    final: bool = False


def draws(graph: ModelGraph, seed: int = 0) -> list[Draw]:
    """The draws that are verified: one at the examples' sizes and, of a graph with dynamic sizes, one at others.

    Where integers or booleans are among the inputs, about half of those of the first draw are duplicates and the ends
    of their ranges. The other half are as any draw has them, so that a second draw of the same sizes would add nothing.
    """
    indices = any(not spec.dtype.is_floating_point and not spec.dtype.is_complex for spec in graph.inputs)
    first, other, index = example_sizes(graph), other_sizes(graph), 1000 * seed
    return [Draw(first, index, edges=indices), *([] if other is None else [Draw(other, index + 1)])]


def attempts(graph: ModelGraph, draw: Draw) -> Iterator[Attempt]:
    """Inputs of a draw, the best first: with duplicates and ends, without, smaller ones, then such that keep the
    examples' integers, such that are near the examples, and the examples themselves (`final`)."""
    options = [(draw.edges, 1.0), *([(False, 1.0)] if draw.edges else [])]
    if any(spec.dtype.is_floating_point for spec in graph.inputs):
        options += [(False, scale) for scale in _CALMER]
    for edges, scale in options:
        checks = input_checks(graph, draw.sizes, draw.index, edges, scale)
        yield Attempt(draw.sizes, checks, tuple(make_input(check) for check in checks))
    sizes = example_sizes(graph)
    checks = input_checks(graph, sizes, draw.index)
    drawn = tuple(make_input(check) for check in checks)
    pairs = list(zip(drawn, graph.examples, strict=True))
    if any(x.is_floating_point() for x in graph.examples) and not all(x.is_floating_point() for x in graph.examples):
        yield Attempt(sizes, (), tuple(x if x.is_floating_point() else own for x, own in pairs), True)
    if any(x.is_floating_point() for x in graph.examples):
        yield Attempt(sizes, (), tuple(_near(own, draw.index + i) for i, own in enumerate(graph.examples)), True)
    yield Attempt(sizes, (), tuple(graph.examples), True, final=True)


def _near(example: torch.Tensor, seed: int) -> torch.Tensor:
    """Floats that are off by up to 5 %."""
    if not example.is_floating_point():
        return example
    factor = fill_tensor("f64", example.shape, Fill(_SEED + seed, (1.0, 1 / 64)))
    return (example.detach().double() * torch.from_numpy(np.asarray(factor))).to(example.dtype)


def example_sizes(graph: ModelGraph) -> dict[str, int]:
    """The values of the size symbols in the example inputs."""
    return {s.name: (graph.examples[s.input].shape[s.dim] - s.offset) // s.scale for s in graph.symbols}


def other_sizes(graph: ModelGraph) -> dict[str, int] | None:
    """Sizes to verify at besides the examples'; None for a graph without size symbols.

    The smallest first dimensions (where torch.export may have specialised), about half of the others, odd.
    """
    known = example_sizes(graph)
    return {s.name: _other(s, known[s.name]) for s in graph.symbols} or None


def _other(symbol: SizeSymbol, value: int) -> int:
    wanted = 1 if symbol.dim == 0 else (value // 2) | 1
    smallest = max(symbol.min, 1)
    chosen = min(max(wanted, smallest), symbol.max)
    return chosen if chosen != value or value + 1 > symbol.max else value + 1


def input_checks(
    graph: ModelGraph, sizes: Mapping[str, int], case: int = 0, edges: bool = False, scale: float = 1.0
) -> tuple[InputCheck, ...]:
    """How each input is filled: like its example, at these sizes.

    Args:
        case: another one gives other inputs.
        edges: integers have many duplicates and both ends of their range.
        scale: what floats are divided by.
    """
    values = {s.symbol: sizes[s.name] for s in graph.symbols}
    ordered = _ordered(graph)
    return tuple(
        InputCheck(
            dtype_name(spec.dtype),
            tuple(_size(n, values) for n in spec.shape),
            _steady(example, _SEED + 1000 * case + i)
            if i in graph.steady
            else _altered(_fill(example, _SEED + 1000 * case + i, i in ordered), edges, scale),
        )
        for i, (spec, example) in enumerate(zip(graph.inputs, graph.examples, strict=True))
    )


def _size(size: int | sympy.Expr, values: Mapping[sympy.Symbol, int]) -> int:
    return int(size.subs(values)) if isinstance(size, sympy.Expr) else int(size)


def _ordered(graph: ModelGraph) -> set[int]:
    """Inputs that searchsorted and bucketize take as their boundaries."""
    placeholders = graph.module.graph.find_nodes(op="placeholder")
    calls = [(n, _ORDERED[n.target]) for n in graph.module.graph.nodes if n.target in _ORDERED]
    asked = {n.args[at] for n, at in calls if len(n.args) > at}
    return {i for i, placeholder in enumerate(placeholders) if placeholder in asked}


def _fill(example: torch.Tensor, seed: int, ordered: bool) -> Fill:
    values = example.detach().resolve_conj().resolve_neg()
    return evident_fill((values.float() if values.dtype == torch.bfloat16 else values).numpy(), seed, ordered)


def _steady(example: torch.Tensor, seed: int) -> Fill:
    """The example's own value; of several numbers the mean."""
    if not example.is_floating_point():
        return Fill(seed, limits=(int(example.min()), int(example.max())))
    return Fill(seed, spread=(float(example.double().mean()), 0.0))


def _altered(fill: Fill, edges: bool, scale: float) -> Fill:
    if fill.limits is not None:
        least, most = fill.limits
        return fill._replace(edges=True) if edges and least < most else fill
    if fill.spread is None or scale == 1.0:
        return fill
    low, high = fill.bounds or (None, None)
    smaller = None if fill.bounds is None else (low and low / scale, high)
    return fill._replace(spread=(fill.spread[0] / scale, fill.spread[1] / scale), bounds=smaller)


def make_input(check: InputCheck) -> torch.Tensor:
    """The tensor of an InputCheck."""
    array: Any = fill_tensor(check.dtype, check.shape, check.fill)
    if check.dtype == "bf16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)

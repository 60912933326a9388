"""Inputs for verification: the sizes to verify at, and tensors made from seeds (runtime/generator.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy
import torch

from ...runtime.certificate import InputCheck
from ...runtime.generator import Fill, example_fill, fill_tensor
from ..capture.graph import ModelGraph, SizeSymbol, dtype_name

_SEED = 20240607


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


def input_checks(graph: ModelGraph, sizes: Mapping[str, int], case: int = 0) -> tuple[InputCheck, ...]:
    """How each input is filled: like its example, at these sizes."""
    values = {s.symbol: sizes[s.name] for s in graph.symbols}
    return tuple(
        InputCheck(
            dtype_name(spec.dtype),
            tuple(_size(n, values) for n in spec.shape),
            _fill(example, _SEED + 1000 * case + i),
        )
        for i, (spec, example) in enumerate(zip(graph.inputs, graph.examples, strict=True))
    )


def _size(size: int | sympy.Expr, values: Mapping[sympy.Symbol, int]) -> int:
    return int(size.subs(values)) if isinstance(size, sympy.Expr) else int(size)


def _fill(example: torch.Tensor, seed: int) -> Fill:
    values = example.detach().resolve_conj().resolve_neg()
    return example_fill((values.float() if values.dtype == torch.bfloat16 else values).numpy(), seed)


def make_input(check: InputCheck) -> torch.Tensor:
    """The tensor of an InputCheck."""
    array: Any = fill_tensor(check.dtype, check.shape, check.fill)
    if check.dtype == "bf16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)

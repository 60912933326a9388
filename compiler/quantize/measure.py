"""What error quantisation adds: layer by layer, and to the results of the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..graph.node import Node
from ..graph.patterns import is_op
from ..model.graph import ModelGraph
from ..verify.interpreter import call_torch, run_graph
from .rewrite import Quantized, dynamic_linear, operands, rounded

__all__ = ["added_noise", "constant", "decibels", "end_error", "measured_together", "outputs"]


def outputs(graph: ModelGraph, inputs: Sequence[Tensor]) -> list[Tensor]:
    """What the model gives, in its own dtypes."""
    return run_graph(graph.module.graph, inputs, lambda name: constant(graph, name), call_torch)


def added_noise(
    graph: ModelGraph, layers: Iterable[Quantized], samples: Sequence[Sequence[Tensor]]
) -> tuple[dict[str, tuple[float, float]], list[list[Tensor]]]:
    """For each layer the squares of its results and of what its integers change in them, by its constant; and the
    results of the model with floats.

    Each layer gets the activations of the model with floats, so that the errors are its own.
    """
    by_reader = {node: row for row in layers for node, _ in row.layer.readers}
    sums: dict[str, tuple[float, float]] = {}

    def call(node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = call_torch(node, args, kwargs)
        row = by_reader.get(node)
        if row is not None:
            _add_noise(sums, row, result, _with_integers(node, args, kwargs, row))
        return result

    results = [run_graph(graph.module.graph, x, lambda name: constant(graph, name), call) for x in samples]
    return sums, results


@dataclass(frozen=True)
class _Pair:
    """A value of the model with floats, and with integers."""

    exact: Any
    found: Any


def measured_together(
    graph: ModelGraph, layers: Sequence[Quantized], samples: Sequence[Sequence[Tensor]]
) -> tuple[dict[str, tuple[float, float]], list[list[Tensor]], list[list[Tensor]]] | None:
    """added_noise(), and the results of the model with integers, in one walk: each weight becomes floats once. None
    where the two have to run one after the other: branches, activations as integers."""
    plain = all(not r.dynamic and r.range is None and r.layer.weight.dtype != torch.float64 for r in layers)
    if graph.regions or not plain:
        return None
    by_reader = {node: row for row in layers for node, _ in row.layer.readers}
    sums: dict[str, tuple[float, float]] = {}

    def call(node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        exact, found = (_side(args, kwargs, place) for place in ("exact", "found"))
        draws = torch.random.get_rng_state() if _is_random(node) else None
        result, row = call_torch(node, *exact), by_reader.get(node)
        if row is None:
            if not _differ(args, kwargs):
                return result
            if draws is not None:  # both models draw the same numbers
                torch.random.set_rng_state(draws)
            return _Pair(result, call_torch(node, *found))
        weight = row.floats()
        own = _with_weight(node, *exact, row, weight)
        _add_noise(sums, row, result, own)
        return _Pair(result, _with_weight(node, *found, row, weight) if _differ(args, kwargs) else own)

    ends = [run_graph(graph.module.graph, x, lambda name: constant(graph, name), call) for x in samples]
    exact, found = ([_side((end,), {}, place)[0][0] for end in ends] for place in ("exact", "found"))
    return sums, exact, found


def _is_random(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def _side(args: tuple[Any, ...], kwargs: dict[str, Any], place: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of one of the two models."""

    def own(value: Any) -> Any:
        if isinstance(value, _Pair):
            return getattr(value, place)
        return type(value)(map(own, value)) if isinstance(value, (tuple, list)) else value

    return tuple(map(own, args)), {key: own(value) for key, value in kwargs.items()}


def _differ(*values: Any) -> bool:
    """Whether something in it is a pair."""
    parts = (v.values() if isinstance(v, dict) else v for v in values if isinstance(v, (tuple, list, dict)))
    return any(isinstance(v, _Pair) for v in values) or any(_differ(*part) for part in parts)


def constant(graph: ModelGraph, name: str) -> Any:
    """What a get_attr node of the graph stands for: a tensor, or the body of control flow as a function."""
    if name in graph.regions:
        return lambda *operands: outputs(graph.regions[name], operands)
    return graph.constants[name]


def _with_integers(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any], row: Quantized) -> Tensor:
    """The operator with its weight, and its activations where they are, quantised."""
    values = {a: value for a, value in zip(node.args, args, strict=True) if isinstance(a, torch.fx.Node)}
    if row.dynamic and not is_op(node, "embedding"):
        x, bias = operands(node)
        own = row.integers
        return dynamic_linear(
            values[x], own.values, own.scales.float().reshape(-1), None if bias is None else values[bias]
        )
    return _with_weight(node, args, kwargs, row, row.floats())


def _with_weight(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any], row: Quantized, weight: Tensor) -> Tensor:
    """The operator with another weight, and its activations rounded where they are quantised."""
    place = next(p for n, p in row.layer.readers if n is node)
    given = list(args)
    given[place] = weight if args[place].shape == weight.shape else weight.t()
    if row.range is not None and not is_op(node, "embedding"):
        given[place - 1] = rounded(given[place - 1], row.range)
    result: Tensor = node.target(*given, **kwargs)
    return result


def _add_noise(sums: dict[str, tuple[float, float]], row: Quantized, result: Tensor, other: Tensor) -> None:
    signal, noise = sums.get(row.layer.target, (0.0, 0.0))
    exact = result.double()
    sums[row.layer.target] = signal + _square(exact), noise + _square(exact - other.double())


def _square(x: Tensor) -> float:
    return float(x.square().sum())


def decibels(signal: float, noise: float) -> float:
    """The ratio of signal to noise in dB; infinite without noise."""
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal > 0 else -math.inf


def end_error(exact: Sequence[Sequence[Tensor]], found: Sequence[Sequence[Tensor]]) -> float:
    """The error of results: ||found - exact|| / ||exact|| over all samples, of the worst of the outputs; of outputs
    that are integers the share that differs."""
    errors = []
    for output in zip(*(zip(a, b, strict=True) for a, b in zip(exact, found, strict=True)), strict=True):
        if not output[0][0].is_floating_point():
            different = sum(int((a != b).sum()) for a, b in output)
            errors.append(different / max(1, sum(a.numel() for a, _ in output)))
            continue
        noise = sum(_square(b.double() - a.double()) for a, b in output)
        signal = sum(_square(a.double()) for a, _ in output)
        errors.append(math.sqrt(noise / signal) if signal > 0 else (0.0 if noise == 0 else math.inf))
    return max(errors, default=0.0)

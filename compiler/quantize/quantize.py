"""The stage between capture and the graph passes: weights of layers as integers, with a report of what that costs."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...runtime.errors import CompileError
from ..capture.state import memory_key
from ..graph.node import Node
from ..graph.patterns import is_op
from ..model.graph import ModelGraph
from ..number_formats import NumberFormat, Quantization
from ..verify.interpreter import call_torch, run_graph
from .layers import Layer, Left, find_layers
from .measure import added_noise, constant, decibels, end_error, measured_together, outputs
from .report import LayerRow, QuantizationReport
from .rewrite import Quantized, Range, quantized_graph
from .samples import calibration_samples
from .sums import SumOperand, sum_operands
from .weights import IntegerWeight, to_integers

__all__ = ["converted", "quantize"]

_BLAMED = 5  # layers that a refusal names


@dataclass(frozen=True)
class Plan:
    """The layers of an entry point that become integers, and those that do not."""

    layers: tuple[Layer, ...]
    left: tuple[Left, ...]


def quantize(graphs: Sequence[ModelGraph], wanted: Quantization) -> tuple[list[ModelGraph], list[QuantizationReport]]:
    """The entry points with their weights as integers, and what became of each that has layers (of variants nothing is
    said). Those that have none, such as the choice of a token, stay as they are.

    Raises:
        CompileError: a layer does not fit the format; a pattern names no layer; no entry point has a layer; the error
            is larger than allowed.
    """
    plans = [plan(graph, wanted) for graph in graphs]
    _check_patterns(plans, wanted)
    _check_layers(graphs, plans)
    known: dict[object, IntegerWeight] = {}
    found, reports = [], []
    for graph, own in zip(graphs, plans, strict=True):
        if not own.layers:
            found.append(graph)
            continue
        result, report = _entry(graph, own, wanted, known)
        found.append(result)
        if not graph.variant_of:
            reports.append(report)
    return found, reports


def plan(graph: ModelGraph, wanted: Quantization) -> Plan:
    """Which layers a format takes. Raises CompileError for a layer that its groups do not divide."""
    layers, left = find_layers(graph)
    chosen = []
    for layer in layers:
        reason = _stays(layer, wanted)
        if reason:
            left.append(Left(layer.name, reason))
        else:
            _check_group(layer, wanted.format)
            chosen.append(layer)
    return Plan(tuple(chosen), tuple(left))


def check_layers(graphs: Sequence[ModelGraph], wanted: Quantization) -> None:
    """Raises CompileError where no entry point has a layer that a format takes."""
    _check_layers(graphs, [plan(graph, wanted) for graph in graphs])


def _check_layers(graphs: Sequence[ModelGraph], plans: Sequence[Plan]) -> None:
    if any(own.layers for own in plans):
        return
    names = ", ".join(f"'{graph.name}'" for graph in graphs[:_BLAMED])
    raise CompileError(
        f"entry point {names} has no layer to quantise"
        if len(graphs) == 1
        else f"none of {names} has a layer to quantise",
        details=[f"{x.name}: {x.reason}" for own in plans for x in own.left][:_BLAMED],
        hint="Linear layers, embeddings and (with calibration) convolutions are quantised.",
    )


def converted(graph: ModelGraph, wanted: Quantization) -> tuple[ModelGraph, QuantizationReport]:
    """An entry point with its weights as integers, of which nothing is measured."""
    own = plan(graph, wanted)
    _check_patterns([own], wanted)
    rows = [Quantized(x, _integers(x, wanted.format, {}), wanted.format.activations == "dynamic") for x in own.layers]
    report = QuantizationReport(graph.name, str(wanted.format), tuple(_row(r, wanted.format) for r in rows), own.left)
    return quantized_graph(graph, rows), report


def _stays(layer: Layer, wanted: Quantization) -> str:
    """Why a layer keeps its floats; "" when it does not."""
    if wanted.skips(*layer.names):
        return "skipped"
    if layer.kind == "convolution" and not wanted.format.is_static:
        return "the weights of convolutions become integers with calibration"
    return ""


def _check_group(layer: Layer, form: NumberFormat) -> None:
    columns = layer.matrix.shape[1]
    if form.group and columns % form.group:
        divisors = [n for n in (128, 64, 48, 32, 16) if columns % n == 0]
        other = f", or {form.name}:group={divisors[0]}" if divisors else ""
        raise CompileError(
            f"groups of {form.group} do not divide the {columns} columns of '{layer.name}'",
            hint=f"Leave the layer as it is: --quantize-skip {layer.name}{other}.",
        )


def _check_patterns(plans: Sequence[Plan], wanted: Quantization) -> None:
    skipped = {x.name for own in plans for x in own.left if x.reason == "skipped"}
    names = sorted({x.name for own in plans for x in own.layers} | skipped)
    for pattern in wanted.skip:
        one = replace(wanted, skip=(pattern,))
        if not any(one.skips(*x.names) for own in plans for x in own.layers) and not any(one.skips(n) for n in skipped):
            near = difflib.get_close_matches(pattern, names, 1, 0.4)
            known = (
                f"Did you mean {near[0]}?" if near else f"Layers: {', '.join(names[:8])}{', ...' * (len(names) > 8)}."
            )
            raise CompileError(f"--quantize-skip {pattern} names no layer of the model", hint=known)


# one entry point -----------------------------------------------------------------------------------------------------
def _entry(
    graph: ModelGraph, own: Plan, wanted: Quantization, known: dict[object, IntegerWeight]
) -> tuple[ModelGraph, QuantizationReport]:
    samples, measured = _samples(graph, wanted)
    sums = sum_operands(graph, own.layers) if wanted.format.is_static else []
    ranges = _ranges(graph, own.layers, sums, samples) if wanted.format.is_static else {}
    dynamic = wanted.format.activations == "dynamic"
    rows = [Quantized(x, _integers(x, wanted.format, known), dynamic, ranges.get(x.target)) for x in own.layers]
    result = quantized_graph(graph, rows, [(x, ranges[x.like or x.sum]) for x in sums])
    report = QuantizationReport(graph.name, str(wanted.format), tuple(_row(r, wanted.format) for r in rows), own.left)
    if graph.variant_of:
        return result, report
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        noise, exact, found = measured_together(graph, rows, samples) or _measured_apart(graph, result, rows, samples)
    error = end_error(exact, found)
    decibel = {name: decibels(*pair) for name, pair in noise.items()}
    layers = tuple(replace(_row(r, wanted.format), snr=decibel.get(r.layer.target)) for r in rows)
    report = replace(report, layers=layers, error=error, measured=measured)
    _check_error(report, wanted)
    return result, report


def _measured_apart(
    graph: ModelGraph, result: ModelGraph, rows: Sequence[Quantized], samples: Sequence[Sequence[Tensor]]
) -> tuple[dict[str, tuple[float, float]], list[list[Tensor]], list[list[Tensor]]]:
    """Of measured_together(), from two runs that draw the same random numbers."""
    torch.manual_seed(0)
    noise, exact = added_noise(graph, rows, samples)
    torch.manual_seed(0)
    return noise, exact, [outputs(result, x) for x in samples]


def _samples(graph: ModelGraph, wanted: Quantization) -> tuple[list[list[Tensor]], str]:
    if wanted.calibrate is None:
        return [list(graph.examples)], "its examples"
    samples = calibration_samples(graph, wanted.calibrate)
    return samples, f"{len(samples)} calibration inputs"


def _integers(layer: Layer, form: NumberFormat, known: dict[object, IntegerWeight]) -> IntegerWeight:
    key = memory_key(layer.weight), layer.transposed
    if key not in known:
        matrix = layer.matrix
        if not _is_finite(matrix):
            raise CompileError(
                f"the weight of '{layer.name}' holds NaN or infinity, which no integer stands for",
                hint=f"Leave the layer as it is: --quantize-skip {layer.name}.",
            )
        known[key] = to_integers(matrix, form)
    return known[key]


def _is_finite(matrix: Tensor) -> bool:
    """Whether there is no NaN and no infinity; a sum has them too, and is one pass over a large matrix."""
    return bool(torch.isfinite(matrix.sum())) or bool(torch.isfinite(matrix).all())


def _row(row: Quantized, form: NumberFormat) -> LayerRow:
    layer = row.layer
    own, shape = layer.weight, tuple(layer.weight.shape)
    return LayerRow(layer.name, layer.kind, shape, str(form), row.integers.nbytes, own.nbytes, None, row.range)


def _ranges(
    graph: ModelGraph, layers: Sequence[Layer], sums: Sequence[SumOperand], samples: Sequence[Sequence[Tensor]]
) -> dict[Node | str, Range]:
    """The range of the activations of each layer, by its constant, and of operands that sums alone read, by the sum;
    over all samples, with 0 in it, as 8 bits."""
    read = [(x, node, place) for x in layers for node, place in x.readers if not is_op(node, "embedding")]
    readers: dict[Node, tuple[Node | str, int]] = {node: (x.target, place - 1) for x, node, place in read}
    readers |= {x.sum: (x.sum, x.place) for x in sums if not x.like}
    names: dict[Node | str, str] = {x.target: x.name for x in layers}
    seen: dict[Node | str, tuple[float, float]] = {}

    def call(node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if node in readers:
            target, place = readers[node]
            least, most = (float(v) for v in args[place].float().aminmax()) if args[place].numel() else (0.0, 0.0)
            if not (math.isfinite(least) and math.isfinite(most)):
                raise CompileError(
                    f"calibration gives '{names.get(target, target)}' activations that are NaN or infinite"
                )
            low, high = seen.get(target, (0.0, 0.0))
            seen[target] = min(low, least), max(high, most)
        return call_torch(node, args, kwargs)

    for sample in samples:
        run_graph(graph.module.graph, sample, lambda name: constant(graph, name), call)
    return {target: _range(*bounds) for target, bounds in seen.items()}


def _range(low: float, high: float) -> Range:
    scale = (high - low) / 255 or 1.0
    return Range(scale, max(-128, min(127, -128 - round(low / scale))))


def _check_error(report: QuantizationReport, wanted: Quantization) -> None:
    if wanted.max_error is None or report.error is None or report.error <= wanted.max_error:
        return
    blamed = report.worst[:_BLAMED]
    names = ",".join(row.name for row in blamed[:2])
    instead = "int4 with a smaller group, int8" if wanted.format.bits == 4 else "int8 without its activations"
    raise CompileError(
        f"quantised to {report.format} the results of '{report.entry}' have an error of {report.error:.1e}, more than "
        f"--max-error {wanted.max_error:g}",
        details=[f"{row.name}: adds noise, {row.snr:.1f} dB below its results" for row in blamed],
        hint=f"Leave the worst layers as they are (--quantize-skip {names}), or take {instead}.",
    )

"""One line for a person about what each stage returned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

from .build.compile import BuildResult
from .codegen.generate import Generated
from .lower.core.driver import Lowered
from .model.graph import ModelGraph
from .package.writer import PackageSummary
from .schedule import Schedule


def summarise(value: Any) -> str:
    """The line for a stage's value."""
    if isinstance(value, Mapping):
        return _builds(value)
    if isinstance(value, Sequence) and value:
        return _many(value[0], value)
    return _many(value, [value])


@singledispatch
def _many(first: Any, values: Sequence[Any]) -> str:
    return f"{len(values)} results"


@_many.register
def _graphs(first: ModelGraph, values: Sequence[ModelGraph]) -> str:
    nodes = [n for g in values for n in g.module.graph.nodes if n.op == "call_function"]
    kinds = Counter(str(n.target).split(".")[1] if "." in str(n.target) else "" for n in nodes)
    found = [
        _count(kinds["scaled_dot_product_attention"], "attention"),
        _count(kinds["layer_norm"] + kinds["rms_norm"], "norm"),
        _count(kinds["linear"], "linear"),
        _count(kinds["conv2d"] + kinds["conv1d"], "convolution"),
    ]
    symbols = [f"{s.name} {s.min}..{s.max}" for s in first.symbols]
    return "; ".join(
        [", ".join([f"{len(nodes)} nodes", *(f for f in found if f)]), *([", ".join(symbols)] if symbols else [])]
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}" if number else ""


@_many.register
def _lowered(first: Lowered, values: Sequence[Lowered]) -> str:
    return f"{sum(len(v.program.nodes) for v in values)} loop nodes"


@_many.register
def _schedules(first: Schedule, values: Sequence[Schedule]) -> str:
    kernels = sum(len(v.program.nodes) for v in values)
    done = sum(r.done for v in values for r in v.remarks)
    refused = sum(not r.done for v in values for r in v.remarks)
    memory = first.memory
    text = f"{_count(kernels, 'kernel') or '0 kernels'} ({_count(done, 'fusion') or '0 fusions'}, {refused} refused)"
    if memory.offsets is not None and memory.live:
        text += f"; arena {memory.arena / 1e6:.1f} MB, {memory.arena / memory.live:.2f} x live"
    return text


@_many.register
def _generated(first: Generated, values: Sequence[Generated]) -> str:
    counts = [f"{len(first.kernels)} distinct kernels"] if first.kernels else []
    counts += [f"{len(code.kernels)} for {target}" for target, code in first.device.items()]
    return ", ".join(counts)


@_many.register
def _package(first: PackageSummary, values: Sequence[PackageSummary]) -> str:
    name, size = first.path.name, first.size / 1e6
    return f"{name} {size:.1f} MB: weights {first.weights / 1e6:.1f}, code {first.other / 1e6:.1f}"


def _builds(values: Mapping[str, BuildResult]) -> str:
    compiled, cached = sum(b.compiled for b in values.values()), sum(b.cached for b in values.values())
    names = ", ".join(t.removeprefix("cpu:") for t in values)
    return f"{names}; {cached} of {compiled + cached} units cached"

"""One line for a person about what each stage returned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

from ..runtime.inspect import megabytes
from ..runtime.text import counted
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
    return counted(len(values), "result")


@_many.register
def _graphs(first: ModelGraph, values: Sequence[ModelGraph]) -> str:
    nodes = [n for g in values for n in g.module.graph.nodes if n.op == "call_function"]
    kinds = Counter(str(n.target).split(".")[1] if "." in str(n.target) else "" for n in nodes)
    found = [
        (kinds["scaled_dot_product_attention"], "attention"),
        (kinds["layer_norm"] + kinds["rms_norm"], "norm"),
        (kinds["linear"], "linear"),
        (kinds["conv2d"] + kinds["conv1d"], "convolution"),
    ]
    symbols = [f"{s.name} {s.min}..{s.max}" for s in first.symbols]
    return "; ".join(
        [
            ", ".join([counted(len(nodes), "node"), *(counted(number, noun) for number, noun in found if number)]),
            *([", ".join(symbols)] if symbols else []),
        ]
    )


@_many.register
def _lowered(first: Lowered, values: Sequence[Lowered]) -> str:
    return counted(sum(len(v.program.nodes) for v in values), "loop node")


@_many.register
def _schedules(first: Schedule, values: Sequence[Schedule]) -> str:
    kernels = sum(len(v.program.nodes) for v in values)
    done = sum(r.done for v in values for r in v.remarks)
    refused = sum(not r.done for v in values for r in v.remarks)
    memory = first.memory
    text = f"{counted(kernels, 'kernel')} ({counted(done, 'fusion')}, {refused} refused)"
    if memory.offsets is not None and memory.live:
        text += f"; arena {megabytes(memory.arena)}, {memory.arena / memory.live:.2f} x live"
    return text


@_many.register
def _generated(first: Generated, values: Sequence[Generated]) -> str:
    counts = [counted(len(first.kernels), "distinct kernel")] if first.kernels else []
    counts += [f"{len(code.kernels)} for {target}" for target, code in first.device.items()]
    return ", ".join(counts)


@_many.register
def _package(first: PackageSummary, values: Sequence[PackageSummary]) -> str:
    size, weights, other = (megabytes(n) for n in (first.size, first.weights, first.other))
    return f"{first.path.name} {size}: weights {weights}, everything else {other}"


def _builds(values: Mapping[str, BuildResult]) -> str:
    compiled, cached = sum(b.compiled for b in values.values()), sum(b.cached for b in values.values())
    names = ", ".join(t.removeprefix("cpu:") for t in values)
    return f"{names}; {cached} of {counted(compiled + cached, 'unit')} cached"

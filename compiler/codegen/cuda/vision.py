"""Routines of detection and of recurrences over time (lower/indexing/vision.py, linalg/sequences.py) in Triton."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ...ir.dtypes import DTYPES
from ...ir.index import ONE, Index
from ...ir.plans.gpu import PartPlan
from ...ir.routines import Routine
from ...schedule.gpu.blocks import blocks
from .emit import TritonEmitter
from .kernel import SIGNATURE, TL_DTYPE, Launch, grid
from .maps import finish, operand
from .scope import TritonScope

__all__ = ["SEQUENTIAL"]

#: the smallest finite number of what bins are compared in
LOWEST = {"f32": "-3.4028234663852886e38", "f64": "-1.7976931348623157e308"}


@dataclass(frozen=True)
class NmsView:
    params: str
    n: str
    block: int
    pdl: bool


@dataclass(frozen=True)
class RegionView:
    """Sizes of an image, of a result and of its bins. fixed: samples of a bin along a dimension, 0 for one per pixel.
    least: a region is at least one pixel long. sensitive: bins have channels of their own."""

    params: str
    channels_out: str
    channels: str
    height: str
    width: str
    bins_y: str
    bins_x: str
    fixed: int
    least: bool
    sensitive: bool
    compute: str
    lowest: str
    block: int
    pdl: bool


@dataclass(frozen=True)
class CtcView:
    """states: elements of a row of states; rows: of the two rows of a sequence."""

    params: str
    steps: str
    classes: str
    all: str
    blank: str
    states: str
    rows: str
    compute: str
    block: int
    pdl: bool


@dataclass(frozen=True)
class FilterView:
    params: str
    n: str
    order: str
    block: int
    pdl: bool


def _scope(node: Routine, plan: PartPlan) -> TritonScope:
    """The templates call inputs x0, x1, ... and outputs y0, y1, ..."""
    scope = TritonScope.of(node, plan)
    scope.buffers |= {b.buffer: f"x{i}" for i, b in enumerate(node.inputs)}
    scope.buffers |= {b.buffer: f"y{i}" for i, b in enumerate(node.outputs)}
    return scope


def _numbers(scope: TritonScope, *sizes: Index) -> tuple[str, ...]:
    text = TritonEmitter(scope, {})
    return tuple(operand(text.index(size)) for size in sizes)


def _compute(node: Routine) -> str:
    return DTYPES[node.inputs[0].buffer.dtype].compute


def _nms(node: Routine, name: str, parts: tuple[PartPlan, ...]) -> tuple[Launch, ...]:
    (plan,) = parts
    scope = _scope(node, plan)
    (n,) = _numbers(scope, node.sizes[0])
    view = NmsView("", n, plan.block, plan.pdl)
    return (finish("nms.py.j2", view, scope, name, grid(ONE), node, plan),)


def _region(node: Routine, name: str, parts: tuple[PartPlan, ...]) -> tuple[Launch, ...]:
    (plan,) = parts
    scope = _scope(node, plan)
    channels_out, channels, height, width, bins_y, bins_x, *flags = node.sizes
    fixed, least, sensitive = [f.constant or 0 for f in flags] if len(flags) == 3 else [0, 0, flags[0].constant or 0]
    numbers = _numbers(scope, channels_out, channels, height, width, bins_y, bins_x)
    compute = _compute(node)
    view = RegionView(
        params="",
        channels_out=numbers[0],
        channels=numbers[1],
        height=numbers[2],
        width=numbers[3],
        bins_y=numbers[4],
        bins_x=numbers[5],
        fixed=fixed,
        least=bool(least),
        sensitive=bool(sensitive),
        compute=TL_DTYPE[compute],
        lowest=LOWEST[compute],
        block=plan.block,
        pdl=plan.pdl,
    )
    programs = grid(node.count, blocks(channels_out * bins_y * bins_x, plan.block))
    template = f"{node.function}.py.j2"
    return (finish(template, view, scope, name, programs, node, plan),)


def _ctc(node: Routine, name: str, parts: tuple[PartPlan, ...]) -> tuple[Launch, ...]:
    (plan,) = parts
    scope = _scope(node, plan)
    compute = _compute(node)
    steps, classes, everything, blank = node.sizes
    states = everything * 2 + 1
    scope.scratch = (SIGNATURE[compute], states * 2 * node.count * DTYPES[compute].size)
    scope.checks = True
    numbers = _numbers(scope, steps, classes, everything, blank, states, states * 2)
    view = CtcView(
        params="",
        steps=numbers[0],
        classes=numbers[1],
        all=numbers[2],
        blank=numbers[3],
        states=numbers[4],
        rows=numbers[5],
        compute=TL_DTYPE[compute],
        block=plan.block,
        pdl=plan.pdl,
    )
    launch = finish("ctc.py.j2", view, scope, name, grid(node.count), node, plan)
    return (replace(launch, failure="a length or a label given to ctc_loss lies outside of its tensor"),)


def _recursive_filter(node: Routine, name: str, parts: tuple[PartPlan, ...]) -> tuple[Launch, ...]:
    (plan,) = parts
    scope = _scope(node, plan)
    n, order = node.sizes
    numbers = _numbers(scope, n, order)
    view = FilterView("", numbers[0], numbers[1], plan.block, plan.pdl)
    programs = grid(node.count)
    return (finish("recursive_filter.py.j2", view, scope, name, programs, node, plan),)


#: routine -> its launches
SEQUENTIAL: Mapping[str, Callable[[Routine, str, tuple[PartPlan, ...]], tuple[Launch, ...]]] = {
    "nms": _nms,
    "roi_align": _region,
    "roi_pool": _region,
    "ctc": _ctc,
    "recursive_filter": _recursive_filter,
}

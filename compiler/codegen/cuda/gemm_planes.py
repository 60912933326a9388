"""Products of weights by groups, and of 4 bits, as Triton kernels: a tile for each program, or shared by several."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.dtypes import DTYPES
from ...ir.index import ONE, as_index
from ...ir.layouts import PLANES, row_words
from ...ir.plans.gpu import ProductPlan
from ...ir.structured import Gemm, Quantised
from ...machine.gpu import LINE
from ...schedule.gpu.blocks import blocks
from ...schedule.gpu.fit import divides
from .kernel import TL_DTYPE, Launch
from .matrix import (
    Part,
    PlacedAxes,
    Shared,
    count,
    finish_lines,
    launch,
    mask_text,
    parameters,
    pointer,
    precision_text,
    scalar,
    shared_tiles,
    times,
)
from .scope import TritonScope


@dataclass(frozen=True)
class PlaneView:
    """A part of a step that is one operand of the tensor cores.

    depth: where its values of k begin. opens, closes: it is the first, the last of those that share a scale.
    scale: number of that scale in the step.
    """

    number: int
    depth: str
    opens: bool
    closes: bool
    scale: int


@dataclass(frozen=True)
class PlanesView:
    """Of gemm_planes.py.j2: the numbers of the tile, and finished texts.

    steps: of the loop, in words of a row (values where weights are of 8 bits); run: those of a program; groups: the
    group that each of a step's scales belongs to, in terms of `step`.
    """

    params: str
    block_m: int
    block_n: int
    block_k: int
    planes: tuple[PlaneView, ...]
    groups: tuple[str, ...]
    last_group: int
    words: str
    n: str
    k: str
    tiles_m: str
    tiles_n: str
    order: str
    group: int
    a_base: str
    a_rows: str
    a_mask: str
    masks_k: bool
    b_base: str
    b_row: str
    b_mask: str
    b_lines: str
    operands: tuple[str, ...]
    scales: str
    zeros: str
    integers: bool  # sums of groups are integers
    exact_zeros: bool  # and so are the zeros
    edge_m: bool
    m: str
    edge_n: bool
    precision: str
    parts: tuple[Part, ...]
    finish_parts: tuple[Part, ...]
    finish: tuple[str, ...]
    pdl: bool
    prefetch: bool
    shared: bool
    split: int
    begin: str
    end: str
    wide: str


def planes_launch(name: str, node: Gemm, plan: ProductPlan) -> Launch:
    """The launch of a product of weights by groups, cut by the tile of its plan."""
    tile = plan.cut
    scope, axes = TritonScope.of(node, plan), PlacedAxes(node, 1)
    tiles = blocks(axes.m.extent, tile.m) * blocks(axes.n.extent, tile.n)
    shared = shared_tiles(tiles, tile)
    view = _view(node, plan, scope, axes, shared)
    suffix = f"{tile.m}x{tile.n}x{tile.k}" + tile.shares
    grid = (tiles, as_index(tile.split), ONE)
    return launch(f"{name}_{suffix}", "gemm_planes.py.j2", view, scope, node, grid, plan, shared)


def _view(node: Gemm, plan: ProductPlan, scope: TritonScope, axes: PlacedAxes, shared: Shared | None) -> PlanesView:
    tile, how = plan.cut, node.quantised
    assert how is not None
    assert how.scales is not None
    m, n, k = axes.m.extent, axes.n.extent, node.k.constant
    assert k is not None
    words = row_words(k, how.run) if how.run else k
    run = -(-words // (tile.k * tile.split)) * tile.k
    planes = _planes(how, tile.k)
    masks_k = bool(k % (PLANES * how.run if how.run else tile.k))
    edge_m, edge_n = not divides(tile.m, m), not divides(tile.n, n)
    row = node.b.strides[-1] // as_index(2 if how.run else 1)
    base = pointer(scope, axes, node.b, ())
    kind = "tl.int16" if how.run else "tl.float8e4nv" if how.float8 else ""
    outside = [f"(columns < {scalar(scope, n)})[None, :]"] if edge_n else []
    if masks_k and not how.run:
        outside.append(f"(step + tl.arange(0, {tile.k}) < {k})[:, None]")
    whole = Part("", 0, tile.n)
    return PlanesView(
        block_m=tile.m,
        block_n=tile.n,
        block_k=tile.k,
        planes=planes,
        groups=_groups(how),
        last_group=k // how.group - 1,
        words=str(words),
        n=scalar(scope, n),
        k=str(k),
        m=scalar(scope, m),
        tiles_m=count(scope, (m, tile.m)),
        tiles_n=count(scope, (n, tile.n)),
        order=plan.order,
        group=tile.group,
        a_base=pointer(scope, axes, node.a, node.a.strides),
        a_rows=times("rows", scope, node.a.strides[-2]),
        a_mask=mask_text(["in_rows[:, None]" if edge_m else "", f"(depth < {k})[None, :]" if masks_k else ""]),
        masks_k=masks_k,
        b_base=f"{_parenthesised(base)}.to(tl.pointer_type({kind}), bitcast=True)" if kind else base,
        b_row=scalar(scope, row),
        b_mask=mask_text(outside).replace("0.0", "0"),
        b_lines=_lines(how, run, tile.shared),
        operands=_operands(node, how),
        scales=scope.buffer(how.scales),
        zeros=scope.buffer(how.zeros) if how.zeros is not None else "",
        integers=node.a_dtype == "i8",
        exact_zeros=how.zeros is None or DTYPES[how.zeros.dtype].kind == "i",
        edge_m=edge_m,
        edge_n=edge_n,
        precision=precision_text(plan.precision, {node.a_dtype}),
        parts=(whole,),
        finish_parts=(whole,),
        finish=finish_lines(scope, axes, node, {node.acc.name: "acc"}, (tile.m, tile.n)),
        pdl=plan.pdl,
        prefetch=plan.prefetch,
        shared=tile.shared,
        split=tile.split,
        begin=f"split * {run}",
        end=f"tl.minimum(begin + {run}, {words})" if words % (tile.k * tile.split) else f"begin + {run}",
        wide=".to(tl.int64)" if scope.wide else "",
        params=", ".join(p.name for p in parameters(scope, shared)),
    )


def _parenthesised(text: str) -> str:
    return text if text.isidentifier() else f"({text})"


def shared_planes(how: Quantised) -> int:
    """Planes side by side that are in one group, wherever a chunk begins."""
    return math.gcd(how.group // how.run, PLANES) if how.group % how.run == 0 else PLANES


def _planes(how: Quantised, block_k: int) -> tuple[PlaneView, ...]:
    if not how.run:
        return (PlaneView(0, "step", True, True, 0),)
    alike = shared_planes(how)
    chunk = f"step * {PLANES}" if block_k == how.run else f"step // {how.run} * {PLANES * how.run} + step % {how.run}"
    return tuple(
        PlaneView(p, chunk + (f" + {p * how.run}" if p else ""), p % alike == 0, (p + 1) % alike == 0, p // alike)
        for p in range(PLANES)
    )


def _groups(how: Quantised) -> tuple[str, ...]:
    """The group of each scale of the step at `at`."""
    if not how.run:
        return (f"at // {how.group}",)
    alike, runs = shared_planes(how), how.group // how.run
    if how.group % how.run:
        return ("0",)  # all of k is one group
    firsts = [f"at // {how.run} * {PLANES}" + (f" + {p}" if p else "") for p in range(0, PLANES, alike)]
    return tuple(first if runs == 1 else f"({first}) // {runs}" for first in firsts)


def _operands(node: Gemm, how: Quantised) -> tuple[str, ...]:
    """The lines that make operands w_0, w_1, ... of what is loaded."""
    a = node.a_dtype
    if not how.run:
        return ("w_0 = b_tile" if a == "i8" else f"w_0 = b_tile.to({TL_DTYPE[a]})",)
    if a in ("bf16", "f16"):
        return (f"{', '.join(f'w_{p}' for p in range(PLANES))} = planes_as_{a}(b_tile)",)
    to = "tl.int8" if a == "i8" else TL_DTYPE[a]
    return tuple(f"w_{p} = (((b_tile >> {4 * p}) & 15) - 8).to({to})" for p in range(PLANES))


def _lines(how: Quantised, run: int, split: bool) -> str:
    """One element of each line of memory of a program's run of weights."""
    step = LINE // (2 if how.run else 1)
    width = 1 << max(-(-run // step) - 1, 0).bit_length()
    first, last = ("begin + ", "end - 1") if split else ("", str(run - 1))
    return f"tl.minimum({first}tl.arange(0, {width}) * {step}, {last})[None, :]"

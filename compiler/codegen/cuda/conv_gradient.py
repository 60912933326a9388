"""Gradients of convolutions' weights as Triton kernels: products over pixels, gathered tap by tap."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...ir.buffers import Buffer
from ...ir.index import ONE, Index, Var, as_index, of, product
from ...ir.plans.gpu import ProductPlan
from ...ir.rewrite import flattened
from ...ir.structured import Conv
from ...schedule.gpu.blocks import blocks
from .emit import Place, TritonEmitter
from .kernel import Launch
from .matrix import (
    Part,
    PlacedAxes,
    Shared,
    count,
    divides,
    finish_lines,
    launch,
    mask_text,
    parameters,
    precision_text,
    scalar,
    shared_tiles,
    times,
)
from .scope import TritonScope


@dataclass(frozen=True)
class GradientView:
    """Of conv_gradient.py.j2: the numbers of the tile, and finished texts."""

    params: str
    block_m: int
    block_n: int
    block_k: int
    finish_parts: tuple[Part, ...]
    m: str
    n: str
    tiles_m: str
    tiles_n: str
    order: str
    group: int
    column_lines: tuple[str, ...]
    pixel_lines: tuple[str, ...]
    w_base: str
    w_mask: str
    x_base: str
    x_mask: str
    steps: str
    edge_m: bool
    edge_n: bool
    precision: str
    finish: tuple[str, ...]
    pdl: bool
    shared: bool
    split: int
    split_run: int  # steps of each of the programs that share a tile
    end: str
    wide: bool
    apart: bool = False  # a kernel of its own sums the parts


@dataclass(frozen=True)
class SumsView:
    """Of conv_gradient_sums.py.j2: a block of rows and columns, and the tiles of m by n whose parts it sums."""

    params: str
    block_m: int
    block_n: int
    finish_parts: tuple[Part, ...]
    tiles_n: str
    tile_rows: int
    split: int
    finish: tuple[str, ...]
    pdl: bool
    wide: bool


class GradientAxes(PlacedAxes):
    """Channels of the output, and taps with the channels of the input as their last digit."""

    def __init__(self, node: Conv):
        b, *taps, a = node.dims
        self.batch, self.rows = [], [a]
        self.z, self.m = Var("z", ONE), Var("m", a.extent)
        self.n = Var("n", product(v.extent for v in (*taps, b)))
        self.values = {a: of(self.m), **flattened((*taps, b), self.n)}
        self.places = {self.z: Place("z"), self.m: Place("m", ("m",)), self.n: Place("n", ("n",))}


def weight_launches(name: str, node: Conv, plan: ProductPlan) -> tuple[Launch, ...]:
    """The launch of the gradient of a weight with its epilogue, cut by the plan's tile; with a second one where the
    plan sums parts of tiles by a kernel of its own."""
    tile, scope, axes = plan.cut, TritonScope.of(node, plan), GradientAxes(node)
    tiles = blocks(axes.m.extent, tile.m) * blocks(axes.n.extent, tile.n)
    shared = shared_tiles(tiles, tile)
    texts = _Gradient(node, plan, scope, axes)
    grid = (tiles, as_index(tile.split), ONE)
    suffix = f"{tile.m}x{tile.n}x{tile.k}{tile.shares}"
    rows, warps = plan.summed
    if not rows or shared is None:
        view = replace(texts.view(), params=", ".join(p.name for p in parameters(scope, shared)))
        return (launch(f"{name}_{suffix}", "conv_gradient.py.j2", view, scope, node, grid, plan, shared),)
    apart = replace(shared, counters=None)
    operands = TritonScope.of(replace(node, stores=()), plan)
    own = _Gradient(node, plan, operands, axes).view()
    parts = replace(own, apart=True, params=", ".join(p.name for p in parameters(operands, apart)))
    first = launch(f"{name}_{suffix}", "conv_gradient.py.j2", parts, operands, node, grid, plan, apart)
    return first, _sums(f"{name}_sums_{rows}x{tile.n}", node, replace(plan, warps=warps), axes, apart)


def _sums(name: str, node: Conv, plan: ProductPlan, axes: GradientAxes, shared: Shared) -> Launch:
    """The launch that sums the parts of tiles, and finishes them."""
    tile, scope, (rows, _) = plan.cut, TritonScope.of(node, plan), plan.summed
    wide = blocks(axes.n.extent, tile.n)
    finish = finish_lines(scope, axes, node, {node.acc.name: "acc"}, (rows, tile.n))
    view = SumsView(
        ", ".join(p.name for p in parameters(scope, shared)), rows, tile.n, (Part("", 0, tile.n),),
        count(scope, (axes.n.extent, tile.n)), tile.m, tile.split, finish, plan.pdl, scope.wide,
    )  # fmt: skip
    grid = (blocks(axes.m.extent, rows) * wide, ONE, ONE)
    return launch(name, "conv_gradient_sums.py.j2", view, scope, node, grid, plan, shared)


class _Gradient:
    """Texts of one gradient."""

    def __init__(self, node: Conv, plan: ProductPlan, scope: TritonScope, axes: GradientAxes):
        self.node, self.plan, self.scope, self.axes = node, plan, scope, axes
        spatial = len(node.window.kernel)
        #: of each dimension of the map: where the first tap of a pixel lies, and the tap
        self.starts, self.taps = ("front", "top", "left")[-spatial:], ("h", "i", "j")[-spatial:]
        self.flat = plan.form == "pixels flat"
        samples = node.in_shape[-1].constant
        assert samples is not None
        self.samples, self.pixels = samples, math.prod(node.window.kernel) * samples

    def view(self) -> GradientView:
        node, tile, scope, axes = self.node, self.plan.cut, self.scope, self.axes
        steps = -(-self.pixels // tile.k)
        run = -(-steps // tile.split)
        edge_m, edge_n = not divides(tile.m, axes.m.extent), not divides(tile.n, axes.n.extent)
        rest = f"(at < {self.pixels})[:, None]" if self.pixels % tile.k else ""
        return GradientView(
            params="",
            block_m=tile.m,
            block_n=tile.n,
            block_k=tile.k,
            finish_parts=(Part("", 0, tile.n),),
            m=scalar(scope, axes.m.extent),
            n=scalar(scope, axes.n.extent),
            tiles_m=count(scope, (axes.m.extent, tile.m)),
            tiles_n=count(scope, (axes.n.extent, tile.n)),
            order=self.plan.order,
            group=tile.group,
            column_lines=self._columns(),
            pixel_lines=self._pixels(),
            w_base=self._start(node.w, node.w_offset),
            w_mask=mask_text([rest, "in_rows[None, :]" if edge_m else ""]),
            x_base=self._start(node.x.buffer, node.x.offset),
            x_mask=mask_text([rest, self._inside(), "in_columns[None, :]" if edge_n else ""]),
            steps=str(steps),
            edge_m=edge_m,
            edge_n=edge_n,
            precision=precision_text(self.plan.precision, {node.x.buffer.dtype}),
            finish=finish_lines(scope, axes, node, {node.acc.name: "acc"}, (tile.m, tile.n)),
            pdl=self.plan.pdl,
            shared=tile.shared,
            split=tile.split,
            split_run=run,
            end=f"tl.minimum(begin + {run}, {steps})",
            wide=scope.wide,
        )

    def _start(self, buffer: Buffer, offset: Index) -> str:
        text = TritonEmitter(self.scope, {}).index(offset)
        name = self.scope.buffer(buffer)
        return name if text == "0" else f"{name} + {text}"

    def _columns(self) -> tuple[str, ...]:
        """column: where the channel of each column lies at its tap, from the place of the first tap on."""
        b, *taps, _ = self.node.dims
        window, strides, n = self.node.window, self.node.x.strides, self.plan.cut.n
        emit = TritonEmitter(self.scope, {})
        channels, many = emit.index(b.extent), product(v.extent for v in taps) != ONE
        if not many:
            lines, channel = [], "columns"
        elif self.flat:
            lines, channel = [f"tap = columns // {channels}", f"channel = columns % {channels}"], "channel"
        else:
            each = emit.index(b.extent // as_index(n))
            lines = [f"tap = tile_n // {each}", f"channel = tile_n % {each} * {n} + tl.arange(0, {n})"]
            channel = "channel"
        text = times(channel, self.scope, strides[0])
        behind = 1
        for axis in reversed(range(len(taps))):
            extent = taps[axis].extent.constant
            assert extent is not None
            if extent > 1:
                lines.append(f"{self.taps[axis]} = tap // {behind} % {extent}")
                text += f" + {times(self.taps[axis], self.scope, strides[axis + 1] * window.stride[axis])}"
                behind *= extent
        return (*lines, f"column = {text}")

    def _pixels(self) -> tuple[str, ...]:
        """batch, the places of each pixel's first tap, and where that lies: pixel."""
        node, window = self.node, self.node.window
        _, *strides, sample = node.x.strides
        loops = [
            Var(name, as_index(n)) for name, n in zip(("s", *self.taps), (self.samples, *window.kernel), strict=True)
        ]
        rows = Var("at", as_index(self.pixels))
        values = flattened(loops, rows)
        emit = TritonEmitter(self.scope, {rows: Place("at", ("k",))})
        lines = [f"batch = {emit.index(values[loops[0]])}"]
        text = times("batch", self.scope, sample)
        for axis, (name, loop) in enumerate(zip(self.starts, loops[1:], strict=True)):
            place = emit.index(values[loop] * window.dilation[axis]) if loop.extent != ONE else "tl.zeros_like(at)"
            lines.append(f"{name} = {place}{f' - {window.pad[axis]}' if window.pad[axis] else ''}")
            text += f" + {times(name, self.scope, strides[axis])}"
        return (*lines, f"pixel = {text}")

    def _inside(self) -> str:
        """Whether the tap of a pixel lies inside the map; empty when every one does."""
        window, sizes, taps = self.node.window, self.node.in_shape[1:-1], self.node.dims[1:-1]
        tests = []
        for axis, (start, tap, size, loop) in enumerate(zip(self.starts, self.taps, sizes, taps, strict=True)):
            at = f"{start}[:, None]"
            if loop.extent != ONE:
                moved = tap if window.stride[axis] == 1 else f"{tap} * {window.stride[axis]}"
                at += f" + ({moved})[None, :]" if self.flat else f" + {moved}"
            last = (loop.extent - 1) * window.stride[axis] + (window.kernel[axis] - 1) * window.dilation[axis]
            if window.pad[axis]:
                tests.append(f"({at} >= 0)")
            if not (size - 1 - (last - window.pad[axis])).nonnegative():
                tests.append(f"({at} < {scalar(self.scope, size)})")
        return " & ".join(tests)

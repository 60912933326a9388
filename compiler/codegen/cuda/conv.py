"""Convolutions of channels-last maps as Triton kernels: implicit matrix products, and windows of single channels."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.index import ONE, Index, as_index
from ...ir.plans.gpu import ProductPlan
from ...ir.rewrite import flattened
from ...ir.structured import Conv
from ...schedule.gpu.blocks import blocks
from .emit import Place, TritonEmitter
from .gemm import lines_of
from .kernel import Launch
from .matrix import (
    Part,
    PlacedAxes,
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
class ConvView:
    """Of conv.py.j2 and conv_depthwise.py.j2: the numbers of the tile and the window, and finished texts."""

    params: str
    block_m: int
    block_n: int
    block_k: int
    parts: tuple[Part, ...]
    finish_parts: tuple[Part, ...]
    m: str
    n: str
    k: str
    tiles: str
    tiles_m: str
    tiles_n: str
    order: str
    group: int
    batched: bool
    kernel: tuple[int, ...]
    pixel_lines: tuple[str, ...]
    x_base: str
    x_rows: str
    x_place: str
    x_mask: str
    w_base: str
    w_place: str
    w_mask: str
    steps: str
    step_lines: tuple[str, ...]
    edge_m: bool  # the last tile has rows past the end, which are masked
    edge_n: bool
    precision: str
    finish: tuple[str, ...]
    pdl: bool
    prefetch: bool
    w_lines: str
    shared: bool
    split: int
    split_run: int  # steps of each of the programs that share a tile
    end: str
    wide: str


def conv_launch(name: str, node: Conv, plan: ProductPlan) -> Launch:
    """The launch of a convolution with its epilogue, cut by the plan's tile.

    Rows are pixels, columns channels of the output.
    """
    tile = plan.cut
    scope = TritonScope.of(node, plan)
    axes = PlacedAxes(node, len(node.dims) - 1)
    depthwise = plan.form == "depthwise"
    groups = 1 if depthwise else node.window.groups
    columns = _columns(node, groups)
    tiles = blocks(axes.m.extent, tile.m) * blocks(columns, tile.n) * groups
    shared = shared_tiles(tiles, tile)
    texts = _Conv(node, plan, scope, axes, groups)
    view = replace(texts.view(), params=", ".join(p.name for p in parameters(scope, shared)))
    template = "conv_depthwise.py.j2" if depthwise else "conv.py.j2"
    suffix = f"{tile.m}x{tile.n}" + ("" if depthwise else f"x{tile.k}") + tile.shares
    grid = (tiles, as_index(tile.split), ONE)
    return launch(f"{name}_{suffix}", template, view, scope, node, grid, plan, shared)


def _columns(node: Conv, groups: int) -> Index:
    """Channels of the output of one group."""
    return node.dims[-1].extent // as_index(groups)


class _Conv:
    """Texts of one convolution."""

    def __init__(self, node: Conv, plan: ProductPlan, scope: TritonScope, axes: PlacedAxes, groups: int):
        self.node, self.plan, self.scope, self.axes, self.groups = node, plan, scope, axes, groups
        tile = self.tile = plan.cut
        self.grouped = node.window.grouped and plan.form != "depthwise"
        channels = node.in_shape[-1].constant
        assert channels is not None
        self.channels = channels // groups  # that one output reads
        self.edge_m = not divides(tile.m, axes.m.extent)
        self.edge_n = not divides(tile.n, _columns(node, groups))
        self.taps = math.prod(node.window.kernel)
        #: of each dimension of the map: its first place in the window of a row, and the tap
        spatial = len(node.window.kernel)
        self.starts = ("front", "top", "left")[-spatial:]
        self.names = ("h", "i", "j")[-spatial:]

    def view(self) -> ConvView:
        split = self.tile.split
        node, tile, scope, axes = self.node, self.tile, self.scope, self.axes
        m, n = axes.m.extent, _columns(node, self.groups)
        depth = self.taps * self.channels
        flat = self.plan.form == "flat"
        steps = -(-depth // tile.k) if flat else self.taps * -(-self.channels // tile.k)
        run = -(-steps // split)
        part = Part("", 0, tile.n)
        x_rows = times("batch", scope, node.x.strides[0])
        for name, stride in zip(self.starts, node.x.strides[1:], strict=True):
            x_rows += f" + {times(name, scope, stride)}"
        form = self._depthwise() if self.plan.form == "depthwise" else self._flat(depth) if flat else self._taps()
        step_lines, x_place, x_mask, w_place, w_mask = form
        return ConvView(
            block_m=tile.m,
            block_n=tile.n,
            block_k=tile.k,
            parts=(part,),
            finish_parts=(part,),
            m=scalar(scope, m),
            n=scalar(scope, n),
            k=str(depth),
            tiles=count(scope, (m, tile.m), (n, tile.n)),
            tiles_m=count(scope, (m, tile.m)),
            tiles_n=count(scope, (n, tile.n)),
            order=self.plan.order,
            group=tile.group,
            batched=self.grouped,
            kernel=node.window.kernel,
            pixel_lines=self._pixels(),
            x_base=self._start(node.x.buffer, node.x.offset, f"group * {self.channels}" if self.grouped else ""),
            x_rows=x_rows,
            x_place=x_place,
            x_mask=x_mask,
            w_base=self._start(node.w, node.w_offset, f"group * {scalar(scope, n * depth)}" if self.grouped else ""),
            w_place=w_place,
            w_mask=w_mask,
            steps=str(steps),
            step_lines=step_lines,
            edge_m=self.edge_m,
            edge_n=self.edge_n,
            precision=precision_text(self.plan.precision, {node.x.buffer.dtype}),
            finish=self._finish(n),
            pdl=self.plan.pdl,
            prefetch=self.plan.prefetch,
            w_lines=lines_of(
                DTYPES[node.w.dtype].size, run * tile.k, f"begin * {tile.k}" if tile.shared else "", str(depth - 1)
            ),
            shared=tile.shared,
            split=split,
            split_run=run,
            end=f"begin + {run}" if run * split == steps else f"tl.minimum(begin + {run}, {steps})",
            wide=".to(tl.int64)" if scope.wide else "",
            params="",
        )

    def _start(self, buffer: Buffer, offset: Index, group: str) -> str:
        text = TritonEmitter(self.scope, {}).index(offset)
        terms = [t for t in (text if text != "0" else "", group) if t]
        name = self.scope.buffer(buffer)
        return f"{name} + {' + '.join(terms)}" if terms else name

    def _finish(self, columns: Index) -> tuple[str, ...]:
        """The epilogue; n becomes the channel of the whole output."""
        lines = finish_lines(
            self.scope, self.axes, self.node, {self.node.acc.name: "acc"}, (self.tile.m, self.tile.n), columns
        )
        if not self.grouped:
            return lines
        n = scalar(self.scope, columns)
        inside = () if divides(self.tile.n, columns) else (f"inside = n < {n}",)
        return (*inside, f"n += group * {n}", *lines)

    def _pixels(self) -> tuple[str, ...]:
        """batch, and the first places of each row's window."""
        n, *spatial, _ = self.node.dims
        rows = self.axes.m
        values = flattened((n, *spatial), rows)
        emit = TritonEmitter(self.scope, {rows: Place("rows", ("m",))})
        window = self.node.window
        lines = [f"batch = {emit.index(values[n])}"] if n.extent != ONE else ["batch = 0"]
        for name, loop, stride, pad in zip(self.starts, spatial, window.stride, window.pad, strict=True):
            text = emit.index(values[loop] * stride) if loop.extent != ONE else "tl.zeros_like(rows)"
            lines.append(f"{name} = {text}{f' - {pad}' if pad else ''}")
        return tuple(lines)

    def _inside(self, taps: Sequence[str]) -> str:
        """Whether a tap lies inside the map, by row; empty when every one does."""
        window, sizes, outs = self.node.window, self.node.in_shape[1:-1], self.node.dims[1:-1]
        tests = []
        for axis, (name, tap, size, out) in enumerate(zip(self.starts, taps, sizes, outs, strict=True)):
            at = _plus(name, tap, window.dilation[axis])
            last = (out.extent - 1) * window.stride[axis] + (window.kernel[axis] - 1) * window.dilation[axis]
            if window.pad[axis]:
                tests.append(f"({at} >= 0)")
            if not (size - 1 - (last - window.pad[axis])).nonnegative():
                tests.append(f"({at} < {scalar(self.scope, size)})")
        return " & ".join(tests)

    def _offset(self, taps: Sequence[str]) -> str:
        window = self.node.window
        rows = [
            times(tap, self.scope, self.node.x.strides[axis + 1] * window.dilation[axis])
            for axis, tap in enumerate(taps)
            if window.kernel[axis] > 1
        ]
        return " + ".join(rows)

    def _digits(self, tap: str, suffix: str = "") -> tuple[tuple[str, ...], list[str]]:
        """Lines that make the taps of the dimensions of `tap`, and the taps; "0" of a dimension with one."""
        kernel, lines, found = self.node.window.kernel, [], []
        several = sum(n > 1 for n in kernel) > 1 or bool(suffix)
        for axis, (name, n) in enumerate(zip(self.names, kernel, strict=True)):
            if n == 1 or not several:
                found.append("0" if n == 1 else tap)
                continue
            behind, first = math.prod(kernel[axis + 1 :]), math.prod(kernel[:axis]) == 1
            text = tap if behind == 1 else f"{tap} // {behind}"
            text = text if first else f"{text} % {n}"
            lines.append(f"{name} = {f'({text}){suffix}' if suffix else text}")
            found.append(name)
        return tuple(lines), found

    def _taps(self) -> tuple[tuple[str, ...], str, str, str, str]:
        """Steps within the channels of one tap."""
        channels, k = self.channels, self.tile.k
        chunks = -(-channels // k)
        tap = "step" if chunks == 1 else f"step // {chunks}"
        lines = [f"tap = {tap}"] if self.taps > 1 else []
        lines.append(f"c = {'lanes' if chunks == 1 else f'step % {chunks} * {k} + lanes'}")
        digits, taps = self._digits("tap")
        lines += digits
        inside, offset = self._inside(taps), self._offset(taps)
        place = f"(x_rows + ({offset}))[:, None] + c[None, :]" if offset else "x_rows[:, None] + c[None, :]"
        rows = "in_rows" if self.edge_m else ""
        if inside:
            lines.append(f"inside = {inside}{' & in_rows' if rows else ''}")
            rows = "inside"
        tail = f"(c < {channels})" if channels % k else ""
        x_mask = mask_text([f"{rows}[:, None]" if rows else "", f"{tail}[None, :]" if tail else ""])
        w_place = f"w_rows[None, :] + ({f'tap * {channels} + ' if self.taps > 1 else ''}c)[:, None]"
        return tuple(lines), place, x_mask, w_place, self._w_mask(f"{tail}[:, None]" if tail else "")

    def _w_mask(self, tail: str) -> str:
        return mask_text(["in_columns[None, :]" if self.edge_n else "", tail])

    def _flat(self, depth: int) -> tuple[tuple[str, ...], str, str, str, str]:
        """Steps over taps and channels together, each lane with a tap of its own."""
        channels = self.channels
        lines = [f"at = step * {self.tile.k} + lanes", f"tap = at // {channels}", f"c = at % {channels}"]
        digits, taps = self._digits("tap", "[None, :]")
        lines += digits
        inside = re.sub(rf"\b({'|'.join(self.starts)})\b", r"\1[:, None]", self._inside(taps))
        tail = f"(at < {depth})" if depth % self.tile.k else ""
        masks = [inside, f"{tail}[None, :]" if tail else "", "in_rows[:, None]" if self.edge_m else ""]
        offset = self._offset(taps)
        place = f"x_rows[:, None] + ({offset} + c[None, :])" if offset else "x_rows[:, None] + c[None, :]"
        w_mask = self._w_mask(f"{tail}[:, None]" if tail else "")
        return tuple(lines), place, mask_text(masks), "w_rows[None, :] + at[:, None]", w_mask

    def _depthwise(self) -> tuple[tuple[str, ...], str, str, str, str]:
        inside, offset = self._inside(self.names), self._offset(self.names)
        lines = (f"inside = {inside}",) if inside else ()
        place = f"x_rows + ({offset})" if offset else "x_rows"
        rows, columns = "in_rows[:, None]" if self.edge_m else "", "in_columns[None, :]" if self.edge_n else ""
        return lines, place, mask_text(["inside[:, None]" if inside else "", rows, columns]), "", ""


def _plus(name: str, tap: str, dilation: int) -> str:
    if tap == "0":
        return name
    return f"{name} + {tap}" if dilation == 1 else f"{name} + {tap} * {dilation}"

"""Scans whose steps combine, as Triton kernels that scan pieces of rows side by side."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dtypes import DTYPES
from ...ir.expr import substitute
from ...ir.index import ONE, ZERO, Var, product
from ...ir.nodes import Scan
from ...ir.plans.gpu import Combination, ScanPlan
from ...ir.rewrite import flattened
from ...schedule.gpu.blocks import blocks, whole
from .emit import Place, TritonEmitter, Value
from .kernel import TL_DTYPE, Launch, grid
from .maps import emit_stores, finish
from .reductions import nothing
from .scope import TritonScope


@dataclass(frozen=True)
class StartView:
    text: str
    dtype: str


@dataclass(frozen=True)
class ScanRows:
    params: str
    wide: str
    block_rows: int
    rows: str
    masked_rows: bool
    block: int
    steps: str
    masked: bool
    starts: tuple[StartView, ...]
    values: tuple[str, ...]
    scanned: str
    combined: str
    stores: tuple[str, ...]
    pdl: bool


def scan_rows_launch(node: Scan, how: Combination, name: str, plan: ScanPlan) -> Launch:
    """The launch of a scan whose steps combine."""
    scope = TritonScope.of(node, plan)
    rows, steps = product(v.extent for v in node.dims), node.step.extent
    block, block_rows = plan.block, plan.rows
    row, step = Var("row", rows), Var("step", steps)
    loops = {**flattened(node.dims, row), **flattened((node.step,), step)}
    if rows == ONE:
        loops |= dict.fromkeys(node.dims, ZERO)
    places = {row: Place("row", ("r",)), step: Place("step", ("c",))}
    masks = {} if whole(rows, block_rows) else {"r": "row_inside"}
    masks |= {} if whole(steps, block) else {"c": "step_inside"}
    plain = TritonEmitter(scope, {})
    dtypes = [TL_DTYPE[DTYPES[c.acc.dtype].compute] for c in node.carries]
    starts = [plain.value(c.start) for c in node.carries]
    values = TritonEmitter(scope, places, masks)
    moved = [substitute(v, loops) for v in how.values]
    values.count_uses(moved)
    for i, (value, start, dtype) in enumerate(zip(moved, starts, dtypes, strict=True)):
        values.lines.append(f"value{i} = {nothing(f'({block_rows}, {block})', dtype)} + {values.value(value)}")
        if "c" in masks:
            values.lines.append(f"value{i} = tl.where(step_inside, value{i}, {start})")
    own, carried, accs = ([f"{stem}{i}" for i in range(len(dtypes))] for stem in ("value", "carry", "acc"))
    given = f"({', '.join(own)})" if len(own) > 1 else own[0]
    scanned = f"{how.scan}({given}, 1)" if how.scan else f"tl.associative_scan({given}, 1, {how.function})"
    axes = ("c",) if rows == ONE else ("r", "c")
    inner = {c.acc.name: Value(text, axes) for c, text in zip(node.carries, accs, strict=True)}
    end = TritonEmitter(scope, places, masks, inner, stem="u")
    emit_stores(end, node.stores, loops)
    view = ScanRows(
        params="",
        wide=".to(tl.int64)" if scope.wide else "",
        block_rows=block_rows,
        rows=plain.index(rows),
        masked_rows="r" in masks,
        block=block,
        steps=plain.index(steps),
        masked="c" in masks,
        starts=tuple(StartView(s, d) for s, d in zip(starts, dtypes, strict=True)),
        values=tuple(values.lines),
        scanned=f"{', '.join(own)} = {scanned}",
        combined=f"{', '.join(accs)} = {how.function}({', '.join((*carried, *own))})",
        stores=tuple(end.lines),
        pdl=plan.pdl,
    )
    programs = grid(blocks(rows, block_rows))
    return finish("scan_rows.py.j2", view, scope, name, programs, node, plan)
